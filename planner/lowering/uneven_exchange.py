"""Messages and copies of an exchange whose blocks differ in size.

A node's shared buffer has the layout of `exchange`: the data that its ranks send, then the data
that its leaders receive, step by step. Blocks differ in size, so offsets are stored for every pair
of ranks instead of strides. Empty blocks are neither sent nor copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.blueprint.exchange import Exchange, NodeBlocks, Pairs
from collplan.planner.lowering.exchange import DELIVER, STAGE, Writer, copy_table, home
from collplan.planner.lowering.tables import LocalTable, MessageTable, Tables
from collplan.planner.plan import pieces
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer
from collplan.specs.syntax.tables import ends_of


def uneven_tables(
    exchange: Exchange,
    rank_node: Ints,
    n_nodes: int,
    only_ranks: Sequence[int] | None = None,
) -> Tables:
    """Return the messages and copies of an exchange of unequal blocks, in program order.

    Parameters are those of `exchange_tables`.
    """
    return _UnevenWriter(exchange, rank_node, only_ranks).tables(n_nodes)


@dataclass(frozen=True, eq=False)
class _Entries:
    """Non-empty blocks of pairs of ranks on different nodes, in the order of `NodeBlocks`.

    Parameters
    ----------
    block : ndarray of int64, shape (n_entries,)
        Number of the block of two nodes that contains each entry.
    sender, receiver : ndarray of int64, shape (n_entries,)
        Ranks that send and receive each entry.
    count : ndarray of int64, shape (n_entries,)
        Elements of each entry.
    """

    block: Ints
    sender: Ints
    receiver: Ints
    count: Ints

    @classmethod
    def of(cls, exchange: Exchange, pairs: Pairs, blocks: NodeBlocks) -> _Entries:
        """Return the entries of all blocks, sorted by sender within each block."""
        block, place = csr.expand(exchange.sizes[blocks.source] * blocks.team)
        turn, member = np.divmod(place, blocks.team[block])
        dest = blocks.dest[block]
        stride = exchange.n_leaders[dest] if exchange.n_parts > 1 else 1
        ranks, first = exchange.ranks, exchange.first
        sender = ranks[first[blocks.source[block]] + turn]
        receiver = ranks[first[dest] + blocks.part[block] + member * stride]
        count = pairs.counts[sender, receiver]
        kept = np.flatnonzero(count)
        return cls(*(column[kept] for column in (block, sender, receiver, count)))


class _UnevenWriter(Writer):
    def __init__(
        self, exchange: Exchange, rank_node: Ints, only_ranks: Sequence[int] | None
    ) -> None:
        super().__init__(exchange, rank_node, only_ranks)
        assert exchange.pairs is not None
        self.pairs = exchange.pairs
        self.row_of = np.empty(len(rank_node), dtype=np.int64)
        self.row_of[exchange.ranks] = exchange.row
        self.blocks = exchange.blocks_of(np.arange(exchange.n_rows))
        self.entries = _Entries.of(exchange, self.pairs, self.blocks)
        self.extent = ends_of(self.pairs.given, self.pairs.counts)

    @cached_property
    def sent_sizes(self) -> Ints:
        """Elements of every node's shared buffer for data to send."""
        exchange = self.exchange
        sizes = np.where(self._is_remapped, self.pairs.counts.sum(axis=1), self.extent)
        staged = np.where(exchange.stages[self.row_of], sizes, 0)
        return np.bincount(self.row_of, staged, exchange.n_rows).astype(np.int64)

    @cached_property
    def received_sizes(self) -> Ints:
        """Elements that every node receives into its shared buffer."""
        dest = self.row_of[self.entries.receiver]
        sizes = np.where(self.exchange.is_direct[dest], 0, self.entries.count)
        return np.bincount(dest, sizes, self.exchange.n_rows).astype(np.int64)

    @cached_property
    def _is_remapped(self) -> Bools:
        """Ranks of nodes that send the blocks of several ranks as one contiguous message."""
        exchange = self.exchange
        is_remapped = exchange.stages & (exchange.sizes > 1) & exchange.is_remapped
        return np.asarray(is_remapped[self.row_of])

    @cached_property
    def _own(self) -> tuple[Ints, Ints]:
        """Pairs of ranks of one node with non-empty blocks, including a rank with itself."""
        sender, receiver = np.nonzero(self.pairs.counts)
        is_own = self.row_of[sender] == self.row_of[receiver]
        return sender[is_own], receiver[is_own]

    @cached_property
    def staged(self) -> Ints:
        """Offsets of the blocks of all pairs before they are sent, shape (n_senders, n_receivers).

        They refer to the shared buffer of the sender's node, or to the sender's own buffer if the
        node does not stage.
        """
        exchange = self.exchange
        begins = np.empty(len(self.row_of), dtype=np.int64)
        in_order = csr.group_offsets(exchange.row, self.extent[exchange.ranks])
        begins[exchange.ranks] = np.where(exchange.stages[exchange.row], in_order, 0)
        places = self.pairs.given + begins[:, None]
        if self._is_remapped.any():
            # Messages come one after another, then blocks that stay on the node.
            ends = zip((self.entries.sender, self.entries.receiver), self._own, strict=True)
            sender, receiver = (np.concatenate(both) for both in ends)
            counts = self.pairs.counts[sender, receiver]
            offsets = csr.group_offsets(self.row_of[sender], counts)
            joined = self._is_remapped[sender]
            places[sender[joined], receiver[joined]] = offsets[joined]
        return places

    @cached_property
    def landing(self) -> Ints:
        """Offsets at which entries are received, in the shared buffer or in the receive buffer."""
        entries, dest = self.entries, self.row_of[self.entries.receiver]
        is_direct = self.exchange.is_direct[dest]
        offsets = csr.group_offsets(dest, entries.count)
        belongs = self.pairs.received[entries.sender, entries.receiver]
        return np.where(is_direct, belongs, self.sent_sizes[dest] + offsets)

    def messages(self) -> MessageTable:
        """Return the messages of every block: one per rank of the source node, or one in all."""
        exchange, blocks, entries = self.exchange, self.blocks, self.entries
        concerns = self.is_kept[blocks.source] | self.is_kept[blocks.dest]
        kept = np.flatnonzero(concerns[entries.block])
        block, sender, receiver, count = (
            column[kept]
            for column in (entries.block, entries.sender, entries.receiver, entries.count)
        )
        apart = 0 * sender if exchange.is_coalesced else sender
        bounds = csr.run_bounds(block, apart)
        stages, lands = exchange.stages[blocks.source], ~exchange.is_direct[blocks.dest]
        places = self.staged[sender, receiver], self.landing[kept]
        homes = home(stages[block], Buffer.SEND), home(lands[block], Buffer.RECV)
        read, write = (
            pieces.contiguous(bounds, where, place, count)
            for where, place in zip(homes, places, strict=True)
        )
        block = block[bounds[:-1]]
        ends = blocks.sender[block], blocks.receiver[block]
        return self.transfers(blocks.step[block], *ends, read, write)

    def _staging(self) -> LocalTable:
        """Return the copies of whole send buffers, or of separate blocks on remapped nodes."""
        exchange = self.exchange
        stages = (exchange.stages & self.is_kept)[self.row_of]
        where = Buffer.RECV if exchange.is_in_place else Buffer.SEND
        rank = np.flatnonzero(stages & ~self._is_remapped & (self.extent > 0))
        begins = self.staged[rank, 0] - self.pairs.given[rank, 0]
        whole = self.extent[rank]
        read = pieces.one_each(where, 0 * whole, whole)
        write = pieces.one_each(Buffer.SHARED, begins, whole)
        parts = [copy_table(STAGE, 0 * rank, rank, read, write)]
        sender, receiver = np.nonzero(self.pairs.counts)
        joined = (stages & self._is_remapped)[sender]
        sender, receiver = sender[joined], receiver[joined]
        bounds, counts = csr.run_bounds(sender), self.pairs.counts[sender, receiver]
        there = np.full(len(sender), where, dtype=np.int8)
        read = pieces.contiguous(bounds, there, self.pairs.given[sender, receiver], counts)
        write = self._staged(sender, receiver, bounds)
        rank = sender[bounds[:-1]]
        parts.append(copy_table(STAGE, 0 * rank, rank, read, write))
        return LocalTable.stack(parts)

    def _own_copies(self) -> LocalTable:
        """Return copies between ranks of one node, with a row per receiver."""
        sender, receiver = self._own
        kept = np.flatnonzero(self.is_kept[self.row_of[receiver]])
        kept = kept[np.lexsort((sender[kept], receiver[kept]))]
        sender, receiver = sender[kept], receiver[kept]
        bounds, counts = csr.run_bounds(receiver), self.pairs.counts[sender, receiver]
        there = np.full(len(sender), Buffer.RECV, dtype=np.int8)
        read = self._staged(sender, receiver, bounds)
        write = pieces.contiguous(bounds, there, self.pairs.received[sender, receiver], counts)
        rank = receiver[bounds[:-1]]
        return copy_table(DELIVER, np.ones(len(rank), dtype=np.int64), rank, read, write)

    def _staged(self, sender: Ints, receiver: Ints, bounds: Ints) -> Pieces:
        """Return the pieces of pairs' blocks before they are sent, in rows given by `bounds`."""
        where = home(self.exchange.stages[self.row_of[sender]], Buffer.SEND)
        counts = self.pairs.counts[sender, receiver]
        return pieces.contiguous(bounds, where, self.staged[sender, receiver], counts)

    def _deliveries(self) -> LocalTable:
        """Return copies of blocks from other nodes, in the round after each block arrives."""
        exchange, blocks, entries = self.exchange, self.blocks, self.entries
        dest = blocks.dest[entries.block]
        kept = np.flatnonzero(self.is_kept[dest] & ~exchange.is_direct[dest])
        order = kept[np.lexsort((entries.receiver[kept], entries.block[kept]))]
        sender, receiver, block, count = (
            column[order]
            for column in (entries.sender, entries.receiver, entries.block, entries.count)
        )
        bounds = csr.run_bounds(block, receiver)
        places = self.landing[order], self.pairs.received[sender, receiver]
        read, write = (
            pieces.contiguous(bounds, np.full(len(order), where, dtype=np.int8), place, count)
            for where, place in zip((Buffer.SHARED, Buffer.RECV), places, strict=True)
        )
        first = bounds[:-1]
        return copy_table(DELIVER, blocks.step[block[first]] + 1, receiver[first], read, write)
