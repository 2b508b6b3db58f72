"""Relocation of parts of scratch and shared buffers, and of the accesses to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.pieces import Pieces, contiguous, replaced
from collplan.planner.plan.plan import Buffer


@dataclass(frozen=True, eq=False)
class Relocation:
    """Ascending, disjoint intervals of an address space, and the distance by which each moves.

    They lie in scratch and shared buffers. Elements between them do not move.
    """

    space: AddressSpace
    low: Ints
    high: Ints
    shift: Ints

    @classmethod
    def of(cls, space: AddressSpace, low: Ints, high: Ints, new: Ints) -> Relocation:
        """Return the relocation of disjoint intervals, in any order, to the addresses `new`."""
        order = np.argsort(low, kind="stable")
        low, high, shift = low[order], high[order], (new - low)[order]
        # Neighbors that move by the same distance are one interval.
        starts = csr.run_starts(shift)
        starts[1:] |= low[1:] != high[:-1]
        return cls(space, low[starts], high[np.roll(starts, -1)], shift[starts])

    def shift_at(self, address: Ints) -> Ints:
        """Return the distances by which addresses move."""
        number = last_at_or_below(self.low, address)
        moves = (number >= 0) & (address < self.high[number])
        return np.where(moves, self.shift[number], 0)

    def apply(self, pieces: Pieces, rank: Ints) -> Pieces:
        """Return the relocated accesses. One interval may become several.

        Parameters
        ----------
        pieces : Pieces
        rank : ndarray, shape (n_rows,)
            The rank that accesses each row.
        """
        low, high = self.space.hulls(pieces, rank)
        number = last_at_or_below(self.low, low)
        inside = (high > low) & (number >= 0)
        inside[inside] = high[inside] <= self.high[number[inside]]
        apart = np.searchsorted(self.high, low, side="right") == np.searchsorted(self.low, high)
        owner = pieces.owner
        is_rewritten = np.zeros(len(pieces), dtype=bool)
        is_rewritten[owner[(high > low) & ~inside & ~apart]] = True
        # Pieces of a row may have become neighbors.
        is_rewritten[owner[inside]] |= (csr.lengths_of(pieces.indptr) > 1)[owner[inside]]
        offset = pieces.offset.copy()
        offset[inside] += self.shift[number[inside]]
        buffer, _, count, stride, repeat = pieces.columns()
        moved = Pieces(pieces.indptr, buffer, offset, count, stride, repeat)
        rows = np.flatnonzero(is_rewritten)
        return replaced(moved, rows, self._cut(pieces.take(rows), rank[rows]))

    def _cut(self, pieces: Pieces, rank: Ints) -> Pieces:
        """Return accesses cut at the ends of intervals, with every part relocated."""
        row, buffer, low, high = pieces.blocks()
        base = self.space.base[rank[row], buffer]
        start, end = base + low, base + high
        edges = csr.sorted_unique(np.concatenate((self.low, self.high)))
        first = np.searchsorted(edges, start, side="right")
        n = np.maximum(np.searchsorted(edges, end) - first, 0) + 1
        block, part = csr.expand(n)
        # Part 0 of a block begins with the block, other parts at the edges inside it.
        edge = first[block] + part
        here = np.where(part == 0, start[block], edges[(edge - 1).clip(0)])
        is_last = part == n[block] - 1
        stop = np.where(is_last, end[block], edges[edge.clip(0, len(edges) - 1)])
        # Empty blocks of a caller's buffer may begin where an interval does.
        shift = np.where(buffer[block] >= Buffer.SCRATCH, self.shift_at(here), 0)
        indptr = csr.indptr_of(row[block], len(pieces))
        return contiguous(indptr, buffer[block], here - base[block] + shift, stop - here)
