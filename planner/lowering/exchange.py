"""Messages and copies of an exchange, for all ranks or for those of one node.

The shared buffer of a node begins with the send buffers of its ranks, one after another. The
data that its leaders receive follow by step, within a step by leader, with a row per source rank::

    node 1 of 3, two ranks each, blocks "source>destination":
      0: 2>0 2>1 2>2 2>3 2>4 2>5 | 3>0 3>1 3>2 3>3 3>4 3>5     data to send
     12: 0>2 0>3 | 1>2 1>3                                     step 1, from node 0
     16: 4>2 4>3 | 5>2 5>3                                     step 2, from node 2

So a rank copies a column of each step's block, and a message of one source rank is a row. If
messages are coalesced, the data to send are sorted by message, followed by the data that stay on
the node::

      0: 2>0 2>1 3>0 3>1 | 2>4 2>5 3>4 3>5 | 2>2 2>3 3>2 3>3
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.blueprint.exchange import Exchange, NodeBlocks
from collplan.planner.lowering.tables import LocalTable, MessageTable, Tables
from collplan.planner.plan import pieces
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import NONE, Buffer, Op

STAGE, TRANSFER, DELIVER = 0, 1, 2
PHASES = (
    Phase("stage", "copy", "node"),
    Phase("alltoall", "pairwise", "lane"),
    Phase("deliver", "copy", "node"),
)
"""The phases of an exchange."""


def exchange_tables(
    exchange: Exchange,
    rank_node: Ints,
    n_nodes: int,
    only_ranks: Sequence[int] | None = None,
) -> Tables:
    """Return the messages and copies of an exchange, in program order.

    Parameters
    ----------
    exchange : Exchange
    rank_node : ndarray, shape (n_ranks,)
    n_nodes : int
    only_ranks : sequence of int, optional
        Omit messages and copies of nodes without these ranks.
    """
    return _ExchangeWriter(exchange, rank_node, only_ranks).tables(n_nodes)


class Writer(ABC):
    """Base class of writers of messages and copies, which differ in the layout of blocks.

    Parameters are those of `exchange_tables`.
    """

    def __init__(
        self, exchange: Exchange, rank_node: Ints, only_ranks: Sequence[int] | None
    ) -> None:
        self.exchange, self.rank_node = exchange, rank_node
        self.node = rank_node[[row[0] for row in exchange.rows]]
        kept = rank_node if only_ranks is None else rank_node[list(only_ranks)]
        self.is_kept = np.isin(self.node, kept)

    def tables(self, n_nodes: int) -> Tables:
        """Return all messages and copies, and the sizes of the nodes' shared buffers."""
        sizes = np.zeros(n_nodes, dtype=np.int64)
        if self.exchange.count:
            sizes[self.node] = self.sent_sizes + self.received_sizes
        nothing = np.zeros_like(self.rank_node)
        return Tables(self.messages(), self.copies(), nothing, sizes, PHASES)

    def copies(self) -> LocalTable:
        """Return the copies of ranks to shared memory, then those from it, own blocks first."""
        parts = [self._staging(), self._own_copies(), self._deliveries()]
        if not self.exchange.is_overlapped:
            parts[1:] = [at_once(LocalTable.stack(parts[1:]), last=self.exchange.n_rows)]
        return LocalTable.stack(parts)

    def transfers(
        self, step: Ints, sender: Ints, receiver: Ints, read: Pieces, write: Pieces
    ) -> MessageTable:
        """Return messages between leaders, which are given as indices of `Exchange.ranks`."""
        ranks, none = self.exchange.ranks, np.zeros(len(step), dtype=bool)
        return MessageTable(
            phase=np.full(len(step), TRANSFER, dtype=np.int16),
            round=step.astype(np.int32),
            source=ranks[sender].astype(np.int32),
            dest=ranks[receiver].astype(np.int32),
            incoming_left=none,
            combining=none,
            ordered=none,
            queue=np.full(len(step), NONE, dtype=np.int32),
            read=read,
            write=write,
            combine=pieces.empty(len(step)),
        )

    @property
    @abstractmethod
    def sent_sizes(self) -> Ints:
        """Return the elements of every node's shared buffer for data to send."""

    @property
    @abstractmethod
    def received_sizes(self) -> Ints:
        """Return the elements that every node receives into its shared buffer."""

    @abstractmethod
    def messages(self) -> MessageTable:
        """Return the messages of every block: one per rank of the source node, or one in all."""

    @abstractmethod
    def _staging(self) -> LocalTable:
        """Return the copies of data to send into the node's shared buffer."""

    @abstractmethod
    def _own_copies(self) -> LocalTable:
        """Return copies between ranks of one node."""

    @abstractmethod
    def _deliveries(self) -> LocalTable:
        """Return copies of blocks from other nodes, in the round after each block arrives."""


