"""Messages and copies of an exchange, for all ranks or for those of one node.

A node's shared buffer begins with what its ranks send: each rank's send
buffer as it is, one after another. What its leaders receive comes behind,
step by step, and in a step leader by leader, a row a source rank::

    node 1 of 3, two ranks each, blocks "source>destination":
      0: 2>0 2>1 2>2 2>3 2>4 2>5 | 3>0 3>1 3>2 3>3 3>4 3>5     what is sent
     12: 0>2 0>3 | 1>2 1>3                                     step 1, from node 0
     16: 4>2 4>3 | 5>2 5>3                                     step 2, from node 2

So a rank copies a column of each step's block out, and a message of one
source rank is a row. Where messages are coalesced, what is sent lies message by
message, and behind that what stays on the node::

      0: 2>0 2>1 3>0 3>1 | 2>4 2>5 3>4 3>5 | 2>2 2>3 3>2 3>3
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.csr import running_total
from collplan.planner.blueprint.exchange import Exchange
from collplan.planner.lowering.coalesced import Coalesced
from collplan.planner.lowering.lower import LocalTable, MessageTable
from collplan.planner.plan import pieces as csr
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer, Op

STAGE, TRANSFER, DELIVER = 0, 1, 2
PHASES = (
    Phase("stage", "copy", "node"),
    Phase("alltoall", "pairwise", "lane"),
    Phase("deliver", "copy", "node"),
)
"""The phases of an exchange."""


def exchange_tables(
    exchange: Exchange, rank_node: Ints, n_nodes: int, only_rank: int | None = None
) -> tuple[MessageTable, LocalTable, Ints]:
    """Return what an exchange sends and copies, in program order.

    Parameters
    ----------
    exchange : Exchange
    rank_node : ndarray, shape (n_ranks,)
    n_nodes : int
    only_rank : int, optional
        Leave out what doesn't concern this rank's node.

    Returns
    -------
    messages : MessageTable
    copies : LocalTable
    shared_sizes : ndarray of int64, shape (n_nodes,)
        Elements of every node's shared buffer.
    """
    writer = _Writer(exchange, None if only_rank is None else int(rank_node[only_rank]), rank_node)
    sizes = np.zeros(n_nodes, dtype=np.int64)
    if exchange.count:
        sizes[writer.node] = writer.sent_sizes + writer.received_sizes
    return writer.messages(), writer.copies(), sizes


@dataclass(frozen=True, eq=False)
class _Blocks:
    """What one node sends another in one step, split in parts: one entry a part that has ranks.

    In order of steps, then receiving nodes, then parts; `first` is the first
    message of each, a message a rank of the source.
    """

    step: Ints
    source: Ints
    dest: Ints
    part: Ints
    team: Ints
    first: Ints
    offset: Ints


class _Writer:
    def __init__(self, exchange: Exchange, node: int | None, rank_node: Ints) -> None:
        self.exchange = exchange
        self.node = rank_node[[row[0] for row in exchange.rows]]
        self.is_kept = np.ones(exchange.n_rows, dtype=bool) if node is None else self.node == node
        self.n_ranks = len(rank_node)
        self.sent_sizes = np.where(
            exchange.stages, exchange.sizes * self.n_ranks * exchange.count, 0
        )

    @cached_property
    def blocks(self) -> _Blocks:
        """All blocks, with where they begin in the shared buffer of the node that receives them."""
        exchange = self.exchange
        n, teams = exchange.n_rows, exchange.team_sizes()
        step = np.repeat(np.arange(1, n), n)
        dest = np.tile(np.arange(n), max(0, n - 1))
        number, part = np.nonzero(teams[dest] > 0)
        step, dest = step[number], dest[number]
        source, team = exchange.source(dest, step), teams[dest, part]
        size = exchange.sizes[source] * team * exchange.count
        size[exchange.is_direct[dest]] = 0
        by_dest = np.argsort(dest, kind="stable")
        ends = running_total(size[by_dest])
        offset = np.empty_like(size)
        begins = np.searchsorted(dest[by_dest], np.arange(n))
        offset[by_dest] = ends[:-1] - ends[begins][dest[by_dest]]
        offset += self.sent_sizes[dest]
        first = running_total(exchange.sizes[source])
        return _Blocks(step, source, dest, part, team, first, offset)

    @cached_property
    def received_sizes(self) -> Ints:
        """Elements every node receives into its shared buffer."""
        blocks, exchange = self.blocks, self.exchange
        size = exchange.sizes[blocks.source] * blocks.team * exchange.count
        total = np.bincount(blocks.dest, size, exchange.n_rows).astype(np.int64)
        return np.where(exchange.is_direct, 0, total)

    def messages(self) -> MessageTable:
        """Return the messages of every block: one a rank of the source, or one."""
        exchange, blocks, count = self.exchange, self.blocks, self.exchange.count
        touches = self.is_kept[blocks.source] | self.is_kept[blocks.dest]
        touched = np.flatnonzero(touches if count else np.zeros_like(touches))
        n_each = np.where(self.is_remapped, 1, exchange.sizes)[blocks.source[touched]]
        block = np.repeat(touched, n_each)
        place = np.arange(len(block)) - np.repeat(running_total(n_each)[:-1], n_each)
        source, dest = blocks.source[block], blocks.dest[block]
        step, part, team = blocks.step[block], blocks.part[block], blocks.team[block]
        read = self._served.take(dest * exchange.n_parts + part)
        stages = exchange.stages[source]
        read = _moved(
            read, np.where(stages, place * self.n_ranks * count, 0), _home(stages, Buffer.SEND)
        )
        sender = exchange.ranks[exchange.first[source] + place]
        is_direct = exchange.is_direct[dest]
        offset = np.where(is_direct, sender * count, blocks.offset[block] + place * team * count)
        write = _rows(_home(~is_direct, Buffer.RECV), offset, team * count)
        if exchange.is_coalesced and not exchange.is_remapped:
            # Out of the rows as they were staged: an extent each, unless they follow a pattern.
            bounds = running_total(n_each)
            read = csr.compress(Pieces(read.indptr[bounds], *read.columns()))
            write = csr.compress(Pieces(write.indptr[bounds], *write.columns()))
            source, dest, step, part = (c[bounds[:-1]] for c in (source, dest, step, part))
        joined = np.flatnonzero(self.is_remapped[source])
        if len(joined):
            size = (exchange.sizes[source] * team)[joined] * count
            low = self._sent.begin(source[joined], (dest * exchange.n_parts + part)[joined])
            shared = np.full(len(joined), Buffer.SHARED, dtype=np.int8)
            read = csr.replaced(read, joined, _rows(shared, low * count, size))
            landed = _rows(shared, blocks.offset[block[joined]], size)
            into = np.flatnonzero(is_direct[joined])
            own = csr.replaced(landed, into, self._own.take(source[joined[into]]))
            write = csr.replaced(write, joined, own)
        none = np.zeros(len(source), dtype=bool)
        return MessageTable(
            phase=np.full(len(source), TRANSFER, dtype=np.int16),
            round=step.astype(np.int32),
            source=exchange.leader(source, step, part).astype(np.int32),
            dest=exchange.leader(dest, step, part).astype(np.int32),
            incoming_left=none,
            combining=none,
            ordered=none,
            read=read,
            write=write,
            combine=csr.empty(len(source)),
        )

    @cached_property
    def is_remapped(self) -> Bools:
        """Nodes of which several ranks' blocks are one message, and lie together."""
        exchange = self.exchange
        return exchange.stages & (exchange.sizes > 1) & exchange.is_remapped

    @cached_property
    def _sent(self) -> Coalesced:
        return Coalesced.of(self.exchange, self.n_ranks)

    @cached_property
    def _served(self) -> Pieces:
        """Where in a send buffer the blocks of those lie whom each part of a node serves."""
        exchange = self.exchange
        row = np.repeat(np.arange(exchange.n_rows), exchange.sizes)
        place = np.arange(self.n_ranks) - exchange.first[row]
        part = place % exchange.n_leaders[row] if exchange.n_parts > 1 else 0 * place
        return self._blocks_of(row * exchange.n_parts + part, exchange.n_rows * exchange.n_parts)

    @cached_property
    def _own(self) -> Pieces:
        """Where in a caller's buffer the blocks of every node's ranks lie."""
        exchange = self.exchange
        return self._blocks_of(
            np.repeat(np.arange(exchange.n_rows), exchange.sizes), exchange.n_rows
        )

    def _blocks_of(self, group: Ints, n_groups: int) -> Pieces:
        order = np.argsort(group, kind="stable")
        ranks = self.exchange.ranks[order]
        indptr = running_total(np.bincount(group, minlength=n_groups))
        buffer = np.full(len(ranks), Buffer.RECV, dtype=np.int8)
        count = self.exchange.count
        return csr.contiguous(indptr, buffer, ranks * count, np.full(len(ranks), count))

    def copies(self) -> LocalTable:
        """Return what ranks stage, and what they copy out: own blocks, then step by step."""
        exchange = self.exchange
        if exchange.count == 0:
            nothing = np.zeros(0, dtype=np.int64)
            return self._table(nothing, nothing, nothing, csr.empty(0), csr.empty(0))
        parts = [self._staging(), self._own_copies(), self._deliveries()]
        if not exchange.is_overlapped:
            parts[1:] = [_at_once(parts[1], parts[2], last=exchange.n_rows)]
        phase, round, rank, read, write = zip(*parts, strict=True)
        columns = [np.concatenate(column) for column in (phase, round, rank)]
        return self._table(columns[0], columns[1], columns[2], csr.stack(read), csr.stack(write))

    def _table(
        self, phase: Ints, round: Ints, rank: Ints, read: Pieces, write: Pieces
    ) -> LocalTable:
        return LocalTable(
            phase.astype(np.int16),
            round.astype(np.int32),
            rank.astype(np.int32),
            np.full(len(rank), Op.COPY, dtype=np.int8),
            read,
            write,
        )

    def _entries(self, row: Ints) -> tuple[Ints, Ints]:
        """Return the ranks of the given nodes: which entry of `row` each is of, and its place."""
        sizes = self.exchange.sizes[row]
        entry = np.repeat(np.arange(len(row)), sizes)
        return entry, np.arange(len(entry)) - running_total(sizes)[:-1][entry]

    def _staging(self) -> _Copies:
        """Every rank's send buffer, in one copy."""
        exchange, count = self.exchange, self.exchange.count
        row = np.flatnonzero(self.is_kept & exchange.stages)
        entry, place = self._entries(row)
        rank, n = exchange.ranks[exchange.first[row[entry]] + place], len(entry)
        whole, zero = np.full(n, self.n_ranks * count), np.zeros(n, dtype=np.int64)
        kind = Buffer.RECV if exchange.is_in_place else Buffer.SEND
        read = _rows(np.full(n, kind, dtype=np.int8), zero, whole)
        write = _rows(np.full(n, Buffer.SHARED, dtype=np.int8), place * whole, whole)
        if self.is_remapped[row].any():
            parts = [write.take(np.flatnonzero(~self.is_remapped[row[entry]]))]
            parts += [self._sent.staged(one, count) for one in row[self.is_remapped[row]]]
            stacked = np.argsort(self.is_remapped[row[entry]], kind="stable")
            write = csr.stack(parts).take(np.argsort(stacked))
        return np.full(n, STAGE), zero, rank, read, write

    def _own_copies(self) -> _Copies:
        """What ranks of a node have for each other: a column of what is sent."""
        exchange, count = self.exchange, self.exchange.count
        row = np.flatnonzero(self.is_kept)
        entry, place = self._entries(row)
        row, n = row[entry], len(entry)
        rank = exchange.ranks[exchange.first[row] + place]
        stages = exchange.stages[row]
        read = Pieces(
            np.arange(n + 1),
            _home(stages, Buffer.SEND),
            rank * count,
            np.full(n, count),
            *_repeats(self.n_ranks * count, exchange.sizes[row]),
        )
        joined = np.flatnonzero(self.is_remapped[row])
        if len(joined):
            own = [self._sent.own(one, count) for one in np.unique(row[joined])]
            read = csr.replaced(read, joined, csr.stack(own))
        write = self._own.take(row)
        return np.full(n, DELIVER), np.ones(n, dtype=np.int64), rank, read, write

    def _deliveries(self) -> _Copies:
        """What came from other nodes: a column of each block, as soon as it is there."""
        exchange, blocks, count = self.exchange, self.blocks, self.exchange.count
        kept = np.flatnonzero(self.is_kept[blocks.dest] & ~exchange.is_direct[blocks.dest])
        entry = np.repeat(kept, blocks.team[kept])
        member = np.arange(len(entry)) - np.repeat(
            running_total(blocks.team[kept])[:-1], blocks.team[kept]
        )
        row, step, team = blocks.dest[entry], blocks.step[entry], blocks.team[entry]
        stride = exchange.n_leaders[row] if exchange.n_parts > 1 else 1
        place = blocks.part[entry] + member * stride
        rank = exchange.ranks[exchange.first[row] + place]
        n = len(entry)
        read = Pieces(
            np.arange(n + 1),
            np.full(n, Buffer.SHARED, dtype=np.int8),
            blocks.offset[entry] + member * count,
            np.full(n, count),
            *_repeats(team * count, exchange.sizes[blocks.source[entry]]),
        )
        write = self._own.take(blocks.source[entry])
        return np.full(n, DELIVER), step + 1, rank, csr.without_gapless(read), write


