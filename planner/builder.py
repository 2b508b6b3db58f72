"""From messages and local steps to tasks: rows, columns, landing places, dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from planner import pieces as csr
from planner.chunks import Ints
from planner.hazards import derive_dependencies
from planner.lowering import Bools, LocalTable, MessageTable
from planner.pieces import Pieces, running_total
from planner.plan import NONE, Buffer, Op, Plan
from planner.streams import Edges, chain_streams, join_edges, number_messages, occurrence

if TYPE_CHECKING:
    from planner.plan import IntArray
    from specs import Machine, PlanSpec

N_LANDINGS = 2
"""Landing slots a rank has at least: one fills while the other is combined."""


@dataclass(frozen=True)
class Placement:
    """Where ranks live, as arrays by rank."""

    node: IntArray
    lane: IntArray
    core: IntArray
    n_nodes: int

    @classmethod
    def of(cls, machine: Machine) -> Placement:
        """Return the placement a machine spec describes."""
        return cls(
            node=np.array(machine.rank_to_node, dtype=np.int32),
            lane=np.array(machine.rank_to_lane, dtype=np.int16),
            core=np.array(machine.rank_to_core, dtype=np.int32),
            n_nodes=machine.nodes,
        )


@dataclass
class TaskTable:
    """Tasks in any order, one row each, as passes and the builder hold them.

    `order` sorts rows within a round: sends, receives and what follows from
    their arrival, then local steps.
    """

    op: IntArray
    order: IntArray
    round: IntArray
    rank: IntArray
    peer: IntArray
    tag: IntArray
    stream: IntArray
    reads: Pieces
    writes: Pieces

    @classmethod
    def stack(cls, tables: list[TaskTable]) -> TaskTable:
        """Return the rows of all tables, one table after another."""
        names = list(vars(tables[0]))
        columns = {name: [getattr(table, name) for table in tables] for name in names}
        stacked: dict[str, Any] = {
            name: csr.stack(parts) if isinstance(parts[0], Pieces) else np.concatenate(parts)
            for name, parts in columns.items()
        }
        return cls(**stacked)

    def take(self, rows: IntArray) -> TaskTable:
        """Return the given rows, in the given order."""
        taken: dict[str, Any] = {
            name: column.take(rows) if isinstance(column, Pieces) else column[rows]
            for name, column in vars(self).items()
        }
        return TaskTable(**taken)


def build(
    messages: MessageTable,
    steps: LocalTable,
    placement: Placement,
    buffer_sizes: Ints,
    spec: PlanSpec,
    only_rank: int | None = None,
) -> Plan:
    """Build the plan of one component.

    Rows are ordered by round; within a round all sends, then all receives,
    then local steps. A message that would overwrite what its receiver still
    sends or combines in the same round lands in scratch. A rank that only
    receives makes do with a few landing slots: its later receives come after
    the combinations that empty them.

    Parameters
    ----------
    messages, steps : MessageTable, LocalTable
        What `lower` returned.
    placement : Placement
        Where ranks live.
    buffer_sizes : ndarray of int64, shape (n_ranks, 3)
        Elements of the buffers; scratch grows by the landing slots.
    spec : PlanSpec
        Kept with the plan.
    only_rank : int, optional
        Build this rank's rows only.
    """
    tag, stream = number_messages(messages.source, messages.dest, len(placement.node))
    landing = _plan_landings(messages, buffer_sizes)
    arrivals = _arrivals(messages, landing)
    sending = _rows_of(messages.source, only_rank)
    receiving = _rows_of(messages.dest, only_rank)
    arriving = _rows_of(arrivals.rank, only_rank)
    tables = [
        _message_tasks(Op.SEND, messages, tag, stream, messages.read, sending),
        _message_tasks(Op.RECV, messages, tag, stream, landing.received, receiving),
        _local_tasks(arrivals, landing.arrival_order).take(arriving),
        _local_tasks(steps, np.full(len(steps.rank), landing.last_order)),
    ]
    tables[1].order = landing.recv_order[receiving]
    tasks = TaskTable.stack(tables)
    place = tasks.round.astype(np.int64) * (landing.last_order + 1) + tasks.order
    by_row = np.argsort(place, kind="stable")
    row_of = np.empty_like(by_row)
    row_of[by_row] = np.arange(len(by_row))
    intents = _ordered_after(
        messages, sending, receiving, row_of[: len(sending)], row_of[len(sending) :]
    )
    return assemble(tasks.take(by_row), placement, landing.buffer_sizes, spec, only_rank, intents)


def assemble(
    tasks: TaskTable,
    placement: Placement,
    buffer_sizes: Ints,
    spec: PlanSpec | None,
    only_rank: int | None = None,
    intents: Edges | None = None,
) -> Plan:
    """Give tasks in row order their places, lanes, priorities and dependencies.

    `intents` are edges (before, after, kind) between rows that are kept
    beside the hazards; messages of one stream are chained by their starts.
    """
    is_message = tasks.op <= Op.RECV
    peer = np.where(is_message, tasks.peer, tasks.rank)
    dest = np.where(tasks.op == Op.SEND, peer, tasks.rank)
    crosses = placement.node[tasks.rank] != placement.node[peer]
    chains = chain_streams(tasks.op, tasks.rank, tasks.peer, tasks.stream)
    if intents is not None:
        chains = join_edges(chains, intents)
    reads, writes, patterns = csr.to_extents(tasks.reads, tasks.writes)
    n = len(tasks.op)
    return Plan(
        op=tasks.op,
        rank=tasks.rank,
        peer=tasks.peer,
        tag=tasks.tag,
        node=placement.node[tasks.rank],
        lane=np.where(crosses, placement.lane[dest], NONE),
        core=placement.core[tasks.rank],
        phase=np.zeros(n, dtype=np.int16),
        round=tasks.round,
        stream=tasks.stream,
        priority=np.where(crosses, 0, 1),
        stage=np.ones(n, dtype=np.int8),
        duration_ns=np.zeros(n, dtype=np.int64),
        reads=reads,
        writes=writes,
        deps=derive_dependencies(tasks.rank, tasks.reads, tasks.writes, placement.node, chains),
        patterns=patterns,
        buffer_sizes=buffer_sizes,
        shared_sizes=np.zeros(placement.n_nodes, dtype=np.int64),
        rank_node=placement.node,
        rank_lane=placement.lane,
        rank_core=placement.core,
        itemsize=1 if spec is None else spec.collective.itemsize,
        spec=spec,
        only_rank=only_rank,
    )


def _rows_of(rank: Ints, only_rank: int | None) -> Ints:
    return np.arange(len(rank)) if only_rank is None else np.flatnonzero(rank == only_rank)


def _message_tasks(
    op: Op, messages: MessageTable, tag: Ints, stream: Ints, extents: Pieces, rows: Ints
) -> TaskTable:
    n = len(rows)
    own, other = messages.source[rows], messages.dest[rows]
    if op is Op.RECV:
        own, other = other, own
    moved, nothing = extents.take(rows), csr.empty(n)
    return TaskTable(
        op=np.full(n, op, dtype=np.int8),
        order=np.zeros(n, dtype=np.int32),
        round=messages.round[rows],
        rank=own,
        peer=other,
        tag=tag[rows],
        stream=stream[rows],
        reads=moved if op is Op.SEND else nothing,
        writes=nothing if op is Op.SEND else moved,
    )


def _local_tasks(steps: LocalTable, order: Ints) -> TaskTable:
    none = np.full(len(steps.rank), NONE, dtype=np.int32)
    return TaskTable(
        op=steps.op,
        order=order,
        round=steps.round,
        rank=steps.rank,
        peer=none,
        tag=none,
        stream=none,
        reads=steps.read,
        writes=steps.write,
    )


def _must_land(messages: MessageTable) -> Bools:
    """Mark messages that would overwrite what their receiver reads in the same round."""
    n = len(messages.round)
    row, buffer, low, high = messages.write.blocks()
    writes = (messages.round[row], messages.dest[row], buffer, low, high)
    parts = []
    for table, rank in ((messages.read, messages.source), (messages.combine, messages.dest)):
        reader, *place = table.blocks()
        parts.append((messages.round[reader], rank[reader], *place))
    reads = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    landed = np.zeros(n, dtype=bool)
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
    assert n_rounds * n_ranks * span < 2**62, "round, rank and offset must fit one key"
    home = _home(reads[0], reads[1], n_ranks) * span
    low = home + reads[3]
    order = np.argsort(low, kind="stable")
    # No read reaches into the next rank's keys, so the running maximum needs no reset.
    reach = np.maximum.accumulate((home + reads[4])[order])
    target = _home(writes[0], writes[1], n_ranks) * span
    before = np.searchsorted(low[order], target + writes[4]) - 1
    return (before >= 0) & (reach[before] > target + writes[3]) if len(reach) else before >= 0


@dataclass(frozen=True)
class _Landing:
    """Where messages are received, and when within their round.

    Parameters
    ----------
    landed : ndarray of bool, shape (n_messages,)
        Which messages land in scratch first.
    received : Pieces
        Where every message is received.
    recv_order, arrival_order : ndarray of int64
        Place within the round: of every receive, and of every copy or
        reduction that follows an arrival.
    last_order : int
        A place after all of those.
    buffer_sizes : ndarray of int64, shape (n_ranks, 3)
        With the landing slots in scratch.
    """

    landed: Bools
    received: Pieces
    recv_order: Ints
    arrival_order: Ints
    last_order: int
    buffer_sizes: Ints


def _plan_landings(messages: MessageTable, buffer_sizes: Ints) -> _Landing:
    landed = _must_land(messages)
    n_ranks = len(buffer_sizes)
    n_slots = _count_slots(messages, landed, n_ranks)
    received, sizes = _land(messages, landed, n_slots, buffer_sizes)
    arriving = np.flatnonzero(landed | messages.combining)
    index = occurrence(_home(messages.round, messages.dest, n_ranks)[arriving])
    # Arrival j of a rank is combined at 2j + 2; a receive that needs the slot of
    # arrival j - n_slots comes right after that, the others come first.
    recv_order = np.ones(len(landed), dtype=np.int32)
    reused = 2 * (index - n_slots[messages.dest[arriving]]) + 3
    recv_order[arriving] = np.where(landed[arriving], np.maximum(1, reused), 1)
    last_order = 2 * int(index.max(initial=0)) + 3
    return _Landing(landed, received, recv_order, 2 * index + 2, last_order, sizes)


def _home(number: IntArray, rank: IntArray, n_ranks: int) -> Ints:
    """Return one key for a round and a rank."""
    return number.astype(np.int64) * n_ranks + rank


def _count_slots(messages: MessageTable, landed: Bools, n_ranks: int) -> Ints:
    """Return the landing slots of every rank.

    A rank that sends in the round, too, has one for every landing of it: if a
    receive waited for a slot, and so for a combination that waits for a send,
    two ranks could wait for each other.
    """
    n_slots = np.full(n_ranks, N_LANDINGS)
    homes, counts = np.unique(
        _home(messages.round, messages.dest, n_ranks)[landed], return_counts=True
    )
    sends_too = np.isin(homes, _home(messages.round, messages.source, n_ranks))
    np.maximum.at(n_slots, homes[sends_too] % n_ranks, counts[sends_too])
    return n_slots


def _land(
    messages: MessageTable, landed: Bools, n_slots: Ints, buffer_sizes: Ints
) -> tuple[Pieces, Ints]:
    """Return where every message is received, and the buffer sizes with landing slots."""
    rows = np.flatnonzero(landed)
    sizes = buffer_sizes.copy()
    if not len(rows):
        return messages.write, sizes
    rank, elements = messages.dest[rows], messages.write.elements[rows]
    slot_size = np.zeros(len(sizes), dtype=np.int64)
    np.maximum.at(slot_size, rank, elements)
    slot = occurrence(rank) % n_slots[rank]
    places = csr.contiguous(
        np.arange(len(rows) + 1),
        np.full(len(rows), Buffer.SCRATCH, dtype=np.int8),
        sizes[rank, Buffer.SCRATCH] + slot * slot_size[rank],
        elements,
    )
    n_used = np.minimum(np.bincount(rank, minlength=len(sizes)), n_slots)
    sizes[:, Buffer.SCRATCH] += n_used * slot_size
    index = np.arange(len(landed))
    index[rows] = len(landed) + np.arange(len(rows))
    return csr.stack((messages.write, places)).take(index), sizes


def _arrivals(messages: MessageTable, landing: _Landing) -> LocalTable:
    """Return the copies and reductions that follow the receipt of messages."""
    rows = np.flatnonzero(landing.landed | messages.combining)
    n = len(rows)
    operands = csr.stack((landing.received.take(rows), messages.combine.take(rows)))
    left = np.where(messages.incoming_left[rows], np.arange(n), n + np.arange(n))
    in_order = np.column_stack((left, (left + n) % (2 * n) if n else left)).ravel()
    both = operands.take(in_order)
    return LocalTable(
        round=messages.round[rows],
        rank=messages.dest[rows],
        op=np.where(messages.combining[rows], Op.REDUCE, Op.COPY).astype(np.int8),
        read=Pieces(both.indptr[::2], *both.columns()),
        write=messages.write.take(rows),
    )


def _ordered_after(
    messages: MessageTable, sending: Ints, receiving: Ints, send_row: Ints, recv_row: Ints
) -> Edges:
    """Make every ordered send wait for what its rank received in earlier rounds."""
    send_row = send_row[messages.ordered[sending]]
    sending = sending[messages.ordered[sending]]
    is_ordered = messages.ordered[receiving]
    recv_row = recv_row[: len(receiving)][is_ordered]
    receiving = receiving[is_ordered]
    n_rounds = int(messages.round.max(initial=0)) + 1
    arrival = _home(messages.dest[receiving], messages.round[receiving], n_rounds)
    order = np.argsort(arrival, kind="stable")
    rank = _home(messages.source[sending], np.zeros_like(sending), n_rounds)
    first = np.searchsorted(arrival[order], rank)
    n = np.searchsorted(arrival[order], rank + messages.round[sending]) - first
    starts = running_total(n)
    index = np.repeat(first - starts[:-1], n) + np.arange(starts[-1])
    before, after = recv_row[order[index]], np.repeat(send_row, n)
    return before, after, np.zeros(len(before), dtype=np.int8)
