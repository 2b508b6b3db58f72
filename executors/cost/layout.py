"""From a plan's columns to the flat arrays the simulator's kernel runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from executors.cost.event_queue import Records
from executors.cost.kernel import HAS_ON_START, RENDEZVOUS
from executors.cost.messages import partners, read_only, stepped
from executors.cost.waiting import CLOCK, QUEUE, TASK
from planner.compiled import compiled
from planner.matching import match_messages
from planner.plan import ON_START

if TYPE_CHECKING:
    from planner.plan import Plan
    from specs import Link, Network

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

LINK_CLASSES: Final = ("core", "numa", "node", "network")
_NETWORK = 3
_MOST_PRIORITIES: Final = 1 << 16
"""Priorities are counted one by one up to this range, above it they are ranked first."""
_SEND, _RECV, _COPY, _REDUCE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where each kind of resource begins in the simulator's table of clocks."""

    n_nodes: int
    n_cores: int
    n_lanes: int
    n_ranks: int

    @property
    def lane_out(self) -> int:
        """First clock of the lanes' sending side; cores come before, by node."""
        return self.n_nodes * self.n_cores

    @property
    def lane_in(self) -> int:
        """First clock of the lanes' receiving side."""
        return self.lane_out + self.n_nodes * self.n_lanes

    @property
    def port_out(self) -> int:
        """First clock of the ranks' ports into their node."""
        return self.lane_in + self.n_nodes * self.n_lanes

    @property
    def port_in(self) -> int:
        """First clock of the ranks' ports out of their node."""
        return self.port_out + self.n_ranks

    def make(self) -> Records:
        """Return all clocks at 0."""
        clocks = np.zeros(self.unused + 1, dtype=CLOCK)
        clocks["holder"] = clocks["first"] = -1
        clocks["event_time"] = np.inf
        return clocks

    @property
    def unused(self) -> int:
        """The clock that never moves, for tasks that need a core only."""
        return self.port_in + self.n_ranks


def link_table(network: Network) -> Floats:
    """Return L, o, g, G and O (columns, ns) of the four link classes (rows)."""

    def row(link: Link) -> tuple[float, ...]:
        return link.L_ns, link.o_ns, link.g_ns, link.G_ns_per_byte, link.O_ns_per_byte

    return np.array([row(getattr(network, name)) for name in LINK_CLASSES], dtype=np.float64)


def clocks_of(plan: Plan) -> Clocks:
    """Return how many cores and lanes the plan uses on a node."""
    return Clocks(
        n_nodes=plan.n_nodes,
        n_cores=1 + int(max(plan.core.max(initial=0), plan.rank_core.max(initial=0))),
        n_lanes=1 + int(max(plan.lane.max(initial=0), plan.rank_lane.max(initial=0))),
        n_ranks=plan.n_ranks,
    )


def rank_to_numa(plan: Plan) -> Ints:
    """Return the NUMA domain of every rank; an imported schedule has one a node."""
    if plan.spec is None:
        return np.zeros(plan.n_ranks, dtype=np.int32)
    return np.array(plan.spec.machine.rank_to_numa, dtype=np.int32)


def place(plan: Plan, clocks: Clocks, network: Network) -> tuple[Records, Records]:
    """Decide what every task needs: the clocks, for how long, and its partner.

    Returns
    -------
    tasks : ndarray of TASK, shape (n_tasks,)
        Complete but for the dependencies.
    queues : ndarray of QUEUE, shape (n_queues,)
        All that tasks belong to, still empty.

    Raises
    ------
    MatchError
        Where sends and receives do not pair up.
    """
    partner = partners(plan)
    tasks = np.zeros(plan.n_tasks, dtype=TASK)
    op = read_only(plan.op, np.int8)
    slots = _place(
        op,
        read_only(plan.rank, np.int32),
        read_only(plan.peer, np.int32),
        *stepped(plan.lane, np.int16),
        *stepped(plan.core, np.int32),
        read_only(plan.rank_node, np.int32),
        read_only(plan.rank_lane, np.int16),
        read_only(plan.rank_core, np.int32),
        read_only(rank_to_numa(plan), np.int32),
        read_only(np.bincount(plan.rank_node, minlength=plan.n_nodes), np.int32),
        clocks.n_cores,
        clocks.n_lanes,
        tasks,
    )
    same_sizes = _weigh(
        op,
        partner,
        read_only(plan.reads.indptr, np.int32),
        read_only(plan.reads.count, np.int64),
        *stepped(plan.reads.pattern, np.int32),
        read_only(plan.writes.indptr, np.int32),
        read_only(plan.writes.count, np.int64),
        *stepped(plan.writes.pattern, np.int32),
        read_only(plan.patterns[:, 1] * plan.patterns[:, 3] * plan.itemsize, np.int64),
        *stepped(plan.duration_ns, np.int64),
        float(network.copy_ns_per_byte),
        float(network.reduce_ns_per_byte),
        float(network.eager_limit_bytes),
        tasks,
    )
    if not same_sizes:
        match_messages(plan)
    return tasks, _queues(plan, clocks, slots)


