"""Conversion of a plan to the flat tables that the kernel of the simulator runs on."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from collplan.executors.cost.columns import dense, partners, thin
from collplan.executors.cost.kernel import HAS_ON_START
from collplan.executors.cost.occupancy import IS_STRIDED
from collplan.executors.cost.parameters import NETWORK
from collplan.executors.cost.tables import TASK, ClockOffsets, Places, Records, table_of
from collplan.planner.arrays import Ints
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan
from collplan.planner.plan.ragged import ON_START

_MOST_PRIORITIES: Final = 1 << 16
"""Largest range of priorities that are sorted by counting."""

_SEND, _RECV, _COPY, _REDUCE = (int(op) for op in (Op.SEND, Op.RECV, Op.COPY, Op.REDUCE))


def places_of(plan: Plan) -> Places:
    """Return the clocks that all tasks of a plan hold.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    Places

    Raises
    ------
    MatchError
        If sends and receives do not match.
    """
    clocks = ClockOffsets.of(plan)
    tasks, slots = place(plan, clocks)
    return Places(clocks, tasks, clocks.make_queues(plan, slots, offload=False))


def core_to_numa(plan: Plan) -> Ints:
    """Return the NUMA domain of every core of a node; a plan without a spec has one domain.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    ndarray of int32, shape (n_cores,)
        Domain of each core, numbered within its node.
    """
    cores = np.arange(1 + max(plan.core.max(initial=0), plan.rank_core.max(initial=0)))
    machine = plan.machine
    if machine is None:
        return np.zeros_like(cores, dtype=np.int32)
    return (cores * machine.numa_domains // machine.cores_per_node).astype(np.int32)


def place(plan: Plan, clocks: ClockOffsets, *, allocated: bool = False) -> tuple[Records, Ints]:
    """Return the table of tasks with the queue, link, work and partner of each.

    Parameters
    ----------
    plan : Plan
    clocks : ClockOffsets
    allocated : bool
        Whether the callers' buffers are in shared memory. If so, copies of staged elements cost
        nothing.

    Returns
    -------
    tasks : ndarray of TASK, shape (n_tasks,)
        Table without the dependencies.
    slots : ndarray of int64, shape (n_slots,)
        Pairs of a rank and a core that have tasks, as ``rank * n_cores + core``.

    Raises
    ------
    MatchError
        If sends and receives do not match.
    """
    partner = partners(plan)
    tasks = table_of(plan.n_tasks, TASK)
    n_on_node = np.bincount(plan.rank_node, minlength=plan.n_nodes)
    slots = _place(
        (*dense(plan, "op", "rank", "peer"), *thin(plan, "lane", "core", "apart")),
        partner,
        (*dense(plan, "rank_node", "rank_lane"), core_to_numa(plan), n_on_node),
        clocks.n_cores,
        clocks.n_lanes,
        tasks,
    )
    reads, writes = (
        (*dense(side, "indptr", "count"), *thin(side, "pattern"))
        for side in (plan.reads, plan.writes)
    )
    same_sizes = _weigh(
        (*dense(plan, "op"), *thin(plan, "duration_ns")),
        partner,
        reads,
        writes,
        plan.patterns[:, 1] * plan.patterns[:, 3] * plan.itemsize,
        plan.itemsize,
        tasks,
    )
    if not same_sizes:
        match_messages(plan)
    if allocated:
        tasks["work"] -= staged_elements(plan) * float(plan.itemsize)
    return tasks, slots


def staged_elements(plan: Plan) -> Ints:
    """Return the number of elements that each task copies from a buffer to its mirror.

    A verified plan writes nothing else to mirrors.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    ndarray of int64, shape (n_tasks,)
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


@inner
def _link_inside(core_numa: Ints, here: int, there: int) -> int:
    """Return the row of the link between two cores of a node."""
    if here == there:
        return 0
    return 1 if core_numa[here] == core_numa[there] else 2


@compiled
def _place(
    ends: tuple[Any, ...],
    partner: Ints,
    ranks: tuple[Ints, ...],
    n_cores: int,
    n_lanes: int,
    tasks: Records,
) -> Ints:
    """Fill in queues and links; return the key of the rank and core of every slot.

    A slot is a rank on a core. It has one queue without a lane, then one for each lane and the
    port of the sending side, and the same for the receiving side.
    """
    # Each array has a name, because every access to an array in a tuple counts references.
    op, rank, peer, (lane, lane_step), (core, core_step), (apart, apart_step) = ends
    rank_node, rank_lane, core_numa, n_on_node = ranks
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
        # As in LogGPS, a rank alone on its node has no port and sends to itself over its lane.
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
    columns: tuple[Any, ...],
    partner: Ints,
    reads: tuple[Any, ...],
    writes: tuple[Any, ...],
    pattern_bytes: Ints,
    itemsize: int,
    tasks: Records,
) -> bool:
    """Fill in work and partners; return whether both ends of every message have the same size."""
    same_sizes = True
    op, (duration, duration_step) = columns
    reads_indptr, reads_elements, (reads_pattern, reads_step) = reads
    writes_indptr, writes_elements, (writes_pattern, writes_step) = writes
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
            tasks[row].far_queue = tasks[partner[row]].queue
            if partner[row] < row:
                same_sizes &= tasks[partner[row]].work == n_bytes
    return same_sizes


