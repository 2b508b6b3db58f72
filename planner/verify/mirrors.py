"""A caller's buffer may lie at its mirror: then nothing else may be written there."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.errors import RaceError
from collplan.planner.plan.pieces import running_total, sorted_unique
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan
from collplan.planner.verify.moves import AddressSpace, Moves


def check_mirrors(plan: Plan, space: AddressSpace, moves: Moves) -> None:
    """Raise where a mirror is not what its buffer is once it has been staged.

    All that is written there must be copied by its rank from the same element
    of its buffer, which then stays as it is until the start ends.

    Parameters
    ----------
    plan : Plan
    space : AddressSpace
    moves : Moves
        What tasks move, in execution order.

    Raises
    ------
    RaceError
        Naming the task that writes something else, or too late.
    """
    rank, buffer = np.nonzero(plan.mirrors != NONE)
    if not len(rank):
        return
    begin = space.base[rank, Buffer.SHARED] + plan.mirrors[rank, buffer]
    end, own = begin + plan.buffer_sizes[rank, buffer], space.base[rank, buffer]
    order = np.argsort(begin, kind="stable")
    begin, end, own, rank = begin[order], end[order], own[order], rank[order]
    overlaps = np.flatnonzero(begin[1:] < end[:-1])
    if len(overlaps):
        pair = rank[overlaps[0]], rank[overlaps[0] + 1]
        raise RaceError(f"mirrors of ranks {pair[0]} and {pair[1]} overlap in shared memory")
    # The last mirror that begins before a write ends is the only one it can be in, if it fits one.
    which = np.searchsorted(begin, moves.dest + moves.count) - 1
    inside = np.flatnonzero((which >= 0) & (end[which] > moves.dest))
    place, task = which[inside], moves.task[inside]
    shift = own[place] - begin[place]
    stages = (plan.op[task] == Op.COPY) & (plan.rank[task] == rank[place])
    first, last = moves.dest[inside], moves.dest[inside] + moves.count[inside]
    stages &= (moves.left[inside] == first + shift) & (first >= begin[place])
    stages &= last <= end[place]
    if not stages.all():
        i = int(np.argmin(stages))
        raise RaceError(
            f"{plan.task(int(task[i]))} writes to the mirror of a buffer of rank "
            f"{rank[place[i]]}, but not that buffer's own elements"
        )
    late = _first_overwritten(moves, inside)
    if late >= 0:
        raise RaceError(
            f"{plan.task(int(moves.task[late]))} overwrites what its rank has staged in a mirror"
        )


def _first_overwritten(moves: Moves, staging: Ints) -> int:
    """Return the first move that writes what a move of `staging` before it has read, or -1."""
    low, count = moves.left[staging], moves.count[staging]
    edges = sorted_unique(np.concatenate((low, low + count)))
    first, last = np.searchsorted(edges, low), np.searchsorted(edges, low + count)
    starts = running_total(last - first)
    atom = np.arange(starts[-1]) + np.repeat(first - starts[:-1], last - first)
    staged = np.full(len(edges), len(moves.task))
    np.minimum.at(staged, atom, np.repeat(staging, last - first))
    # Of the atoms that a move writes into the earliest staged decides.
    first = np.maximum(np.searchsorted(edges, moves.dest, side="right") - 1, 0)
    last = np.searchsorted(edges, moves.dest + moves.count)
    writes = np.flatnonzero(last > first)
    n = (last - first)[writes]
    starts = running_total(n)
    atom = np.arange(starts[-1]) + np.repeat(first[writes] - starts[:-1], n)
    late = np.repeat(writes, n)[staged[atom] < np.repeat(writes, n)]
    return int(late[0]) if len(late) else -1
