"""Layout of a plan as the flat tables that the simulator's kernel runs on."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.columns import Column, Side, partners, read_only
from collplan.executors.cost.kernel import HAS_ON_START
from collplan.executors.cost.occupancy import IS_LONG, IS_STRIDED
from collplan.executors.cost.parameters import NETWORK
from collplan.executors.cost.tables import TASK, Clocks, Places, Records
from collplan.planner.arrays.jit import compiled, inner
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import NONE, ON_START, Buffer, Op, Plan

_MOST_PRIORITIES: Final = 1 << 16
"""Priorities are counted one by one up to this range, above it they are ranked first."""

Ints = npt.NDArray[np.int32]

_SEND, _RECV, _COPY, _REDUCE = (int(op) for op in (Op.SEND, Op.RECV, Op.COPY, Op.REDUCE))


def places_of(plan: Plan) -> Places:
    """Return the places of all tasks of a plan."""
    clocks = Clocks.of(plan)
    tasks, slots = place(plan, clocks)
    return Places(clocks, tasks, clocks.make_queues(plan, slots, offload=False))


def core_to_numa(plan: Plan) -> Ints:
    """Return the NUMA domain of every core of a node; an imported schedule has one per node."""
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
    ends = _Ends(
        read_only(plan.rank, np.int32),
        read_only(plan.peer, np.int32),
        Column.of(plan.lane, np.int16),
        Column.of(plan.core, np.int32),
        Column.of(plan.apart, np.int32),
    )
    ranks = _Ranks(
        read_only(plan.rank_node, np.int32),
        read_only(plan.rank_lane, np.int16),
        read_only(core_to_numa(plan), np.int32),
        read_only(np.bincount(plan.rank_node, minlength=plan.n_nodes), np.int32),
        clocks.n_cores,
        clocks.n_lanes,
    )
    slots = _place(op, ends, partner, ranks, tasks)
    same_sizes = _weigh(
        op,
        partner,
        Side.of(plan.reads),
        Side.of(plan.writes),
        read_only(plan.patterns[:, 1] * plan.patterns[:, 3] * plan.itemsize, np.int64),
        Column.of(plan.duration_ns, np.int64),
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


class _Ends(NamedTuple):
    """Places of tasks, and the partners of messages."""

    rank: Ints
    peer: Ints
    lane: Column
    core: Column
    apart: Column


class _Ranks(NamedTuple):
    """Places of ranks and cores."""

    node: Ints
    lane: npt.NDArray[np.int16]
    core_numa: Ints
    n_on_node: Ints
    n_cores: int
    n_lanes: int


@inner
def _link_inside(core_numa: Ints, here: int, there: int) -> int:
    """Return the row of the link between two cores of a node."""
    if here == there:
        return 0
    return 1 if core_numa[here] == core_numa[there] else 2


@compiled
def _place(
    op: npt.NDArray[np.int8], ends: _Ends, partner: Ints, ranks: _Ranks, tasks: Records
) -> npt.NDArray[np.int64]:
    """Fill in queues and links; return (rank, core) of every slot as one key.

    A slot is a rank on a core; it has a queue without a lane, then one for
    each lane and the port, out and in.
    """
    # In names of their own: taking an array out of a tuple counts a reference.
    rank, peer, (lane, lane_step), (core, core_step), (apart, apart_step) = ends
    rank_node, rank_lane, core_numa, n_on_node, n_cores, n_lanes = ranks
    width = 1 + 2 * (n_lanes + 1)
    slot_of = np.full(len(rank_node) * n_cores, -1, dtype=np.int32)
    n_slots = 0
    for row in range(len(op)):
        me, here = rank[row], core[row * core_step]
        key = me * n_cores + here
        if slot_of[key] < 0:
            slot_of[key] = n_slots
            n_slots += 1
        first = slot_of[key] * width
        task = tasks[row]
        task.op = op[row]
        task.queue = first
        task.link = NETWORK
        task.following = task.cause = -1
        task.end = -1.0
        if op[row] > _RECV:
            continue
        other = peer[row]
        is_inside = rank_node[me] == rank_node[other] and apart[row * apart_step] == 0
        taken = n_lanes
        # A rank alone on its node has no port: even to itself it sends over its lane, as in LogGPS.
        if not is_inside or n_on_node[rank_node[me]] == 1:
            taken = lane[row * lane_step]
            if taken < 0:
                taken = rank_lane[other if op[row] == _SEND else me]
            taken = max(taken, 0)
        if is_inside:
            there = here if me == other else core[partner[row] * core_step]
            task.link = _link_inside(core_numa, here, there)
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
    reads: Side,
    writes: Side,
    pattern_bytes: npt.NDArray[np.int64],
    duration_ns: Column,
    itemsize: int,
    tasks: Records,
) -> bool:
    """Fill in work and partners; return whether the two ends of all messages have one size."""
    same_sizes = True
    reads_indptr, reads_elements, (reads_pattern, reads_step), _ = reads
    writes_indptr, writes_elements, (writes_pattern, writes_step), _ = writes
    duration, duration_step = duration_ns
    for row in range(len(op)):
        if op[row] > _REDUCE:
            tasks[row].work = duration[row * duration_step]
            continue
        n_bytes = 0
        in_pieces = False
        if op[row] != _RECV:
            most = 2 if op[row] == _REDUCE else 1
            in_pieces |= reads_indptr[row + 1] - reads_indptr[row] > most
            for i in range(reads_indptr[row], reads_indptr[row + 1]):
                size = pattern_bytes[reads_pattern[i * reads_step]]
                in_pieces |= size > itemsize
                if op[row] == _SEND:
                    n_bytes += reads_elements[i] * size
        if op[row] != _SEND:
            in_pieces |= writes_indptr[row + 1] - writes_indptr[row] > 1
            for i in range(writes_indptr[row], writes_indptr[row + 1]):
                size = pattern_bytes[writes_pattern[i * writes_step]]
                in_pieces |= size > itemsize
                n_bytes += writes_elements[i] * size
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


def serving_order(plan: Plan) -> Ints:
    """Return all rows in the order in which those ready together are served.

    Sends, then receives, then the rest; within those by priority, then row.
    """
    priority = Column.of(plan.priority, np.int32)
    low, high = int(priority.values.min(initial=0)), int(priority.values.max(initial=0))
    if high - low >= _MOST_PRIORITIES:
        _, ranked = np.unique(priority.values, return_inverse=True)
        priority, low, high = Column.of(ranked, np.int32), 0, int(ranked.max())
    return np.asarray(_serving_order(read_only(plan.op, np.int8), priority, low, high))


@compiled
def _serving_order(op: npt.NDArray[np.int8], priority: Column, low: int, high: int) -> Ints:
    """Sort rows by kind and priority, counting how many there are of each."""
    values, step = priority
    n = high - low + 1
    first = np.zeros(3 * n + 1, dtype=np.int64)
    for row in range(len(op)):
        first[min(op[row], _COPY) * n + values[row * step] - low + 1] += 1
    first = np.cumsum(first)
    order = np.empty(len(op), dtype=np.int32)
    for row in range(len(op)):
        key = min(op[row], _COPY) * n + values[row * step] - low
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
    deps = _Deps(
        read_only(plan.deps.indptr, np.int32),
        read_only(plan.deps.task, np.int32),
        read_only(plan.deps.kind, np.int8),
    )
    _link_dependencies(
        deps,
        read_only(plan.rank, np.int32),
        Column.of(plan.core, np.int32),
        read_only(core_to_numa(plan), np.int32),
        order,
        successors,
        tasks,
    )
    return successors


class _Deps(NamedTuple):
    """A plan's dependencies."""

    indptr: Ints
    task: Ints
    kind: npt.NDArray[np.int8]


