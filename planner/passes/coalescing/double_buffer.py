"""Receive into a few blocks in turn, instead of one for every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import overlapping
from collplan.planner.errors import UnmatchedRecvError, UnmatchedSendError
from collplan.planner.passes.coalescing.coalesce_requests import require_whole_nodes
from collplan.planner.passes.rebuild import rebuild
from collplan.planner.passes.registry import register_pass
from collplan.planner.plan import pieces
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan
from collplan.planner.plan.remap_buffers import Relocation
from collplan.planner.verify.order import completion_order

Slots = Annotated[
    int,
    Field(ge=2),
    "{} is not a number of at least 2; while one is received another is read",
]


@register_pass(
    "double_buffer",
    level="plan",
    locality="node",
    needs="ranks that receive more blocks in turn into scratch or shared memory than there are "
    "slots, each read before the block that takes its place comes, "
    "as in an alltoall with decomposition: hierarchical and transport: shared",
)
def double_buffer(plan: Plan, slots: Slots = 2) -> Plan:
    """Let what a rank receives round by round share `slots` blocks of memory.

    A *block* is what one rank receives in one phase and round into one
    scratch or shared buffer, if nothing else is ever written there. Its
    first round's block is the first slot's, and so on in turn; a receive
    into a slot waits, by edges of the plan, for all who read there. Blocks
    that are still read when the block `slots` later comes are left alone,
    as are all of that receiver's then. A send reads until its receive completes:
    where ranks send what they received while they receive from each other, as in
    recursive doubling, each would wait for the other.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of those of some nodes.
    slots : int
        Blocks per receiver, at least 2: while one is received the other is read.

    Returns
    -------
    Plan
        A new plan, its buffers smaller, or `plan` itself where no receiver
        has more blocks than that.

    Raises
    ------
    AlgorithmError
        If `slots` is not a number of at least 2, or the plan is a program that
        waits for others.

    References
    ----------
    Tran et al., "OHIO", 2024: figure 6, two blocks.
    """
    require_whole_nodes(plan, "double_buffer")
    space = AddressSpace.of_plan(plan)
    reads, writes = pieces.pieces_of(plan)
    blocks = find_blocks(plan, space, reads, writes)
    turn = _take_turns(blocks, slots)
    if not (turn != NONE).any():
        return plan
    moves, sizes = _fold(space, blocks, turn)
    reads, writes = (moves.apply(side, plan.rank) for side in (reads, writes))
    buffer_sizes, shared_sizes = space.split_sizes(sizes)
    start = space.base[:, [Buffer.SHARED]] + plan.mirrors
    mirrors = np.where(plan.mirrors == NONE, NONE, plan.mirrors + moves.shift_at(start))
    return rebuild(
        plan,
        reads,
        writes,
        buffer_sizes=buffer_sizes,
        shared_sizes=shared_sizes,
        mirrors=mirrors,
    )


def _take_turns(blocks: Blocks, slots: int) -> Ints:
    """Return every block's slot, or -1."""
    good = np.flatnonzero(blocks.is_reusable)
    number = csr.occurrence(blocks.chain[good])
    later = number >= slots
    # Blocks are numbered chain by chain, in order.
    earlier = np.full(len(good), NONE)
    earlier[later] = np.flatnonzero(later) - slots
    too_late = later.copy()
    last = blocks.last_access[good[earlier[later]]]
    too_late[later] = (last >= blocks.first_receive[good[later]]).any(axis=1)
    n_chains = int(blocks.chain.max(initial=-1)) + 1
    folds = np.bincount(blocks.chain[good], minlength=n_chains) > slots
    folds[blocks.chain[good[too_late]]] = False
    kept = folds[blocks.chain[good]]
    turn = np.full(len(blocks.chain), NONE)
    turn[good[kept]] = number[kept] % slots
    return turn


def _fold(space: AddressSpace, blocks: Blocks, turn: Ints) -> tuple[Relocation, Ints]:
    """Return where everything goes, and the new sizes of all buffers.

    What is no block moves together, in order; slots come behind it.
    """
    folded = turn[blocks.block] != NONE
    low, high, block = blocks.low[folded], blocks.high[folded], blocks.block[folded]
    home, size = space.number_at(low), high - low
    n_homes = len(space.start) - 1
    # Within a block, intervals keep their order.
    inside = csr.group_offsets(block, size)
    total = np.bincount(block, size, len(turn)).astype(np.int64)
    there = np.flatnonzero(turn != NONE)
    slot = csr.joint_key(blocks.chain[there], turn[there], int(turn.max()) + 1)
    kinds, number = np.unique(slot, return_inverse=True)
    room = np.zeros(len(kinds), dtype=np.int64)
    np.maximum.at(room, number, total[there])
    slot_home = np.zeros(len(kinds), dtype=np.int64)
    slot_home[number] = blocks.home[there]
    removed = np.bincount(home, size, n_homes).astype(np.int64)
    sizes = np.diff(space.start) - removed
    slot_base = space.start[slot_home] + sizes[slot_home] + csr.group_offsets(slot_home, room)
    base = np.zeros(len(turn), dtype=np.int64)
    base[there] = slot_base[number]
    # Between blocks, and behind the last of a buffer.
    end = np.append(low[1:], 0)
    is_last = np.roll(csr.run_starts(home), -1)
    end[is_last] = space.start[home[is_last] + 1]
    gone = csr.group_offsets(home, size) + size
    rest = np.flatnonzero(end > high)
    moves = Relocation.of(
        space,
        np.concatenate((low, high[rest])),
        np.concatenate((high, end[rest])),
        np.concatenate((base[block] + inside, high[rest] - gone[rest])),
    )
    return moves, sizes + np.bincount(slot_home, room, n_homes).astype(np.int64)


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
    when = csr.joint_key(plan.phase[row], plan.round[row], n_rounds)
    n_times = int(when.max(initial=0)) + 1
    keys = csr.joint_key(csr.joint_key(home, plan.rank[row], plan.n_ranks), when, n_times)
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
    when = csr.joint_key(plan.phase, plan.round, int(plan.round.max(initial=0)) + 1)
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
        run = np.cumsum(csr.run_starts(self.block))
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
        return rows[np.repeat(row, n)], self.block[csr.ranges(first, n)]
