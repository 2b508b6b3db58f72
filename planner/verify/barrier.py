"""Proof that no rank leaves a barrier before all ranks have entered it."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.arrays.motion import Motion
from collplan.planner.errors import MissingContributionError
from collplan.planner.plan.plan import Plan
from collplan.planner.verify.order import Execution, spread


def check_barrier(plan: Plan, execution: Execution) -> None:
    """Raise `MissingContributionError` where a rank may leave before another one has entered."""
    events = execution.events()
    if plan.folding is not None:
        _check_folded(plan, execution, events)
        return
    for first in range(0, plan.n_ranks, 64):
        group = np.arange(first, min(first + 64, plan.n_ranks))
        bits = np.zeros(plan.n_ranks, dtype=np.uint64)
        bits[group] = np.uint64(1) << (group - first).astype(np.uint64)
        known = bits.copy()
        np.bitwise_or.at(known, plan.rank, spread(execution, events, bits[plan.rank])[1])
        lacking = known ^ np.bitwise_or.reduce(bits)
        if lacking.any():
            rank = int(np.argmax(lacking != 0))
            _raise_lacking(plan, rank, int(lacking[rank]), first)


def _check_folded(plan: Plan, execution: Execution, events: Ints) -> None:
    """Check a folded plan as `check_barrier` does, with ranks numbered relative to each node."""
    assert plan.folding is not None
    n, motion = plan.n_tasks, plan.folding.motion
    everybody = (1 << motion.size) - 1
    known = [1 << rank for rank in range(plan.n_ranks)]
    heard = [known[rank] for rank in plan.rank.tolist()] + [0] * n
    for event in events.tolist():
        for before in execution.waits_of(event):
            ranks = heard[before]
            if event >= n and before != event - n:
                block = motion.block_to(int(plan.apart[event - n]), 0)
                ranks = _moved(ranks, block, motion, everybody)
            heard[event] |= ranks
    for rank, bits in zip(plan.rank.tolist(), heard[n:], strict=True):
        known[rank] |= bits
    for rank, bits in enumerate(known):
        if bits != everybody:
            _raise_lacking(plan, rank, everybody & ~bits, 0)


def _raise_lacking(plan: Plan, rank: int, lacking: int, first: int) -> NoReturn:
    """Raise for the first missing rank. Bit i of `lacking` stands for rank ``first + i``."""
    other = first + (lacking & -lacking).bit_length() - 1
    raise MissingContributionError(
        f"rank {rank} may leave the barrier before rank {other} has come; no chain of messages of "
        f"{' and '.join(phase.name for phase in plan.phases) or 'the plan'} leads to it from there"
    )


def _moved(ranks: int, block: int, motion: Motion, everybody: int) -> int:
    """Return a bit set of ranks after a motion."""
    if motion.kind == "shift":
        by = block * motion.step
        return (ranks << by | ranks >> (motion.size - by)) & everybody
    moved = 0
    while ranks:
        rank = (ranks & -ranks).bit_length() - 1
        moved |= 1 << motion.move(rank, block)
        ranks &= ranks - 1
    return moved