@compiled
def _link_dependencies(
    deps: _Deps,
    rank: Ints,
    core: Column,
    core_numa: Ints,
    order: Ints,
    successors: Ints,
    tasks: Records,
) -> None:
    indptr, task, kind = deps
    cores, step = core
    for before in task:
        tasks[before].successors += 1
    begin = 0
    for row in range(len(tasks)):
        n = tasks[row].successors
        tasks[row].successors = begin
        begin += n
    # Filling a list moves its begin to its end.
    for row in order:
        tasks[row].pending = indptr[row + 1] - indptr[row]
        for i in range(indptr[row], indptr[row + 1]):
            before = tasks[task[i]]
            on_start = kind[i] & ON_START
            link = 0
            if rank[row] != rank[task[i]]:
                here, there = cores[row * step], cores[task[i] * step]
                link = 1 + _link_inside(core_numa, here, there)
            successors[before.successors] = 8 * row + 2 * link + on_start
            before.successors += 1
            if on_start:
                before.state |= HAS_ON_START


def initial_tasks(plan: Plan, order: Ints) -> Ints:
    """Return the tasks that wait for nothing, rank by rank, each rank's in serving order."""
    indptr = read_only(plan.deps.indptr, np.int32)
    rank = Column.of(plan.rank, np.int32)
    return np.asarray(_initial_tasks(indptr, rank, order, plan.n_ranks))


@compiled
def _initial_tasks(deps_indptr: Ints, rank: Column, order: Ints, n_ranks: int) -> Ints:
    ranks, step = rank
    first = np.zeros(n_ranks + 1, dtype=np.int64)
    for row in range(len(order)):
        if deps_indptr[row] == deps_indptr[row + 1]:
            first[ranks[row * step] + 1] += 1
    first = np.cumsum(first)
    rows = np.empty(first[-1], dtype=np.int32)
    for row in order:
        if deps_indptr[row] == deps_indptr[row + 1]:
            rows[first[ranks[row * step]]] = row
            first[ranks[row * step]] += 1
    return rows