def _queues(plan: Plan, clocks: Clocks, slots: npt.NDArray[np.int64]) -> Records:
    """Return the queues of every slot in the order `_place` numbers them."""
    rank, core = np.divmod(slots, clocks.n_cores)
    node = plan.rank_node[rank].astype(np.int64)
    lanes = np.arange(clocks.n_lanes)
    lane = np.column_stack(
        (
            np.full(len(slots), clocks.unused),
            clocks.lane_out + node[:, None] * clocks.n_lanes + lanes,
            clocks.port_out + rank,
            clocks.lane_in + node[:, None] * clocks.n_lanes + lanes,
            clocks.port_in + rank,
        )
    )
    queues = np.empty(lane.size, dtype=QUEUE)
    queues["lane"] = lane.ravel()
    queues["core"] = np.repeat(node * clocks.n_cores + core, lane.shape[1])
    queues["rank"] = np.repeat(rank, lane.shape[1])
    queues["first"] = queues["last"] = -1
    return queues


@compiled
def _place(
    op: npt.NDArray[np.int8],
    rank: Ints,
    peer: Ints,
    lane: npt.NDArray[np.int16],
    lane_step: int,
    core: Ints,
    core_step: int,
    rank_node: Ints,
    rank_lane: npt.NDArray[np.int16],
    rank_core: Ints,
    rank_numa: Ints,
    ranks_on_node: Ints,
    n_cores: int,
    n_lanes: int,
    tasks: Records,
) -> npt.NDArray[np.int64]:
    """Fill in queues and links; return (rank, core) of every slot as one key.

    A slot is a rank on a core; it has a queue without a lane, then one for
    each lane and the port, out and in.
    """
    width = 1 + 2 * (n_lanes + 1)
    slot_of = np.full(len(rank_node) * n_cores, -1, dtype=np.int32)
    n_slots = 0
    for row in range(len(op)):
        me = rank[row]
        key = me * n_cores + core[row * core_step]
        if slot_of[key] < 0:
            slot_of[key] = n_slots
            n_slots += 1
        first = slot_of[key] * width
        task = tasks[row]
        task.op = op[row]
        task.queue = first
        task.link = _NETWORK
        task.following = task.cause = -1
        task.end = -1.0
        if op[row] > _RECV:
            continue
        other = peer[row]
        taken = n_lanes
        # A rank alone on its node has no port: even to itself it sends over its lane, as in LogGPS.
        if rank_node[me] != rank_node[other] or ranks_on_node[rank_node[me]] == 1:
            taken = lane[row * lane_step]
            if taken < 0:
                taken = rank_lane[other if op[row] == _SEND else me]
            taken = max(taken, 0)
        if rank_node[me] == rank_node[other]:
            task.link = 2
            if me == other or rank_core[me] == rank_core[other]:
                task.link = 0
            elif rank_numa[me] == rank_numa[other]:
                task.link = 1
        task.queue = first + 1 + taken + (0 if op[row] == _SEND else n_lanes + 1)
    slots = np.empty(n_slots, dtype=np.int64)
    for key in range(len(slot_of)):
        if slot_of[key] >= 0:
            slots[slot_of[key]] = key
    return slots


@compiled
def _weigh(
    op: npt.NDArray[np.int8],
    partner: Ints,
    reads_indptr: Ints,
    reads_count: npt.NDArray[np.int64],
    reads_pattern: Ints,
    reads_step: int,
    writes_indptr: Ints,
    writes_count: npt.NDArray[np.int64],
    writes_pattern: Ints,
    writes_step: int,
    pattern_bytes: npt.NDArray[np.int64],
    duration_ns: npt.NDArray[np.int64],
    duration_step: int,
    copy_ns_per_byte: float,
    reduce_ns_per_byte: float,
    eager_limit: float,
    tasks: Records,
) -> bool:
    """Fill in work and partners; return whether the two ends of all messages have one size."""
    same_sizes = True
    for row in range(len(op)):
        n_bytes = 0
        if op[row] == _SEND:
            for i in range(reads_indptr[row], reads_indptr[row + 1]):
                n_bytes += reads_count[i] * pattern_bytes[reads_pattern[i * reads_step]]
        else:
            for i in range(writes_indptr[row], writes_indptr[row + 1]):
                n_bytes += writes_count[i] * pattern_bytes[writes_pattern[i * writes_step]]
        if op[row] <= _RECV:
            tasks[row].work = n_bytes
            if op[row] == _SEND and n_bytes > eager_limit:
                tasks[row].state |= RENDEZVOUS
            tasks[row].partner = partner[row]
            if partner[row] < row:
                same_sizes &= tasks[partner[row]].work == n_bytes
        elif op[row] == _COPY:
            tasks[row].work = np.rint(n_bytes * copy_ns_per_byte)
        elif op[row] == _REDUCE:
            tasks[row].work = np.rint(n_bytes * reduce_ns_per_byte)
        else:
            tasks[row].work = duration_ns[row * duration_step]
    return same_sizes


