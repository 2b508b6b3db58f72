"""What ranks receive round by round, and who has to do with it: what slots can be made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.csr import joint_key, ranges, run_starts
from collplan.planner.arrays.intervals import overlapping
from collplan.planner.errors import UnmatchedRecvError, UnmatchedSendError
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import NONE, Buffer, Op
from collplan.planner.verify.order import completion_order

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan


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
    first_receive, last_access : ndarray of int64, shape (n_blocks, n_orders)
        When the first receive starts, and when the last access completes, in several
        orders in which all ranks' tasks can run.
    """

    low: Ints
    high: Ints
    block: Ints
    home: Ints
    chain: Ints
    is_reusable: Bools
    first_receive: Ints
    last_access: Ints


def find_blocks(plan: Plan, space: AddressSpace, reads: Pieces, writes: Pieces) -> Blocks:
    """Return the blocks of a plan."""
    recvs = np.flatnonzero(plan.op == Op.RECV)
    owner, buffer, low, high = writes.take(recvs).blocks()
    kept = np.flatnonzero((buffer >= Buffer.SCRATCH) & (high > low))
    base = space.base[plan.rank[recvs][owner], buffer]
    kept = kept[np.argsort((base + low)[kept], kind="stable")]
    row, low, high = recvs[owner[kept]], (base + low)[kept], (base + high)[kept]
    home = space.number(plan.rank[row], buffer[kept])
    n_rounds = int(plan.round.max(initial=0)) + 1
    when = joint_key(plan.phase[row], plan.round[row], n_rounds)
    n_times = int(when.max(initial=0)) + 1
    keys = joint_key(joint_key(home, plan.rank[row], plan.n_ranks), when, n_times)
    kinds, block = np.unique(keys, return_inverse=True)
    n = len(kinds)
    home_of = np.zeros(n, dtype=np.int64)
    home_of[block] = home
    _, chain = np.unique(kinds // n_times, return_inverse=True)
    found = _Found(space, low, high, block)
    bad = np.zeros(n, dtype=bool)
    bad[block[overlapping(low, high)]] = True
    others = writes.masked(plan.op != Op.RECV)
    bad[found.touched(others, plan.rank)[1]] = True
    reader, read_block = found.touched(reads, plan.rank)
    start, completion = _orders(plan)
    first_receive = np.full((n, start.shape[1]), 2 * plan.n_tasks)
    last_access = np.full_like(first_receive, NONE)
    np.minimum.at(first_receive, block, start[row])
    np.maximum.at(last_access, block, completion[row])
    np.maximum.at(last_access, read_block, completion[reader])
    bad[read_block[reader < first_receive[read_block, 0]]] = True
    return Blocks(low, high, block, home_of, chain, ~bad, first_receive, last_access)


def _orders(plan: Plan) -> tuple[Ints, Ints]:
    """Return when tasks start and complete in orders in which they can run, a column each.

    A send completes when its receive does, on another rank. The first column is the
    order of rows, in which this is at the end of the round: the same for the programs of
    one node as for the whole plan. Where there are all ranks, the second is an order in
    which everything does run, whatever passes have made of the rows.
    """
    rows = np.arange(plan.n_tasks, dtype=np.int64)
    when = joint_key(plan.phase, plan.round, int(plan.round.max(initial=0)) + 1)
    last = np.zeros(int(when.max(initial=0)) + 1, dtype=np.int64)
    last[when] = rows
    start: list[Ints] = [rows]
    completion: list[Ints] = [np.where(plan.op == Op.SEND, last[when], rows)]
    try:
        ends = match_messages(plan)
    except (UnmatchedSendError, UnmatchedRecvError):
        pass  # of some nodes only
    else:
        in_turn = completion_order(plan, *ends)
        start.append(in_turn[0])
        completion.append(in_turn[1])
    return np.column_stack(start), np.column_stack(completion)


@dataclass(frozen=True, eq=False)
class _Found:
    """Intervals on a line, ascending, each of a block; who touches them?"""

    space: AddressSpace
    low: Ints
    high: Ints
    block: Ints

    def touched(self, pieces: Pieces, rank: Ints) -> tuple[Ints, Ints]:
        """Return who touches which block, pairs of row and block.

        A strided access is looked at as a whole where it lies within one block,
        and block by block elsewhere.
        """
        low, high = self.space.hulls(pieces, rank)
        first = np.searchsorted(self.high, low, side="right")
        last = np.searchsorted(self.low, high) - 1
        hits = np.flatnonzero((high > low) & (last >= first))
        first, last, owner = first[hits], last[hits], pieces.owner[hits]
        run = np.cumsum(run_starts(self.block))
        within = run[first] == run[last]
        rows, blocks = [owner[within]], [self.block[first[within]]]
        apart = np.flatnonzero(~within)
        if len(apart):
            more = self._apart(pieces, rank, np.unique(owner[apart]))
            rows.append(more[0])
            blocks.append(more[1])
        return np.concatenate(rows), np.concatenate(blocks)

    def _apart(self, pieces: Pieces, rank: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Return the same of rows whose accesses are looked at one contiguous piece at a time."""
        row, low, high = self.space.blocks(pieces.take(rows), rank[rows])
        first = np.searchsorted(self.high, low, side="right")
        n = np.maximum(np.searchsorted(self.low, high) - first, 0)
        return rows[np.repeat(row, n)], self.block[ranges(first, n)]
