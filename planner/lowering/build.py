"""Construction of a plan's tasks from messages and local steps.

A message is received in place. If it would overwrite data that are still needed, it is received in
a bounce buffer in scratch, called a landing slot here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import union
from collplan.planner.blueprint.locations import Binding
from collplan.planner.lowering.staged_calls import stage_calls
from collplan.planner.lowering.tables import LocalTable, MessageTable, RowTable, Tables
from collplan.planner.plan import pieces
from collplan.planner.plan.assembly import RankPlaces, assemble
from collplan.planner.plan.hazards import derive_dependencies, without_hazards
from collplan.planner.plan.origin import KnownSpec
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan
from collplan.planner.plan.ragged import INTENT
from collplan.planner.plan.tags import Edges, chain_streams, join_edges, number_messages
from collplan.specs import PlanSpec


@dataclass
class TaskTable(RowTable):
    """Tasks in any order, with one row per task.

    `order` sorts the rows within a round: sends, then receives with the copies and reductions of
    received data, then local steps. `ordered` marks messages and MPI's own calls that move no data:
    sends and calls wait for those that their rank receives or calls in earlier rounds. Sends of a
    rank with the same number of a `queue` wait for each other.
    """

    op: Ints
    order: Ints
    phase: Ints
    round: Ints
    rank: Ints
    peer: Ints
    tag: Ints
    stream: Ints
    ordered: Bools
    queue: Ints
    reads: Pieces
    writes: Pieces


def build(
    lowered: Tables,
    binding: Binding,
    spec: PlanSpec,
    ranks: int | Sequence[int] | None = None,
    *,
    has_hazards: bool = True,
) -> Plan:
    """Build the plan of lowered components.

    Rows are ordered by round. Within a round, sends come first, then receives, then local steps.
    A message that would overwrite data that its receiver sends or combines in the same round is
    received in scratch. A rank that only receives has few landing slots: its later receives follow
    the copies and reductions that empty the slots.

    Parameters
    ----------
    lowered : Tables
        Messages and local steps. The plan's scratch has landing slots in addition.
    binding : Binding
        Sizes of the caller's buffers.
    spec : PlanSpec
        Spec to store in the plan.
    ranks : int or sequence of int, optional
        Build only the rows of these ranks. A single number gives the program of that rank.
    has_hazards : bool
        Whether to derive dependencies between conflicting tasks. Callers that derive them later
        can omit them.
    """
    messages, steps, placement = lowered.messages, lowered.steps, RankPlaces.of(spec.machine)
    buffer_sizes = np.column_stack((binding.send_sizes, binding.recv_sizes, lowered.scratch_sizes))
    steps, buffer_sizes = stage_calls(steps, buffer_sizes)
    landing = plan_landings(messages, buffer_sizes)
    kept = np.full(len(placement.node), ranks is None)
    if ranks is not None:
        kept[ranks] = True
    tasks = _tasks(messages, steps, landing, kept)
    chains = chain_streams(tasks.op, tasks.rank, tasks.peer, tasks.stream)
    edges = join_edges(chains, join_edges(_ordered_after(tasks), _sent_in_turn(tasks)))
    deps = (
        derive_dependencies(tasks.rank, tasks.reads, tasks.writes, placement.node, edges)
        if has_hazards
        else without_hazards(len(tasks.op), edges)
    )
    return assemble(
        placement,
        {name: getattr(tasks, name) for name in _KEPT_COLUMNS},
        tasks.reads,
        tasks.writes,
        deps,
        buffer_sizes=landing.buffer_sizes,
        shared_sizes=lowered.shared_sizes,
        itemsize=spec.collective.itemsize,
        origin=KnownSpec(spec),
        only_rank=ranks if isinstance(ranks, int) else None,
        phases=lowered.phases,
    )


_KEPT_COLUMNS: Final = ("op", "rank", "peer", "tag", "phase", "round", "stream")
"""Columns of tasks that are also columns of the plan."""


def _tasks(messages: MessageTable, steps: LocalTable, landing: Landing, kept: Bools) -> TaskTable:
    """Return the tasks of the ranks in `kept`, in row order."""
    arrived = arrivals(messages, landing)
    tables = [
        *_message_tasks(messages, landing, len(kept)),
        _local_tasks(arrived, landing.arrival_order),
        _local_tasks(steps, np.full(len(steps.rank), landing.last_order)),
    ]
    tasks = TaskTable.stack([table.select(kept[table.rank]) for table in tables])
    del tables, arrived  # They may have millions of rows, and the next steps need the memory.
    position = csr.joint_key(tasks.round, tasks.order, landing.last_order + 1)
    return tasks.take(np.argsort(position, kind="stable"))


def _message_tasks(
    messages: MessageTable, landing: Landing, n_ranks: int
) -> tuple[TaskTable, TaskTable]:
    """Return the sends and the receives of all messages."""
    tag, stream = number_messages(messages.source, messages.dest, n_ranks)
    n = len(tag)
    columns: dict[str, Any] = {name: getattr(messages, name) for name in _SHARED_COLUMNS}
    columns |= {"tag": tag, "stream": stream}
    sends = TaskTable(
        **columns,
        op=np.full(n, Op.SEND, dtype=np.int8),
        order=np.zeros(n, dtype=landing.recv_order.dtype),
        rank=messages.source,
        peer=messages.dest,
        reads=messages.read,
        writes=pieces.empty(n),
    )
    recvs = TaskTable(
        **columns,
        op=np.full(n, Op.RECV, dtype=np.int8),
        order=landing.recv_order,
        rank=messages.dest,
        peer=messages.source,
        reads=pieces.empty(n),
        writes=landing.received,
    )
    return sends, recvs


_SHARED_COLUMNS: Final = ("phase", "round", "ordered", "queue")
"""Columns of messages that are also columns of their tasks."""


def _local_tasks(steps: LocalTable, order: Ints) -> TaskTable:
    n = len(steps.rank)
    columns = {
        name: getattr(steps, name) for name in ("op", "phase", "round", "rank", "peer", "tag")
    }
    return TaskTable(
        **columns,
        stream=np.full(n, NONE, dtype=np.int32),
        order=order,
        ordered=(steps.op == Op.CALL) & (steps.read.elements + steps.write.elements == 0),
        queue=np.full(n, NONE, dtype=np.int32),
        reads=steps.read,
        writes=steps.write,
    )


def _ordered_after(tasks: TaskTable) -> Edges:
    """Return edges to ordered sends and calls from ordered receives and calls in earlier rounds."""
    sends = np.flatnonzero(tasks.ordered & (tasks.op != Op.RECV))
    recvs = np.flatnonzero(tasks.ordered & (tasks.op != Op.SEND))
    n_rounds = int(tasks.round.max(initial=0)) + 1
    arrival = csr.joint_key(tasks.rank[recvs], tasks.round[recvs], n_rounds)
    order = np.argsort(arrival, kind="stable")
    rank = csr.joint_key(tasks.rank[sends], np.zeros_like(sends), n_rounds)
    first = np.searchsorted(arrival[order], rank)
    n = np.searchsorted(arrival[order], rank + tasks.round[sends]) - first
    before, after = recvs[order[csr.ranges(first, n)]], np.repeat(sends, n)
    return before, after, np.zeros(len(before), dtype=np.int8)


def _sent_in_turn(tasks: TaskTable) -> Edges:
    """Return edges to sends from those before them in their queues."""
    sends = np.flatnonzero((tasks.queue >= 0) & (tasks.op == Op.SEND))
    queue = np.stack((tasks.phase[sends], tasks.rank[sends], tasks.queue[sends]))
    order = np.lexsort(queue)
    follows = (np.diff(queue[:, order]) == 0).all(axis=0)
    before, after = sends[order[:-1]][follows], sends[order[1:]][follows]
    return before, after, np.full(len(before), INTENT, dtype=np.int8)


N_LANDINGS = 2
"""Minimum number of landing slots per rank: one is filled while the other is combined."""


@dataclass(frozen=True)
class Landing:
    """Memory in which messages are received, and the order of receives within a round.

    Parameters
    ----------
    landed : ndarray of bool, shape (n_messages,)
        Whether each message is received in a landing slot.
    received : Pieces
        Memory in which each message is received.
    recv_order : ndarray of int32, shape (n_messages,)
        Order of each receive within its round.
    arrival_order : ndarray of int64, shape (n_arrivals,)
        Order within its round of each copy or reduction of received data.
    last_order : int
        An order after all of these.
    buffer_sizes : ndarray of int64, shape (n_ranks, 3)
        Elements per buffer, including the landing slots in scratch.
    """

    landed: Bools
    received: Pieces
    recv_order: Ints
    arrival_order: Ints
    last_order: int
    buffer_sizes: Ints


def plan_landings(messages: MessageTable, buffer_sizes: Ints) -> Landing:
    """Decide where every message is received.

    A message is received in scratch if it would overwrite data that its receiver sends or combines
    in the same round. If it were received in place, it would have to wait for that send, and the
    two ranks could wait for each other.
    """
    landed = _must_land(messages)
    n_ranks = len(buffer_sizes)
    n_slots = _count_slots(messages, landed, n_ranks)
    received, sizes = _land(messages, landed, n_slots, buffer_sizes)
    arriving = np.flatnonzero(landed | messages.combining)
    index = csr.occurrence(csr.joint_key(messages.round, messages.dest, n_ranks)[arriving])
    # Arrival j of a rank in a round is combined at order 2j + 2. A receive that reuses the slot of
    # arrival j - n_slots comes right after that one is combined. All other receives come first.
    recv_order = np.ones(len(landed), dtype=np.int32)
    reused = 2 * (index - n_slots[messages.dest[arriving]]) + 3
    recv_order[arriving] = np.where(landed[arriving], np.maximum(1, reused), 1)
    last_order = 2 * int(index.max(initial=0)) + 3
    return Landing(landed, received, recv_order, 2 * index + 2, last_order, sizes)


def _must_land(messages: MessageTable) -> Bools:
    """Mark messages that would overwrite what their receiver reads in the same round."""
    if all(pieces.is_constant(table.repeat) for table in (messages.read, messages.write)):
        return _conflicts(messages, _whole)
    # There may be many strided blocks. Most often, the first block or the whole range of a piece
    # is enough to decide.
    landed = _conflicts(messages, _first)
    unclear = _conflicts(messages, _whole) & ~landed
    return landed | _conflicts(messages, Pieces.blocks, unclear) if unclear.any() else landed


Blocks = tuple[Ints, Ints, Ints, Ints]
"""Row, buffer, begin and end of contiguous blocks of memory."""


def _first(pieces: Pieces) -> Blocks:
    """Return the first block of every piece."""
    return pieces.owner, pieces.buffer, pieces.offset, pieces.offset + pieces.count


def _whole(pieces: Pieces) -> Blocks:
    """Return every piece as one block from its first to its last element, without gaps."""
    return pieces.owner, pieces.buffer, *pieces.hulls()


def _conflicts(
    messages: MessageTable, blocks_of: Callable[[Pieces], Blocks], among: Bools | None = None
) -> Bools:
    """Mark the messages that overlap data that their receiver reads in the same round.

    Parameters
    ----------
    messages : MessageTable
    blocks_of : callable
        Function that returns the blocks to compare.
    among : ndarray of bool, optional
        Messages to consider.
    """
    written = messages.write if among is None else messages.write.masked(among)
    is_written = np.zeros(len(Buffer), dtype=bool)
    is_written[written.buffer] = True
    row, buffer, low, high = blocks_of(written)
    writes = (messages.round[row], messages.dest[row], buffer, low, high)
    parts = []
    for table, rank in ((messages.read, messages.source), (messages.combine, messages.dest)):
        read = table.select(is_written[table.buffer])
        if among is not None:
            n_ranks = 1 + int(max(messages.source.max(), messages.dest.max()))
            at = csr.joint_key(messages.round, messages.dest, n_ranks)[among]
            read = read.masked(np.isin(csr.joint_key(messages.round, rank, n_ranks), at))
        reader, *place = blocks_of(read)
        parts.append((messages.round[reader], rank[reader], *place))
    reads = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    landed = np.zeros(len(messages.round), dtype=bool)
    for which in np.flatnonzero(np.bincount(buffer)):
        mine, theirs = writes[2] == which, reads[2] == which
        hit = _overlaps([c[mine] for c in writes], [c[theirs] for c in reads])
        landed[row[mine][hit]] = True
    return landed


def _overlaps(writes: list[Ints], reads: list[Ints]) -> Bools:
    """Mark writes that overlap a read of the same round and rank."""
    n_ranks = int(max(writes[1].max(initial=0), reads[1].max(initial=0))) + 1
    span = int(max(writes[4].max(initial=0), reads[4].max(initial=0))) + 1
    n_rounds = int(writes[0].max(initial=0)) + 1
    if n_rounds * n_ranks * span >= 2**62:
        # Round, rank and offset do not fit into one key. Only the order of the offsets matters.
        edges = np.unique(np.concatenate((*writes[3:], *reads[3:])))
        writes, reads = (
            [*side[:3], *(np.searchsorted(edges, end) for end in side[3:])]
            for side in (writes, reads)
        )
        span = len(edges) + 1
    # Offsets are smaller than `span`, so no access reaches into the keys of the next rank.
    home = csr.joint_key(reads[0], reads[1], n_ranks)
    low, high = union(csr.joint_key(home, reads[3], span), csr.joint_key(home, reads[4], span))
    home = csr.joint_key(writes[0], writes[1], n_ranks)
    before = np.searchsorted(low, csr.joint_key(home, writes[4], span)) - 1
    if not len(low):
        return before >= 0
    return (before >= 0) & (high[before] > csr.joint_key(home, writes[3], span))


def _count_slots(messages: MessageTable, landed: Bools, n_ranks: int) -> Ints:
    """Return the number of landing slots of every rank.

    A rank that also sends in a round has a slot for every message that lands in that round.
    Otherwise a receive could wait for a slot, thus for a reduction and for a send, and two ranks
    could wait for each other.
    """
    n_slots = np.full(n_ranks, N_LANDINGS)
    homes = np.sort(csr.joint_key(messages.round, messages.dest, n_ranks)[landed])
    bounds = csr.run_bounds(homes)
    counts = csr.lengths_of(bounds)
    many = np.flatnonzero(counts > N_LANDINGS)
    if len(many):
        homes, counts = homes[bounds[many]], counts[many]
        sends_too = np.isin(homes, csr.joint_key(messages.round, messages.source, n_ranks))
        np.maximum.at(n_slots, homes[sends_too] % n_ranks, counts[sends_too])
    return n_slots


def _land(
    messages: MessageTable, landed: Bools, n_slots: Ints, buffer_sizes: Ints
) -> tuple[Pieces, Ints]:
    """Return the memory in which messages are received, and buffer sizes with landing slots."""
    rows = np.flatnonzero(landed)
    sizes = buffer_sizes.copy()
    if not len(rows):
        return messages.write, sizes
    rank, elements = messages.dest[rows], messages.write.elements[rows]
    slot_size = np.zeros(len(sizes), dtype=np.int64)
    np.maximum.at(slot_size, rank, elements)
    slot = csr.occurrence(rank) % n_slots[rank]
    offset = sizes[rank, Buffer.SCRATCH] + slot * slot_size[rank]
    places = pieces.one_each(Buffer.SCRATCH, offset, elements)
    n_used = np.minimum(np.bincount(rank, minlength=len(sizes)), n_slots)
    sizes[:, Buffer.SCRATCH] += n_used * slot_size
    return pieces.replaced(messages.write, rows, places), sizes


def arrivals(messages: MessageTable, landing: Landing) -> LocalTable:
    """Return the copies and reductions that follow the receipt of messages."""
    rows = np.flatnonzero(landing.landed | messages.combining)
    n = len(rows)
    none = np.full(n, NONE, dtype=np.int32)
    operands = pieces.stack((landing.received.take(rows), messages.combine.take(rows)))
    left = np.where(messages.incoming_left[rows], np.arange(n), n + np.arange(n))
    in_order = np.column_stack((left, (left + n) % (2 * n) if n else left)).ravel()
    both = operands.take(in_order).merged(np.arange(0, 2 * n + 1, 2))
    return LocalTable(
        phase=messages.phase[rows],
        round=messages.round[rows],
        rank=messages.dest[rows],
        op=np.where(messages.combining[rows], Op.REDUCE, Op.COPY).astype(np.int8),
        peer=none,
        tag=none,
        read=both,
        write=messages.write.take(rows),
    )