def serving_order(plan: Plan) -> Ints:
    """Return all rows in the order in which those ready together are served.

    Sends, then receives, then the rest; within those by priority, then row.
    """
    priority, step = stepped(plan.priority, np.int32)
    low, high = int(priority.min(initial=0)), int(priority.max(initial=0))
    if high - low >= _MOST_PRIORITIES:
        _, ranked = np.unique(priority, return_inverse=True)
        priority, low, high = read_only(ranked, np.int32), 0, int(ranked.max())
    return np.asarray(_serving_order(read_only(plan.op, np.int8), priority, step, low, high))


@compiled
def _serving_order(
    op: npt.NDArray[np.int8], priority: Ints, priority_step: int, low: int, high: int
) -> Ints:
    """Sort rows by kind and priority, counting how many there are of each."""
    n = high - low + 1
    first = np.zeros(3 * n + 1, dtype=np.int64)
    for row in range(len(op)):
        first[min(op[row], _COPY) * n + priority[row * priority_step] - low + 1] += 1
    first = np.cumsum(first)
    order = np.empty(len(op), dtype=np.int32)
    for row in range(len(op)):
        key = min(op[row], _COPY) * n + priority[row * priority_step] - low
        order[first[key]] = row
        first[key] += 1
    return order


def link_dependencies(plan: Plan, order: Ints, tasks: Records) -> Ints:
    """Turn dependencies around: fill in what each task waits for, and return the successors.

    Those of task i end at ``tasks[i].successors`` and begin where those of the
    row before end, in serving order. An entry is twice the successor's row,
    plus one where it waits for the start only.
    """
    successors = np.empty(len(plan.deps), dtype=np.int32)
    _link_dependencies(
        read_only(plan.deps.indptr, np.int32),
        read_only(plan.deps.task, np.int32),
        read_only(plan.deps.kind, np.int8),
        order,
        successors,
        tasks,
    )
    return successors


@compiled
def _link_dependencies(
    deps_indptr: Ints,
    deps_task: Ints,
    deps_kind: npt.NDArray[np.int8],
    order: Ints,
    successors: Ints,
    tasks: Records,
) -> None:
    for before in deps_task:
        tasks[before].successors += 1
    begin = 0
    for row in range(len(tasks)):
        n = tasks[row].successors
        tasks[row].successors = begin
        begin += n
    # Filling a list moves its begin to its end.
    for row in order:
        tasks[row].pending = deps_indptr[row + 1] - deps_indptr[row]
        for i in range(deps_indptr[row], deps_indptr[row + 1]):
            before = tasks[deps_task[i]]
            on_start = deps_kind[i] & ON_START
            successors[before.successors] = 2 * row + on_start
            before.successors += 1
            if on_start:
                before.state |= HAS_ON_START


def initial_tasks(plan: Plan, order: Ints) -> Ints:
    """Return the tasks that wait for nothing, rank by rank, each rank's in serving order."""
    rank, step = stepped(plan.rank, np.int32)
    indptr = read_only(plan.deps.indptr, np.int32)
    return np.asarray(_initial_tasks(indptr, rank, step, order, plan.n_ranks))


@compiled
def _initial_tasks(
    deps_indptr: Ints, rank: Ints, rank_step: int, order: Ints, n_ranks: int
) -> Ints:
    first = np.zeros(n_ranks + 1, dtype=np.int64)
    for row in range(len(order)):
        if deps_indptr[row] == deps_indptr[row + 1]:
            first[rank[row * rank_step] + 1] += 1
    first = np.cumsum(first)
    rows = np.empty(first[-1], dtype=np.int32)
    for row in order:
        if deps_indptr[row] == deps_indptr[row + 1]:
            rows[first[rank[row * rank_step]]] = row
            first[rank[row * rank_step]] += 1
    return rows