class _ExchangeWriter(Writer):
    def __init__(
        self, exchange: Exchange, rank_node: Ints, only_ranks: Sequence[int] | None
    ) -> None:
        super().__init__(exchange, rank_node, only_ranks)
        self.is_kept &= exchange.count > 0
        self.n_ranks = len(rank_node)

    @cached_property
    def sent_sizes(self) -> Ints:
        """Elements of every node's shared buffer for data to send."""
        exchange = self.exchange
        whole = exchange.sizes * self.n_ranks * exchange.count
        return np.where(exchange.stages, whole, 0)

    @cached_property
    def blocks(self) -> NodeBlocks:
        """Blocks that kept nodes send or receive."""
        return self.exchange.blocks_of(np.flatnonzero(self.is_kept), sent=True)

    @cached_property
    def _laid_out(self) -> tuple[NodeBlocks, Ints, Ints]:
        """Blocks with their offsets and sizes in the shared buffers of the nodes that receive them.

        If the exchange is even, only the blocks of node 0 are listed, as all nodes have the same
        layout.
        """
        exchange = self.exchange
        blocks = exchange.blocks_of(np.arange(1 if exchange.is_even else exchange.n_rows))
        size = exchange.sizes[blocks.source] * blocks.team * exchange.count
        size[exchange.is_direct[blocks.dest]] = 0
        return blocks, csr.group_offsets(blocks.dest, size), size

    @cached_property
    def offset(self) -> Ints:
        """Offset of every block in the shared buffer of the node that receives it."""
        exchange, blocks = self.exchange, self.blocks
        laid_out, offset, _ = self._laid_out

        def key(one: NodeBlocks) -> Ints:
            dest = 0 if exchange.is_even else one.dest
            return csr.joint_key(one.step * exchange.n_rows + dest, one.part, exchange.n_parts)

        return offset[np.searchsorted(key(laid_out), key(blocks))] + self.sent_sizes[blocks.dest]

    @property
    def received_sizes(self) -> Ints:
        """Elements that every node receives into its shared buffer."""
        n_rows = self.exchange.n_rows
        blocks, _, size = self._laid_out
        if self.exchange.is_even:
            return np.full(n_rows, size.sum())
        return np.bincount(blocks.dest, size, n_rows).astype(np.int64)

    def messages(self) -> MessageTable:
        """Return the messages of every block: one per rank of the source, or only one."""
        exchange, blocks, count = self.exchange, self.blocks, self.exchange.count
        block, place = csr.expand(np.where(self.is_remapped, 1, exchange.sizes)[blocks.source])
        step, source, dest, part, team, *ends = (column[block] for column in blocks)
        read = self._served.take(dest * exchange.n_parts + part)
        stages = exchange.stages[source]
        read = _moved(
            read, np.where(stages, place * self.n_ranks * count, 0), home(stages, Buffer.SEND)
        )
        sender = exchange.ranks[exchange.first[source] + place]
        is_direct = exchange.is_direct[dest]
        offset = np.where(is_direct, sender * count, self.offset[block] + place * team * count)
        write = pieces.one_each(home(~is_direct, Buffer.RECV), offset, team * count)
        if exchange.is_coalesced and not exchange.is_remapped:
            # The message reads one piece per row, unless the rows form a pattern.
            bounds = csr.running_total(np.bincount(block, minlength=len(blocks.source)))
            read, write = (pieces.compress(side.merged(bounds)) for side in (read, write))
            source, dest, step, part = (c[bounds[:-1]] for c in (source, dest, step, part))
            ends = [end[bounds[:-1]] for end in ends]
        joined = np.flatnonzero(self.is_remapped[source])
        if len(joined):
            size = (exchange.sizes[source] * team)[joined] * count
            low = self._sent.begin(source[joined], (dest * exchange.n_parts + part)[joined])
            sent = pieces.one_each(Buffer.SHARED, low * count, size)
            read = pieces.replaced(read, joined, sent)
            landed = pieces.one_each(Buffer.SHARED, self.offset[block[joined]], size)
            into = np.flatnonzero(is_direct[joined])
            own = pieces.replaced(landed, into, self._own.take(source[joined[into]]))
            write = pieces.replaced(write, joined, own)
        sender, receiver = ends
        return self.transfers(step, sender, receiver, read, write)

    @cached_property
    def is_remapped(self) -> Bools:
        """Nodes that send the blocks of several ranks as one contiguous message."""
        exchange = self.exchange
        return exchange.stages & (exchange.sizes > 1) & exchange.is_remapped

    @cached_property
    def _sent(self) -> _Coalesced:
        return _Coalesced.of(self.exchange, self.n_ranks)

    @cached_property
    def _served(self) -> Pieces:
        """Pieces of a send buffer with the blocks for each part of a node, a row per part."""
        exchange = self.exchange
        team = exchange.row * exchange.n_parts + exchange.part
        return self._blocks_of(team, exchange.n_rows * exchange.n_parts)

    @cached_property
    def _own(self) -> Pieces:
        """Pieces of a caller's buffer with the blocks of each node's ranks, a row per node."""
        return self._blocks_of(self.exchange.row, self.exchange.n_rows)

    def _blocks_of(self, group: Ints, n_groups: int) -> Pieces:
        order, indptr = csr.group_by(group, n_groups)
        return _blocks(Buffer.RECV, self.exchange.ranks[order], indptr, self.exchange.count)

    def _staging(self) -> LocalTable:
        """Return one copy of every rank's send buffer."""
        exchange, count = self.exchange, self.exchange.count
        row = np.flatnonzero(self.is_kept & exchange.stages)
        entry, place = csr.expand(exchange.sizes[row])
        rank, n = exchange.ranks[exchange.first[row[entry]] + place], len(entry)
        whole, zero = np.full(n, self.n_ranks * count), np.zeros(n, dtype=np.int64)
        kind = Buffer.RECV if exchange.is_in_place else Buffer.SEND
        read = pieces.one_each(kind, zero, whole)
        write = pieces.one_each(Buffer.SHARED, place * whole, whole)
        if self.is_remapped[row].any():
            parts = [write.take(np.flatnonzero(~self.is_remapped[row[entry]]))]
            parts += [self._sent.staged(one, count) for one in row[self.is_remapped[row]]]
            stacked = np.argsort(self.is_remapped[row[entry]], kind="stable")
            write = pieces.stack(parts).take(np.argsort(stacked))
        return copy_table(STAGE, zero, rank, read, write)

    def _own_copies(self) -> LocalTable:
        """Return copies between ranks of one node. Each reads one column of the data to send."""
        exchange, count = self.exchange, self.exchange.count
        row = np.flatnonzero(self.is_kept)
        entry, place = csr.expand(exchange.sizes[row])
        row, n = row[entry], len(entry)
        rank = exchange.ranks[exchange.first[row] + place]
        stages = exchange.stages[row]
        read = Pieces(
            np.arange(n + 1),
            home(stages, Buffer.SEND),
            rank * count,
            np.full(n, count),
            *_repeats(self.n_ranks * count, exchange.sizes[row]),
        )
        joined = np.flatnonzero(self.is_remapped[row])
        if len(joined):
            own = [self._sent.own(one, count) for one in np.unique(row[joined])]
            read = pieces.replaced(read, joined, pieces.stack(own))
        write = self._own.take(row)
        return copy_table(DELIVER, np.ones(n, dtype=np.int64), rank, read, write)

    def _deliveries(self) -> LocalTable:
        """Return copies of one column of each block, in the round after the block arrives."""
        exchange, blocks, count = self.exchange, self.blocks, self.exchange.count
        kept = np.flatnonzero(self.is_kept[blocks.dest] & ~exchange.is_direct[blocks.dest])
        entry, member, place = exchange.served(blocks, kept)
        step, team, n = blocks.step[entry], blocks.team[entry], len(entry)
        read = Pieces(
            np.arange(n + 1),
            np.full(n, Buffer.SHARED, dtype=np.int8),
            self.offset[entry] + member * count,
            np.full(n, count),
            *_repeats(team * count, exchange.sizes[blocks.source[entry]]),
        )
        write = self._own.take(blocks.source[entry])
        rank = exchange.ranks[place]
        return copy_table(DELIVER, step + 1, rank, pieces.without_gapless(read), write)


