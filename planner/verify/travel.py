"""Contents that travel from node to node in a folded plan.

A folded plan has the tasks of one node, and a message that leaves the node returns to it. What
it brings was said at its sender; seen from the receiver it is of other ranks, and of other
elements of the vector.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.arrays.jit import inner
from collplan.planner.collective.semantics import Contents
from collplan.planner.plan.plan import Op, Plan

BY_SHIFT: Final = 0
BY_XOR: Final = 1
IN_ORDER: Final = 2
"""Rules of how ranks are moved in a folded plan."""


class Travel(NamedTuple):
    """Moves from one node to another, for compiled kernels.

    Parameters
    ----------
    sender : ndarray of int64, shape (n_tasks,), or empty
        How many nodes on the sender of each receive is, as a block of the motion; empty where
        the plan is not folded.
    rule : int
        How ranks are moved: `BY_SHIFT`, `BY_XOR`, or `IN_ORDER` where operands may not wrap.
    n_local : int
        Ranks per node.
    turns : ndarray of int64, shape (n_turns, 3)
        As of its `Folding`.
    """

    sender: Ints
    rule: int
    n_local: int
    turns: Ints


def travel_of(plan: Plan, commutative: bool) -> Travel:
    """Return how contents travel in a plan."""
    if plan.folding is None:
        nothing = np.zeros(0, dtype=np.int64)
        return Travel(nothing, IN_ORDER, plan.n_ranks, nothing.reshape(0, 3))
    motion = plan.folding.motion
    rule = BY_XOR if motion.kind == "xor" else BY_SHIFT if commutative else IN_ORDER
    sender = np.where(plan.op == Op.RECV, motion.block_to(plan.apart.astype(np.int64), 0), 0)
    return Travel(sender, rule, motion.step, np.ascontiguousarray(plan.folding.turns))


def turning_points(plan: Plan, before: Contents, start: Ints) -> Ints:
    """Return the addresses of contributions at which a folded plan could part neighbors."""
    cuts = [np.zeros(0, dtype=np.int64)]
    if plan.folding is not None:
        rows = zip(start.tolist(), before.logical.tolist(), before.count.tolist(), strict=True)
        for first, low, count in rows:
            cuts.append(first + plan.folding.cuts(low, low + count) - low)
    return np.concatenate(cuts)


@inner
def turned(element: int, travel: Travel, apart: int) -> int:
    """Return the element that is, some nodes on, what an element is here."""
    for turn in range(len(travel.turns)):
        first, count, step = travel.turns[turn]
        if first <= element < first + count:
            if travel.rule != BY_XOR:
                return int(first + (element - first + apart * step) % count)
            block = (element - first) // step
            return int(element + ((block ^ apart) - block) * step)
    return element
