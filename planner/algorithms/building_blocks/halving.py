"""Recursive vector halving, nearest partners first: shared by Rabenseifner's algorithms."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collplan.planner.algorithms.building_blocks.folding import Folding
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import floor_log2


def owned(survivor: Ints, q: int, level: int) -> tuple[Ints, int]:
    """Return the run of chunks each survivor holds before halving `level`.

    Bit k of a survivor's number decides the half it keeps at level k, so
    operands combine with nearest neighbours first and stay in rank order.

    Returns
    -------
    first : ndarray
        First chunk, one entry a survivor.
    n : int
        How many chunks.
    """
    first = np.zeros_like(survivor)
    for k in range(level):
        first += (survivor >> k & 1) * (q >> (k + 1))
    return first, q >> level


def reduce_scatter(group: Group, folding: Folding) -> Rounds:
    """Halve vectors until every survivor holds one combined chunk in its output."""
    q = folding.n_survivors
    me = np.arange(q)
    # A survivor's value is its input until something was combined into its output.
    combined: npt.NDArray[np.bool_] = me < len(folding.folded)
    for level in range(floor_log2(q)):
        partner = me ^ (1 << level)
        given, n = owned(partner, q, level + 1)
        value = np.where(combined, group.output, group.input)
        yield Round(
            Message(
                folding.survivors[me],
                folding.survivors[partner],
                at(value, given, n),
                at(group.output, given, n),
                combine=at(value[partner], given, n),
                incoming_left=me < partner,
            )
        )
        combined = np.ones(q, dtype=bool)


def allgather(group: Group, folding: Folding) -> Rounds:
    """Undo the halving: exchange ever larger runs until all survivors hold the vector."""
    q = folding.n_survivors
    me = np.arange(q)
    for level in reversed(range(floor_log2(q))):
        first, n = owned(me, q, level + 1)
        run = at(group.output, first, n)
        yield Round(Message(folding.survivors[me], folding.survivors[me ^ (1 << level)], run, run))


def gather(group: Group, folding: Folding, root: int) -> Rounds:
    """Collect all chunks at survivor number `root`."""
    q = folding.n_survivors
    for level in reversed(range(floor_log2(q))):
        me = np.arange(q)
        # Only ranks that agree with the root in the bits already undone still hold anything.
        agrees = (me ^ root) >> (level + 1) == 0
        me = me[agrees & ((me ^ root) >> level & 1 == 1)]
        first, n = owned(me, q, level + 1)
        run = at(group.output, first, n)
        yield Round(Message(folding.survivors[me], folding.survivors[me ^ (1 << level)], run, run))
