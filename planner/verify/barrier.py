"""A barrier's promise: nobody leaves before everybody has come."""

from __future__ import annotations

import numpy as np

from collplan.planner.errors import MissingContributionError
from collplan.planner.plan.plan import Plan
from collplan.planner.verify.order import Execution, spread


def check_barrier(plan: Plan, execution: Execution) -> None:
    """Raise `MissingContributionError` where a rank may leave without having heard of another."""
    events = execution.events()
    for first in range(0, plan.n_ranks, 64):
        group = np.arange(first, min(first + 64, plan.n_ranks))
        bits = np.zeros(plan.n_ranks, dtype=np.uint64)
        bits[group] = np.uint64(1) << (group - first).astype(np.uint64)
        known = bits.copy()
        np.bitwise_or.at(known, plan.rank, spread(execution, events, bits[plan.rank])[1])
        everybody = np.bitwise_or.reduce(bits)
        if (known != everybody).any():
            rank = int(np.argmax(known != everybody))
            lacking = int(known[rank] ^ everybody)
            other = first + (lacking & -lacking).bit_length() - 1
            raise MissingContributionError(
                f"rank {rank} may leave the barrier before rank {other} has come"
            )
