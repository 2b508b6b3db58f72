"""What ranks receive round by round, and who has to do with it: what slots can be made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.arrays import Bools, Ints
from planner.pieces import Pieces, running_total, sorted_unique
from planner.plan import NONE, Op
from planner.relocation import Staging, overlapping
from planner.streams import joint_key

if TYPE_CHECKING:
    from planner.plan import Plan

Lists = tuple[Ints, Ints]
"""Rows in CSR by block: indptr, rows."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks: what one rank receives in one phase and round into one scratch or shared buffer.

    Blocks of one rank and buffer form a chain and are numbered one after
    another, in program order.

    Parameters
    ----------
    low, high, block : ndarray of int64, shape (n_intervals,)
        The intervals they are made of, ascending on the line of addresses, an
        interval a piece of a receive.
    home, chain : ndarray of int64, shape (n_blocks,)
    is_reusable : ndarray of bool, shape (n_blocks,)
        Whether nothing else is ever written there, nor read before.
    first_receive, last_access : ndarray of int64, shape (n_blocks,)
        The first row that receives, and the last that does anything there.
    receives, accesses : Lists
        Who receives; and whom to wait for so that all who have to do with the
        block are done: all who read, and receives of what nobody reads.
    """

    low: Ints
    high: Ints
    block: Ints
    home: Ints
    chain: Ints
    is_reusable: Bools
    first_receive: Ints
    last_access: Ints
    receives: Lists
    accesses: Lists


def find_blocks(plan: Plan, staging: Staging, reads: Pieces, writes: Pieces) -> Blocks:
    """Return the blocks of a plan."""
    recvs = np.flatnonzero(plan.op == Op.RECV)
    owner, buffer, low, high = writes.take(recvs).blocks()
    home = staging.home(plan.rank[recvs][owner], buffer)
    kept = np.flatnonzero((home != NONE) & (high > low))
    kept = kept[np.argsort((staging.base[home] + low)[kept], kind="stable")]
    row, home = recvs[owner[kept]], home[kept]
    low, high = staging.base[home] + low[kept], staging.base[home] + high[kept]
    n_rounds = int(plan.round.max(initial=0)) + 1
    when = joint_key(plan.phase[row], plan.round[row], n_rounds)
    n_times = int(when.max(initial=0)) + 1
    keys = joint_key(joint_key(home, plan.rank[row], plan.n_ranks), when, n_times)
    kinds, block = np.unique(keys, return_inverse=True)
    n = len(kinds)
    home_of = np.zeros(n, dtype=np.int64)
    home_of[block] = home
    _, chain = np.unique(kinds // n_times, return_inverse=True)
    found = _Found(staging, low, high, block)
    bad = np.zeros(n, dtype=bool)
    bad[block[overlapping(low, high)]] = True
    others = writes.masked(plan.op != Op.RECV)
    bad[found.touched(others, plan.rank)[1]] = True
    reader, read_block, is_read = found.touched(reads, plan.rank)
    first_receive, last_receive = np.full(n, plan.n_tasks), np.full(n, NONE)
    np.minimum.at(first_receive, block, row)
    np.maximum.at(last_receive, block, row)
    last_access = last_receive.copy()
    np.maximum.at(last_access, read_block, reader)
    bad[read_block[reader < first_receive[read_block]]] = True
    unread = ~is_read
    return Blocks(
        low, high, block, home_of, chain, ~bad, first_receive, last_access,
        _listed(block, row, n, plan.n_tasks),
        _listed(
            np.concatenate((read_block, block[unread])), np.concatenate((reader, row[unread])),
            n, plan.n_tasks,
        ),
    )  # fmt: skip


def _listed(block: Ints, row: Ints, n_blocks: int, n_tasks: int) -> Lists:
    """Return the distinct rows of every block."""
    pairs = sorted_unique(joint_key(block, row, n_tasks))
    return running_total(np.bincount(pairs // n_tasks, minlength=n_blocks)), pairs % n_tasks


@dataclass(frozen=True, eq=False)
class _Found:
    """Intervals on a line, ascending, each of a block; who touches them?"""

    staging: Staging
    low: Ints
    high: Ints
    block: Ints

    def touched(self, pieces: Pieces, rank: Ints) -> tuple[Ints, Ints, Bools]:
        """Return who touches which block, pairs of row and block; and what surely is touched.

        A strided access is looked at as a whole where it lies within one block,
        and block by block elsewhere.
        """
        home, low, high = self.staging.spans(pieces, rank)
        first = np.searchsorted(self.high, low, side="right")
        last = np.searchsorted(self.low, high) - 1
        hits = np.flatnonzero((home != NONE) & (high > low) & (last >= first))
        first, last, owner = first[hits], last[hits], pieces.owner[hits]
        begins = np.ones(len(self.block), dtype=bool)
        begins[1:] = self.block[1:] != self.block[:-1]
        run = np.cumsum(begins)
        repeats, within = pieces.repeat[hits] > 1, run[first] == run[last]
        least = np.full(len(run) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, run, self.high - self.low)
        gap = np.abs(pieces.stride[hits]) - pieces.count[hits]
        sure = ~repeats | (within & (gap < least[run[first]]))
        marks = np.zeros(len(self.low) + 1, dtype=np.int64)
        np.add.at(marks, first[sure], 1)
        np.add.at(marks, last[sure] + 1, -1)
        is_touched = np.cumsum(marks)[:-1] > 0
        rows, blocks = [owner[within]], [self.block[first[within]]]
        apart = np.flatnonzero(~within)
        if len(apart):
            more = self._apart(pieces, rank, np.unique(owner[apart]))
            rows.append(more[0])
            blocks.append(more[1])
        return np.concatenate(rows), np.concatenate(blocks), is_touched

    def _apart(self, pieces: Pieces, rank: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Return the same of rows whose accesses are looked at one contiguous piece at a time."""
        row, buffer, low, high = pieces.take(rows).blocks()
        home = self.staging.home(rank[rows][row], buffer)
        low, high = self.staging.base[home] + low, self.staging.base[home] + high
        first = np.searchsorted(self.high, low, side="right")
        n = np.where(home == NONE, 0, np.maximum(np.searchsorted(self.low, high) - first, 0))
        index = np.repeat(np.arange(len(row)), n)
        turn = np.arange(len(index)) - running_total(n)[:-1][index]
        return rows[row[index]], self.block[first[index] + turn]
