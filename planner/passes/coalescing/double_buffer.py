"""Receive into a few blocks in turn, instead of one for every round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from collplan.planner.arrays import Ints
from collplan.planner.arrays.csr import (
    group_offsets,
    joint_key,
    occurrence,
    run_starts,
)
from collplan.planner.passes.coalescing.coalesce_requests import require_whole_nodes
from collplan.planner.passes.coalescing.receive_blocks import Blocks, find_blocks
from collplan.planner.passes.registry import register_pass
from collplan.planner.plan import pieces as csr
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.hazards import derive_dependencies, stated_edges
from collplan.planner.plan.plan import NONE, Buffer
from collplan.planner.plan.remap_buffers import Relocation

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan


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
        Blocks a receiver, at least 2: while one is received the other is read.

    Returns
    -------
    Plan
        A new plan, its buffers smaller, or `plan` itself where no receiver
        has more blocks than that.

    Raises
    ------
    AlgorithmError
        If `slots` is no number of at least 2, or the plan is a program that
        waits for others.

    References
    ----------
    Tran et al., "OHIO", 2024: figure 6, two blocks.
    """
    require_whole_nodes(plan, "double_buffer")
    space = AddressSpace.of_plan(plan)
    reads, writes = csr.pieces_of(plan)
    blocks = find_blocks(plan, space, reads, writes)
    turn = _take_turns(blocks, slots)
    if not (turn != NONE).any():
        return plan
    moves, sizes = _fold(space, blocks, turn)
    reads, writes = (moves.apply(side, plan.rank) for side in (reads, writes))
    buffer_sizes, shared_sizes = space.split_sizes(sizes)
    start = space.base[:, [Buffer.SHARED]] + plan.mirrors
    mirrors = np.where(plan.mirrors == NONE, NONE, plan.mirrors + moves.shift_at(start))
    return csr.with_pieces(
        plan,
        reads,
        writes,
        deps=derive_dependencies(plan.rank, reads, writes, plan.rank_node, stated_edges(plan)),
        buffer_sizes=buffer_sizes,
        shared_sizes=shared_sizes,
        mirrors=mirrors,
    )


def _take_turns(blocks: Blocks, slots: int) -> Ints:
    """Return every block's slot, or -1."""
    good = np.flatnonzero(blocks.is_reusable)
    number = occurrence(blocks.chain[good])
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
    inside = group_offsets(block, size)
    total = np.bincount(block, size, len(turn)).astype(np.int64)
    there = np.flatnonzero(turn != NONE)
    slot = joint_key(blocks.chain[there], turn[there], int(turn.max()) + 1)
    kinds, number = np.unique(slot, return_inverse=True)
    room = np.zeros(len(kinds), dtype=np.int64)
    np.maximum.at(room, number, total[there])
    slot_home = np.zeros(len(kinds), dtype=np.int64)
    slot_home[number] = blocks.home[there]
    removed = np.bincount(home, size, n_homes).astype(np.int64)
    sizes = np.diff(space.start) - removed
    slot_base = space.start[slot_home] + sizes[slot_home] + group_offsets(slot_home, room)
    base = np.zeros(len(turn), dtype=np.int64)
    base[there] = slot_base[number]
    # Between blocks, and behind the last of a buffer.
    end = np.append(low[1:], 0)
    is_last = np.roll(run_starts(home), -1)
    end[is_last] = space.start[home[is_last] + 1]
    gone = group_offsets(home, size) + size
    rest = np.flatnonzero(end > high)
    moves = Relocation.of(
        space,
        np.concatenate((low, high[rest])),
        np.concatenate((high, end[rest])),
        np.concatenate((base[block] + inside, high[rest] - gone[rest])),
    )
    return moves, sizes + np.bincount(slot_home, room, n_homes).astype(np.int64)
