"""Values whose sums show in which order they were added, and what plans make of them."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.executors.local import run_local
from collplan.planner import Plan
from collplan.planner.collective.semantics import postcondition, precondition
from collplan.planner.plan.plan import Buffer

Floats = npt.NDArray[np.float64]
MOST = 1000
"""Elements of a contribution at most."""


@lru_cache(maxsize=64)
def values_of(rank: int) -> Floats:
    """Return numbers of a rank, the same for any count, some of which swallow those of others."""
    rng = np.random.default_rng(rank)
    huge = np.array([1e16, -1e16, 1.0, 3.0, 0.5])[(np.arange(MOST) * (rank + 2) + rank) % 5]
    return np.asarray(huge + rng.standard_normal(MOST))


def run_on_values(plan: Plan, order: random.Random | None = None) -> list[Floats]:
    """Run a plan on these numbers; return the receive buffers of all ranks."""
    assert plan.spec is not None
    collective = plan.spec.collective
    dtype = np.dtype(collective.datatype)
    sides = [
        [np.zeros(n, dtype) for n in plan.buffer_sizes[:, buffer]]
        for buffer in (Buffer.SEND, Buffer.RECV)
    ]
    held = precondition(collective, plan.n_ranks)
    for rank, buffer, offset, n in zip(
        held.rank, held.buffer, held.offset, held.count, strict=True
    ):
        sides[int(buffer != Buffer.SEND)][rank][offset : offset + n] = values_of(int(rank))[:n]
    run_local(plan, *sides, order=order)
    return sides[1]


def results_on_values(
    plan: Plan, order: random.Random | None = None
) -> dict[tuple[int, int, int], float]:
    """Return the results of a plan by rank, elements of the vector, and number of contributions."""
    assert plan.spec is not None
    received = run_on_values(plan, order)
    after = postcondition(plan.spec.collective, plan.n_ranks)
    columns = after.rank, after.offset, after.count, after.logical, after.last
    return {
        (rank, logical + i, last): float(received[rank][offset + i])
        for rank, offset, n, logical, last in zip(*(one.tolist() for one in columns), strict=True)
        for i in range(n)
    }


def in_rank_tree(first: int, last: int) -> Floats:
    """Return the sums of the numbers of some ranks in the rank tree, as its page defines it."""
    n = last - first
    if n == 1:
        return values_of(first)
    left = max(1 << k for k in range(n.bit_length()) if 1 << k < n)
    return np.asarray(in_rank_tree(first, first + left) + in_rank_tree(first + left, last))


def in_turns(last: int) -> Floats:
    """Return the sums of the numbers of ranks 0 to ``last - 1``, one rank after another."""
    total: Any = values_of(0)
    for rank in range(1, last):
        total = total + values_of(rank)
    return np.asarray(total)
