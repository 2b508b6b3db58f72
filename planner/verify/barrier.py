"""A barrier's promise: nobody leaves before everybody has come."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays.jit import compiled
from collplan.planner.errors import MissingContributionError
from collplan.planner.plan.matching import Rows
from collplan.planner.plan.plan import Plan
from collplan.planner.verify.order import event_order

Ints = npt.NDArray[np.integer[Any]]


def check_barrier(plan: Plan, sends: Rows, recvs: Rows, start: Ints, completion: Ints) -> None:
    """Raise `MissingContributionError` where a rank may leave without having heard of another."""
    sender = np.full(plan.n_tasks, -1, dtype=np.int64)
    sender[recvs] = sends
    # Eager messages: what a receive knows comes from the start of its send.
    events = event_order(start, completion)
    for first in range(0, plan.n_ranks, 64):
        group = np.arange(first, min(first + 64, plan.n_ranks))
        known = _spread_news(
            np.ascontiguousarray(plan.deps.indptr),
            np.ascontiguousarray(plan.deps.task),
            np.ascontiguousarray(plan.deps.kind),
            np.ascontiguousarray(plan.rank),
            sender,
            events,
            plan.n_ranks,
            first,
        )
        everybody = np.uint64(2 ** len(group) - 1)
        if (known != everybody).any():
            rank = int(np.argmax(known != everybody))
            lacking = int(known[rank] ^ everybody)
            other = first + (lacking & -lacking).bit_length() - 1
            raise MissingContributionError(
                f"rank {rank} may leave the barrier before rank {other} has come"
            )


@compiled
def _spread_news(
    indptr: Ints, before: Ints, kind: Ints, rank: Ints, sender: Ints, events: Ints,
    n_ranks: int, first: int,
) -> Any:  # fmt: skip
    """Return, rank by rank, who of `first` to `first + 63` it has heard of when it leaves."""
    n = len(rank)
    at_start = np.zeros(n, np.uint64)
    at_end = np.zeros(n, np.uint64)
    known = np.zeros(n_ranks, np.uint64)
    for r in range(first, min(first + 64, n_ranks)):
        known[r] = np.uint64(1) << np.uint64(r - first)
    for event in events:
        if event < n:
            if first <= rank[event] < first + 64:
                at_start[event] |= np.uint64(1) << np.uint64(rank[event] - first)
            for j in range(indptr[event], indptr[event + 1]):
                on_start = (kind[j] & 1) != 0
                at_start[event] |= at_start[before[j]] if on_start else at_end[before[j]]
        else:
            task = event - n
            at_end[task] = at_start[task]
            if sender[task] >= 0:
                at_end[task] |= at_start[sender[task]]
            known[rank[task]] |= at_end[task]
    return known
