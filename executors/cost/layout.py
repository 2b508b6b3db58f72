"""From a plan's columns to the flat arrays the simulator's kernel runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.kernel import HAS_ON_START
from collplan.executors.cost.messages import partners, read_only, stepped
from collplan.executors.cost.occupancy import IS_LONG, IS_STRIDED, IS_UNCACHED
from collplan.executors.cost.tables import TASK, Records
from collplan.executors.cost.working_sets import is_uncached
from collplan.planner.arrays.jit import compiled
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import NONE, ON_START, Buffer, Op

if TYPE_CHECKING:
    from collplan.executors.cost.tables import Clocks
    from collplan.planner.plan.plan import Plan

Ints = npt.NDArray[np.int32]

_NETWORK = 3
_MOST_PRIORITIES: Final = 1 << 16
"""Priorities are counted one by one up to this range, above it they are ranked first."""
_SEND, _RECV, _COPY, _REDUCE = (int(op) for op in (Op.SEND, Op.RECV, Op.COPY, Op.REDUCE))


def core_to_numa(plan: Plan) -> Ints:
    """Return the NUMA domain of every core of a node; an imported schedule has one a node."""
    cores = np.arange(1 + max(plan.core.max(initial=0), plan.rank_core.max(initial=0)))
    if plan.spec is None:
        return np.zeros_like(cores, dtype=np.int32)
    machine = plan.spec.machine
    return (cores * machine.numa_domains // machine.cores_per_node).astype(np.int32)


def place(
    plan: Plan, clocks: Clocks, *, allocated: bool = False
) -> tuple[Records, npt.NDArray[np.int64]]:
    """Decide what every task needs: its queue, link, bytes, and its partner.

    Where buffers are `allocated`, staged bytes cost nothing.

    Returns
    -------
    tasks : ndarray of TASK, shape (n_tasks,)
        Complete but for the dependencies.
    slots : ndarray of int64, shape (n_slots,)
        Every rank on a core that has tasks, as one key.

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
        partner,
        read_only(plan.rank_node, np.int32),
        read_only(plan.rank_lane, np.int16),
        read_only(core_to_numa(plan), np.int32),
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
        plan.itemsize,
        tasks,
    )
    if not same_sizes:
        match_messages(plan)
    if allocated:
        tasks["work"] -= staged_elements(plan) * float(plan.itemsize)
    return tasks, slots


def staged_elements(plan: Plan) -> npt.NDArray[np.int64]:
    """Return how many elements each task copies from a buffer to its mirror.

    The proof of a plan says that nothing else is written there.
    """
    writes = plan.writes
    rank = plan.rank[writes.owner()]
    count = np.zeros(plan.n_tasks, dtype=np.int64)
    for buffer in (Buffer.SEND, Buffer.RECV):
        begin = plan.mirrors[rank, buffer]
        into = (writes.buffer == Buffer.SHARED) & (begin != NONE) & (writes.offset >= begin)
        into &= writes.offset < begin + plan.buffer_sizes[rank, buffer]
        np.add.at(count, writes.owner()[into], writes.elements(plan.patterns)[into])
    return count


@compiled
def _place(
    op: npt.NDArray[np.int8],
    rank: Ints,
    peer: Ints,
    lane: npt.NDArray[np.int16],
    lane_step: int,
    core: Ints,
    core_step: int,
    partner: Ints,
    rank_node: Ints,
    rank_lane: npt.NDArray[np.int16],
    core_numa: Ints,
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
            here, there = core[row * core_step], core[partner[row] * core_step]
            if me == other or here == there:
                task.link = 0
            elif core_numa[here] == core_numa[there]:
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
    itemsize: int,
    tasks: Records,
) -> bool:
    """Fill in work and partners; return whether the two ends of all messages have one size."""
    same_sizes = True
    for row in range(len(op)):
        if op[row] > _REDUCE:
            tasks[row].work = duration_ns[row * duration_step]
            continue
        n_bytes = 0
        in_pieces = False
        if op[row] != _RECV:
            in_pieces |= reads_indptr[row + 1] - reads_indptr[row] > (
                2 if op[row] == _REDUCE else 1
            )
            for i in range(reads_indptr[row], reads_indptr[row + 1]):
                size = pattern_bytes[reads_pattern[i * reads_step]]
                in_pieces |= size > itemsize
                if op[row] == _SEND:
                    n_bytes += reads_count[i] * size
        if op[row] != _SEND:
            in_pieces |= writes_indptr[row + 1] - writes_indptr[row] > 1
            for i in range(writes_indptr[row], writes_indptr[row + 1]):
                size = pattern_bytes[writes_pattern[i * writes_step]]
                in_pieces |= size > itemsize
                n_bytes += writes_count[i] * size
        tasks[row].work = n_bytes
        if in_pieces:
            tasks[row].state |= IS_STRIDED
        if op[row] <= _RECV:
            tasks[row].partner = partner[row]
            if partner[row] < row:
                same_sizes &= tasks[partner[row]].work == n_bytes
    return same_sizes


@compiled
def mark_long(tasks: Records, eager_limit: float) -> None:
    """Mark the sends above the eager limit."""
    for row in range(len(tasks)):
        if tasks[row].op == _SEND and tasks[row].work > eager_limit:
            tasks[row].state |= IS_LONG


def mark_uncached(plan: Plan, tasks: Records, cache_bytes: int | None) -> None:
    """Mark copies and reductions that work on more than the cache holds."""
    if cache_bytes is not None:
        tasks["state"][is_uncached(plan, cache_bytes)] |= IS_UNCACHED


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
    row before end, in serving order. An entry is eight times the successor's row,
    plus one where it waits for the start only, plus two, four or six where it
    is another rank's, on the same core, in the same NUMA domain or on the same node.
    """
    successors = np.empty(len(plan.deps), dtype=np.int32)
    _link_dependencies(
        read_only(plan.deps.indptr, np.int32),
        read_only(plan.deps.task, np.int32),
        read_only(plan.deps.kind, np.int8),
        read_only(plan.rank, np.int32),
        *stepped(plan.core, np.int32),
        read_only(core_to_numa(plan), np.int32),
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
    rank: Ints,
    core: Ints,
    core_step: int,
    core_numa: Ints,
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
            link = 0
            if rank[row] != rank[deps_task[i]]:
                link = 3
                here, there = core[row * core_step], core[deps_task[i] * core_step]
                if here == there:
                    link = 1
                elif core_numa[here] == core_numa[there]:
                    link = 2
            successors[before.successors] = 8 * row + 2 * link + on_start
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
