"""Reuse of a few receive buffers in turn, instead of one buffer per round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import overlapping
from collplan.planner.errors import UnmatchedRecvError, UnmatchedSendError
from collplan.planner.passes.coalescing.coalesce_requests import require_whole_nodes
from collplan.planner.passes.registry import register_pass
from collplan.planner.plan import pieces
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan
from collplan.planner.rewrite.rebuild import rebuild
from collplan.planner.rewrite.remap_buffers import Relocation
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
    """Let the blocks that a rank receives in successive rounds share a few slots of memory.

    A *block* is the set of elements that one rank receives in one phase and round into one scratch
    or shared buffer, if no other task writes them. The blocks of a rank and a buffer use the slots
    in turn, in the order of their rounds. Edges of the plan let a receive into a slot wait for all
    tasks that read the previous block there.

    If a block is still read when the block `slots` places later is received, all blocks of this
    rank and buffer keep memory of their own. A send reads its block until the receive of the
    message completes. So where two ranks forward received blocks while they receive from each
    other, as in recursive doubling, shared slots would let each wait for the other.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of all ranks of some nodes.
    slots : int, default 2
        Number of slots per rank and buffer, at least 2: one is read while the next is received.

    Returns
    -------
    Plan
        A new plan with smaller buffers, or `plan` itself if no blocks can share slots.

    Raises
    ------
    AlgorithmError
        If `slots` is less than 2 or no integer, or if the plan is a program that shares memory with
        programs of other ranks.

    References
    ----------
    Tran et al., "OHIO", 2024: figure 6, with two slots.
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


def _take_turns(blocks: ReceivedBlocks, slots: int) -> Ints:
    """Return the slot of every block, -1 for blocks that keep memory of their own."""
    good = np.flatnonzero(blocks.is_reusable)
    number = csr.occurrence(blocks.chain[good])
    later = number >= slots
    # Blocks are numbered in order within a chain, one chain after another.
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


def _fold(space: AddressSpace, blocks: ReceivedBlocks, turn: Ints) -> tuple[Relocation, Ints]:
    """Return the relocation of all elements, and the new sizes of all buffers.

    Elements outside of blocks that share slots keep their order and close the gaps. The slots of a
    buffer follow them.

    Parameters
    ----------
    space : AddressSpace
    blocks : ReceivedBlocks
    turn : ndarray of int64, shape (n_blocks,)
        Slot of every block, or -1.

    Returns
    -------
    moves : Relocation
    sizes : ndarray of int64, shape (n_buffers,)
        Elements of every buffer of the address space.
    """
    folded = turn[blocks.block] != NONE
    low, high, block = blocks.low[folded], blocks.high[folded], blocks.block[folded]
    home, size = space.number_at(low), high - low
    n_homes = len(space.start) - 1
    # The intervals of a block keep their order.
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
    # Ends of the elements between blocks, and of those after the last block of a buffer.
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
class ReceivedBlocks:
    """Sets of elements that one rank receives in one phase and round into one buffer.

    The blocks of one rank and one scratch or shared buffer form a chain. They have consecutive
    numbers, in the order of phases and rounds.

    Parameters
    ----------
    low, high, block : ndarray of int64, shape (n_intervals,)
        Address range and block of each interval, in ascending order of addresses. Each interval is
        a contiguous part of a receive.
    home, chain : ndarray of int64, shape (n_blocks,)
        Number of the buffer in the address space, and number of the chain.
    is_reusable : ndarray of bool, shape (n_blocks,)
        Whether no other task writes the block, and no task reads it before it is received.
    first_receive, last_access : ndarray of int64, shape (n_blocks, n_orders)
        Times at which the first receive starts and the last access completes, for each of the
        possible orders of all tasks that `_orders` returns.
    """

    low: Ints
    high: Ints
    block: Ints
    home: Ints
    chain: Ints
    is_reusable: Bools
    first_receive: Ints
    last_access: Ints


def find_blocks(plan: Plan, space: AddressSpace, reads: Pieces, writes: Pieces) -> ReceivedBlocks:
    """Return the blocks of a plan.

    Parameters
    ----------
    plan : Plan
    space : AddressSpace
        Address space of the plan's buffers.
    reads, writes : Pieces
        Pieces that the tasks read and write, one row per task.
    """
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
    found = _BlockIndex(space, low, high, block)
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
    return ReceivedBlocks(low, high, block, home_of, chain, ~bad, first_receive, last_access)


def _orders(plan: Plan) -> tuple[Ints, Ints]:
    """Return the times at which tasks start and complete, in orders in which they can run.

    A send completes when its receive completes on another rank. In the first order, tasks run in
    the order of their rows, and a send completes at the end of its round. This order is the same
    for the programs of one node and for the whole plan. If the plan has all ranks, there is a
    second order, in which all tasks can run even if earlier passes have changed the order of rows.

    Returns
    -------
    start, completion : ndarray of int64, shape (n_tasks, n_orders)
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
        pass  # a plan of some nodes lacks the other ends of messages
    else:
        in_turn = completion_order(plan, *ends)
        start.append(in_turn[0])
        completion.append(in_turn[1])
    return np.column_stack(start), np.column_stack(completion)


@dataclass(frozen=True, eq=False)
class _BlockIndex:
    """Index of the intervals of blocks, to find the tasks that access each block.

    Parameters
    ----------
    space : AddressSpace
    low, high, block : ndarray of int64, shape (n_intervals,)
        Address range and block of each interval, in ascending order of addresses.
    """

    space: AddressSpace
    low: Ints
    high: Ints
    block: Ints

    def touched(self, pieces: Pieces, rank: Ints) -> tuple[Ints, Ints]:
        """Return pairs of a row and a block that the row accesses.

        A strided access within one block is one range. Otherwise, each contiguous part of it is
        compared with the blocks.

        Parameters
        ----------
        pieces : Pieces
            Accesses, one row per task.
        rank : ndarray, shape (n_tasks,)
            Rank of each task.

        Returns
        -------
        row, block : ndarray of int64, shape (n_pairs,)
            A pair may occur more than once.
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
        """Return the same pairs for `rows`, by the contiguous parts of their accesses."""
        row, low, high = self.space.blocks(pieces.take(rows), rank[rows])
        first = np.searchsorted(self.high, low, side="right")
        n = np.maximum(np.searchsorted(self.low, high) - first, 0)
        return rows[np.repeat(row, n)], self.block[csr.ranges(first, n)]