_Copies = tuple[Ints, Ints, Ints, Pieces, Pieces]
"""Phase, round, rank, and what is read and written."""


def _at_once(own: _Copies, later: _Copies, last: int) -> _Copies:
    """Join a rank's copies to one, in the last round."""
    rank = np.concatenate((own[2], later[2]))
    order = np.argsort(rank, kind="stable")
    ranks, n = np.unique(rank, return_counts=True)
    sides = []
    for one, other in ((own[3], later[3]), (own[4], later[4])):
        joined = csr.stack((one, other)).take(order)
        sides.append(csr.compress(Pieces(joined.indptr[running_total(n)], *joined.columns())))
    phase = np.full(len(ranks), DELIVER)
    return phase, np.full(len(ranks), last), ranks, sides[0], sides[1]


def _home(is_shared: Bools, otherwise: Buffer) -> Ints:
    return np.where(is_shared, Buffer.SHARED, otherwise).astype(np.int8)


def _rows(buffer: Ints, offset: Ints, count: Ints) -> Pieces:
    return csr.contiguous(np.arange(len(offset) + 1), buffer, offset, count)


def _repeats(stride: Ints | int, repeat: Ints) -> tuple[Ints, Ints]:
    return np.where(repeat > 1, stride, 0), repeat


def _moved(pieces: Pieces, by: Ints, buffer: Ints) -> Pieces:
    """Return pieces in other buffers, each row's `by` further on."""
    owner = pieces.owner
    _, offset, *rest = pieces.columns()
    return Pieces(pieces.indptr, buffer[owner], offset + by[owner], *rest)
