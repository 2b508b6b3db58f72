"""Moving contents of scratch and shared buffers: where intervals go, and accesses rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.plan import pieces as csr
from collplan.planner.plan.pieces import Pieces, running_total
from collplan.planner.plan.plan import NONE, Buffer

if TYPE_CHECKING:
    from collplan.planner.arrays import Ints
    from collplan.planner.plan.plan import Plan


@dataclass(frozen=True, eq=False)
class Staging:
    """All scratch and shared buffers of a plan on one line of addresses.

    Parameters
    ----------
    base : ndarray of int64, shape (n_homes + 1,)
        Where buffers begin: every rank's scratch, then every node's shared buffer.
    rank_node : ndarray, shape (n_ranks,)
    """

    base: Ints
    rank_node: Ints

    @classmethod
    def of(cls, plan: Plan) -> Staging:
        """Return the line of a plan's buffers."""
        sizes = np.concatenate((plan.buffer_sizes[:, Buffer.SCRATCH], plan.shared_sizes))
        return cls(running_total(sizes), plan.rank_node)

    def home(self, rank: Ints, buffer: Ints) -> Ints:
        """Return which buffer of the line ranks mean; -1 for a caller's."""
        shared = len(self.rank_node) + self.rank_node[rank]
        home = np.where(buffer == Buffer.SHARED, shared, rank)
        return np.where(buffer < Buffer.SCRATCH, NONE, home).astype(np.int64)

    def home_at(self, address: Ints) -> Ints:
        """Return the buffer an address lies in."""
        # Of empty buffers that begin at one address the last is meant.
        return np.asarray(np.searchsorted(self.base, address, side="right") - 1)

    def spans(self, pieces: Pieces, rank: Ints) -> tuple[Ints, Ints, Ints]:
        """Return home, lowest address and the one past the highest of every piece.

        Parameters
        ----------
        pieces : Pieces
        rank : ndarray, shape (n_rows,)
            Whose accesses the rows are.
        """
        home = self.home(rank[pieces.owner], pieces.buffer)
        reach = np.asarray(pieces.stride * (pieces.repeat - 1))
        start = self.base[home] + pieces.offset
        return home, start + np.minimum(reach, 0), start + np.maximum(reach, 0) + pieces.count


@dataclass(frozen=True, eq=False)
class Relocation:
    """Intervals of a line that move, ascending and disjoint: by how much each.

    What lies between them stays.
    """

    staging: Staging
    low: Ints
    high: Ints
    shift: Ints

    @classmethod
    def of(cls, staging: Staging, low: Ints, high: Ints, new: Ints) -> Relocation:
        """Return the move of disjoint intervals to where each begins then, in any order."""
        order = np.argsort(low, kind="stable")
        low, high, shift = low[order], high[order], (new - low)[order]
        begins = np.ones(len(low), dtype=bool)
        begins[1:] = (low[1:] != high[:-1]) | (shift[1:] != shift[:-1])
        # Neighbours that move alike are one interval.
        first = np.flatnonzero(begins)
        last = np.append(first[1:] - 1, len(low) - 1)
        return cls(staging, low[first], high[last], shift[first])

    def shift_at(self, address: Ints) -> Ints:
        """Return by how much addresses move."""
        number = np.searchsorted(self.low, address, side="right") - 1
        moves = (number >= 0) & (address < self.high[number])
        return np.where(moves, self.shift[number], 0)

    def apply(self, pieces: Pieces, rank: Ints) -> Pieces:
        """Return accesses to what has moved; what was one interval may become several."""
        home, low, high = self.staging.spans(pieces, rank)
        is_ours = (home != NONE) & (high > low)
        number = np.searchsorted(self.low, low, side="right") - 1
        inside = is_ours & (number >= 0)
        inside[inside] = high[inside] <= self.high[number[inside]]
        apart = np.searchsorted(self.high, low, side="right") == np.searchsorted(self.low, high)
        is_cut = is_ours & ~inside & ~apart
        owner = pieces.owner
        is_rewritten = np.zeros(len(pieces), dtype=bool)
        is_rewritten[owner[is_cut]] = True
        # Several pieces of a row may have become neighbours.
        is_rewritten[owner[inside]] |= (np.diff(pieces.indptr) > 1)[owner[inside]]
        offset = pieces.offset.copy()
        offset[inside] += self.shift[number[inside]]
        buffer, _, count, stride, repeat = pieces.columns()
        moved = Pieces(pieces.indptr, buffer, offset, count, stride, repeat)
        rows = np.flatnonzero(is_rewritten)
        return csr.replaced(moved, rows, self._cut(pieces.take(rows), rank[rows]))

    def _cut(self, pieces: Pieces, rank: Ints) -> Pieces:
        """Return accesses cut where intervals begin and end, each part moved by itself."""
        row, buffer, low, high = pieces.blocks()
        home = self.staging.home(rank[row], buffer)
        start, end = (self.staging.base[home] + side for side in (low, high))
        edges = csr.sorted_unique(np.concatenate((self.low, self.high)))
        first = np.searchsorted(edges, start, side="right")
        n = np.where(home == NONE, 0, np.maximum(np.searchsorted(edges, end) - first, 0)) + 1
        block = np.repeat(np.arange(len(row)), n)
        turn = np.arange(len(block)) - running_total(n)[:-1][block]
        # Part 0 of a block begins where the block does, others at the edges inside it.
        here = np.where(turn == 0, start[block], edges[(first[block] + turn - 1).clip(0)])
        last = turn == n[block] - 1
        stop = np.where(last, end[block], edges[(first[block] + turn).clip(0, len(edges) - 1)])
        number = np.searchsorted(self.low, here, side="right") - 1
        moves = (home[block] != NONE) & (number >= 0)
        moves[moves] = here[moves] < self.high[number[moves]]
        shift = np.where(moves, self.shift[number], 0)
        offset = low[block] + here - start[block] + shift
        lengths = np.bincount(row[block], minlength=len(pieces))
        return csr.contiguous(running_total(lengths), buffer[block], offset, stop - here)


def overlapping(low: Ints, high: Ints) -> Bools:
    """Mark intervals that share an element with another.

    Examples
    --------
    >>> overlapping(np.array([6, 0, 2, 4]), np.array([8, 3, 4, 6])).tolist()
    [False, True, True, False]
    """
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    joins = np.zeros(len(order), dtype=bool)
    joins[1:] = low[order][1:] < reach[:-1]
    marked = joins.copy()
    marked[:-1] |= joins[1:]
    result = np.empty_like(marked)
    result[order] = marked
    return result