def serving_order(plan: Plan) -> Ints:
    """Return all rows in the order in which simultaneously ready tasks are served.

    Sends come first, then receives, then other tasks, each in the order of priority and row.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    ndarray of int32, shape (n_tasks,)
    """
    low, high = int(plan.priority.min(initial=0)), int(plan.priority.max(initial=0))
    if high - low >= _MOST_PRIORITIES:
        kind = np.minimum(plan.op, Op.COPY)
        return np.asarray(np.lexsort((plan.priority, kind)).astype(np.int32))
    columns = (*dense(plan, "op"), *thin(plan, "priority"))
    return np.asarray(_serving_order(columns, low, high - low + 1))


@compiled
def _serving_order(columns: tuple[Any, ...], low: int, n: int) -> Ints:
    """Sort rows by kind and priority with a counting sort."""
    op, (priority, step) = columns
    first = np.zeros(3 * n + 1, dtype=np.int64)
    for row in range(len(op)):
        first[min(op[row], _COPY) * n + priority[row * step] - low + 1] += 1
    for i in range(len(first) - 1):
        first[i + 1] += first[i]
    order = np.empty(len(op), dtype=np.int32)
    for row in range(len(op)):
        key = min(op[row], _COPY) * n + priority[row * step] - low
        order[first[key]] = row
        first[key] += 1
    return order


def link_dependencies(plan: Plan, order: Ints, tasks: Records) -> tuple[Ints, Ints]:
    """Return the successors of all tasks, and fill in the number of their predecessors.

    Parameters
    ----------
    plan : Plan
    order : ndarray of int32, shape (n_tasks,)
        Rows in serving order, see `serving_order`.
    tasks : ndarray of TASK, shape (n_tasks,)
        Table of `place`, which is completed.

    Returns
    -------
    successors : ndarray of int32, shape (n_deps,)
        Entries ``tasks[i].successors`` to ``tasks[i].end_successors`` are those of task i, in
        serving order. An entry is eight times the row of the successor; plus one if it waits
        only for the start; plus two, four or six if it is a task of another rank on the same
        core, in the same NUMA domain or on the same node.
    initial : ndarray of int32
        Tasks without predecessors, by rank and then in serving order.
    """
    deps, places = dense(plan.deps, "indptr", "task", "kind"), dense(plan, "rank")
    places += (*thin(plan, "core"), core_to_numa(plan))
    first = np.zeros(plan.n_ranks + 1, dtype=np.int64)
    successors, initial = _link_dependencies(deps, places, order, first, tasks)
    return successors, initial


@compiled
def _link_dependencies(
    deps: tuple[Ints, ...], places: tuple[Any, ...], order: Ints, first: Ints, tasks: Records
) -> Any:
    """Return successors and initial tasks.

    `first` receives the index of each rank's first initial task.
    """
    indptr, task, kind = deps
    rank, (cores, step), core_numa = places
    # `ends` is the next free entry of each task's list; when the list is full, it is the end.
    ends = np.zeros(len(tasks) + 1, np.int32)
    for before in task:
        ends[before + 1] += 1
    for row in range(len(tasks)):
        ends[row + 1] += ends[row]
        if indptr[row] == indptr[row + 1]:
            first[rank[row] + 1] += 1
    for i in range(len(first) - 1):
        first[i + 1] += first[i]
    successors, initial = np.empty(len(task), np.int32), np.empty(first[-1], np.int32)
    for row in order:
        if indptr[row] == indptr[row + 1]:
            initial[first[rank[row]]] = row
            first[rank[row]] += 1
        for i in range(indptr[row], indptr[row + 1]):
            before = task[i]
            link = 0
            if rank[row] != rank[before]:
                here, there = cores[row * step], cores[before * step]
                link = 1 + _link_inside(core_numa, here, there)
            successors[ends[before]] = 8 * row + 2 * link + (kind[i] & ON_START)
            ends[before] += 1
    begin = 0
    for row in range(len(tasks)):
        entry = tasks[row]
        entry.pending = indptr[row + 1] - indptr[row]
        entry.successors, entry.end_successors = begin, ends[row]
        for i in range(begin, ends[row]):
            if successors[i] & ON_START:
                entry.state |= HAS_ON_START
        begin = ends[row]
    return successors, initial
