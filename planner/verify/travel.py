"""Renaming of contents that messages of a folded plan carry between nodes.

A folded plan has the tasks of one node, and a message that leaves the node returns to it. Its
contents are described relative to the sender's node. Relative to the receiver's node, they are
contributions of other ranks, and other elements of the vector.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.collective.semantics import Contents
from collplan.planner.machine_code.kernel import inner
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import Collective

BY_SHIFT: Final = 0
BY_XOR: Final = 1
IN_ORDER: Final = 2
"""Ways in which ranks are renumbered between nodes of a folded plan."""


class Rules(NamedTuple):
    """Rules for combining and renaming contents, for compiled kernels.

    Parameters
    ----------
    n_ranks : int
        Ranks of the collective, on all nodes.
    commutative : bool
        Whether operands may be exchanged.
    sender : ndarray of int64, shape (n_tasks,), or empty
        Distance in nodes of the sender of each receive, as a block of the motion; empty if the
        plan is not folded.
    motion : int
        `BY_SHIFT`, `BY_XOR`, or `IN_ORDER` where operands must not wrap around.
    n_local : int
        Ranks per node.
    turns : ndarray of int64, shape (n_turns, 3)
        As in `Folding`.
    rounds : bool
        Whether the order of combinations matters, because the operation rounds.
    swaps : bool
        Whether exchanged operands have a result of the same bits. A folded plan does not say in
        which order other nodes than node 0 combine operands that may be exchanged, so this is
        taken for granted there.
    """

    n_ranks: int
    commutative: bool
    sender: Ints
    motion: int
    n_local: int
    turns: Ints
    rounds: bool
    swaps: bool


def rules_of(plan: Plan, collective: Collective, rounds: bool) -> Rules:
    """Return the rules for a plan of a collective, given whether the order of operands matters."""
    nobody, turns = np.zeros(0, dtype=np.int64), np.zeros((0, 3), dtype=np.int64)
    commutative = collective.is_commutative
    if plan.folding is None:
        swaps = commutative and collective.swaps_exactly
        n = plan.n_ranks
        return Rules(n, commutative, nobody, IN_ORDER, n, turns, rounds, swaps)
    motion = plan.folding.motion
    kind = BY_XOR if motion.kind == "xor" else BY_SHIFT if commutative else IN_ORDER
    sender = np.where(plan.op == Op.RECV, motion.block_to(plan.apart.astype(np.int64), 0), 0)
    turns = np.ascontiguousarray(plan.folding.turns)
    return Rules(motion.size, commutative, sender, kind, motion.step, turns, rounds, commutative)


def turning_points(plan: Plan, before: Contents, start: Ints) -> Ints:
    """Return the addresses in contributions where a folded plan may separate neighbors."""
    cuts = [np.zeros(0, dtype=np.int64)]
    turns = [] if plan.folding is None else plan.folding.turns.tolist()
    for first, count, step in turns:
        edges = np.arange(first, first + count + 1, step)
        for address, low, n in zip(start, before.logical, before.count, strict=True):
            cuts.append(address - low + edges[(edges > low) & (edges < low + n)])
    return np.concatenate(cuts)


@inner
def turned(element: int, rules: Rules, apart: int) -> int:
    """Return the element that corresponds to an element on the node that is `apart` nodes away."""
    turn, end = 0, len(rules.turns)
    while turn < end:
        middle = (turn + end) // 2
        if rules.turns[middle, 0] <= element:
            turn = middle + 1
        else:
            end = middle
    if turn == 0:
        return element
    first, count, step = rules.turns[turn - 1]
    if element >= first + count:
        return element
    if rules.motion != BY_XOR:
        return int(first + (element - first + apart * step) % count)
    block = (element - first) // step
    return int(element + ((block ^ apart) - block) * step)