def at_once(copies: LocalTable, last: int) -> LocalTable:
    """Join the copies of each rank into one, in the last round."""
    copies = copies.take(np.argsort(copies.rank, kind="stable"))
    ranks, n = np.unique(copies.rank, return_counts=True)
    bounds = csr.running_total(n)
    read, write = (pieces.compress(side.merged(bounds)) for side in (copies.read, copies.write))
    return copy_table(DELIVER, np.full(len(ranks), last), ranks, read, write)


def copy_table(phase: int, round: Ints, rank: Ints, read: Pieces, write: Pieces) -> LocalTable:
    """Return copies of one phase."""
    n, round, rank = len(rank), round.astype(np.int32), rank.astype(np.int32)
    phases, op = np.full(n, phase, dtype=np.int16), np.full(n, Op.COPY, dtype=np.int8)
    none = np.full(n, NONE, dtype=np.int32)
    return LocalTable(phases, round, rank, op, none, none, read, write)


def home(is_shared: Bools, otherwise: Buffer) -> Ints:
    return np.where(is_shared, Buffer.SHARED, otherwise).astype(np.int8)


def _repeats(stride: Ints | int, repeat: Ints) -> tuple[Ints, Ints]:
    return np.where(repeat > 1, stride, 0), repeat


def _moved(pieces: Pieces, by: Ints, buffer: Ints) -> Pieces:
    """Return pieces in other buffers, moved by the offsets `by` of their rows."""
    owner = pieces.owner
    _, offset, *rest = pieces.columns()
    return Pieces(pieces.indptr, buffer[owner], offset + by[owner], *rest)


