"""Slices of a vector, each of which is computed as a separate collective."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import register_pass

SLICE_VECTOR: Final = "slice_vector"
DEFAULT_SLICES: Final = 4


@register_pass(
    SLICE_VECTOR,
    level="blueprint",
    locality="rank",
    comes_first=True,
    cuts=True,
    needs="at least two slices, and at least one element per slice",
)
def slice_vector(
    blueprint: Blueprint,
    slices: Annotated[int, Field(ge=1), "{} is not a number of at least 1"] = DEFAULT_SLICES,
) -> Blueprint:
    """Compute a vector in slices, which follow each other through the rounds.

    Every slice is a separate collective, which begins one round after the slice before it.
    Therefore a chain of p ranks and s slices takes p - 2 + s steps of 1/s of the vector. In
    contrast to the priorities of segments, each rank knows this order without the plan of all
    ranks.

    Parameters
    ----------
    blueprint : Blueprint
        Blueprint of a collective of one vector: bcast, reduce, allreduce, scan or exscan.
    slices : int
        Number of slices, at most that of elements. Lengths differ by at most one element.

    Raises
    ------
    AlgorithmError
        If the collective has blocks or no data.
    """
    spec = blueprint.spec
    collective = spec.collective
    if collective.has_blocks or not collective.has_data:
        raise AlgorithmError(
            f"passes.slice_vector: {collective.kind} has no vector to slice; use segment, which "
            "cuts messages, or leave it out"
        )
    n_slices = min(slices, collective.count)
    if n_slices < 2:
        return blueprint
    lengths = np.full(n_slices, collective.count // n_slices)
    lengths[: collective.count % n_slices] += 1
    made = {
        length: draft(
            spec.with_count(length), blueprint.decomposition, only_ranks=blueprint.only_ranks
        )
        for length in np.unique(lengths).tolist()
    }
    return replace(blueprint, slices=tuple(made[length] for length in lengths.tolist()))