@dataclass(frozen=True, eq=False)
class _Coalesced:
    """Layout of the data to send in a node's shared buffer, sorted by message.

    A *team* consists of the ranks of a node that one of its parts serves. Messages are sorted by
    the first rank of their teams. Within a message, the blocks of one source rank follow those of
    the preceding one. Blocks between ranks of the node come last, sorted by source. If the node has
    the ranks 0 to k - 1 and not k, the first k of these blocks come first instead.

    Parameters
    ----------
    exchange : Exchange
    team : ndarray of int64, shape (n_ranks,)
        Team of every rank.
    place : ndarray of int64, shape (n_ranks,)
        Position of every rank in its team.
    sizes : ndarray of int64, shape (n_teams,)
        Number of ranks of every team.
    before : ndarray of int64, shape (n_teams,)
        Number of ranks of all teams with a lower first rank.
    """

    exchange: Exchange
    team: Ints
    place: Ints
    sizes: Ints
    before: Ints

    @classmethod
    def of(cls, exchange: Exchange, n_ranks: int) -> _Coalesced:
        """Return the layout of all nodes' buffers."""
        row, team, place = exchange.row, np.empty(n_ranks, int), np.empty(n_ranks, int)
        turn = np.arange(n_ranks) - exchange.first[row]
        team[exchange.ranks] = row * exchange.n_parts + exchange.part
        place[exchange.ranks] = turn // exchange.n_leaders[row] if exchange.n_parts > 1 else turn
        n_teams = exchange.n_rows * exchange.n_parts
        sizes = np.bincount(team, minlength=n_teams)
        first = np.full(n_teams, n_ranks)
        np.minimum.at(first, team, np.arange(n_ranks))
        order = np.argsort(first, kind="stable")
        before = np.empty(n_teams, dtype=np.int64)
        before[order] = csr.running_total(sizes[order])[:-1]
        return cls(exchange, team, place, sizes, before)

    def _ahead(self, row: Ints) -> Ints:
        """Return the number of blocks before the first message of nodes."""
        ranks, first, n_ranks = self.exchange.ranks, self.exchange.first, len(self.team)
        found = []
        for one in row.tolist():
            own = np.sort(ranks[first[one] : first[one + 1]])
            # Ranks 0 to k - 1 belong to the node, and rank k does not.
            differs = np.flatnonzero(own != np.arange(len(own)))
            found.append(int(differs[0]) if len(differs) else min(len(own), n_ranks))
        return np.array(found, dtype=np.int64)

    def _own_before(self, row: Ints, team: Ints) -> Ints:
        """Return the number of ranks of each node in the teams that precede a given team."""
        n_parts = self.exchange.n_parts
        own = row[:, None] * n_parts + np.arange(n_parts)
        is_before = self.before[own] < self.before[team][:, None]
        return np.asarray((self.sizes[own] * is_before).sum(axis=1))

    def begin(self, row: Ints, team: Ints) -> Ints:
        """Return the offsets of messages of nodes to teams, in blocks."""
        rows, inverse = np.unique(row, return_inverse=True)
        others = self.before[team] - self._own_before(row, team)
        return np.asarray(self._ahead(rows)[inverse] + self.exchange.sizes[row] * others)

    def _begins(self, row: int) -> Ints:
        """Return the offset of every block, in blocks, shape (ranks of the node, n_ranks)."""
        exchange, n_ranks = self.exchange, len(self.team)
        n = int(exchange.sizes[row])
        source = np.arange(n)[:, None]
        teams = np.arange(len(self.sizes))
        begin = self.begin(np.full(len(teams), row), teams)
        place = begin[self.team] + source * self.sizes[self.team] + self.place
        own = np.sort(exchange.ranks[exchange.first[row] : exchange.first[row + 1]])
        number = source * n + np.arange(n)
        ahead = int(self._ahead(np.array([row]))[0])
        place[:, own] = np.where(number < ahead, number, n * (n_ranks - n) + number)
        return np.asarray(place)

    def staged(self, row: int, count: int) -> Pieces:
        """Return the pieces of data that a node's ranks send, with a row per rank."""
        place = self._begins(row)
        n, n_ranks = place.shape
        return _blocks(Buffer.SHARED, place.ravel(), np.arange(n + 1) * n_ranks, count)

    def own(self, row: int, count: int) -> Pieces:
        """Return the pieces of blocks between ranks of a node, with a row per receiver."""
        exchange = self.exchange
        own = exchange.ranks[exchange.first[row] : exchange.first[row + 1]]
        place = self._begins(row)[:, own].T
        return _blocks(Buffer.SHARED, place.ravel(), np.arange(len(own) + 1) * len(own), count)


def _blocks(home: Buffer, place: Ints, indptr: Ints, count: int) -> Pieces:
    """Return pieces of blocks of `count` elements, given their offsets in blocks."""
    buffer = np.full(len(place), home, dtype=np.int8)
    return pieces.contiguous(indptr, buffer, place * count, np.full(len(place), count))
