"""Cuts of the messages of a plan, into segments or by slices of the vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Floats, Ints
from collplan.planner.passes.slice_vector import DEFAULT_SLICES, SLICE_VECTOR
from collplan.specs import PlanSpec, parse_bytes


@dataclass(frozen=True)
class Slices:
    """Slices of a vector, which also cut each message.

    Parameters
    ----------
    number : int
        Number of slices.
    crossing_bytes : float
        Size of the longest message of a slice between nodes, in bytes.
    """

    number: int
    crossing_bytes: float = 0.0

    def __str__(self) -> str:
        return f"{self.number} slices"


Cut = int | Slices | None
"""Cut of messages: bytes of segments, or slices of the vector; None for whole messages."""


def pieces(n_bytes: Ints | Floats, cut: Cut) -> Floats:
    """Return the number of pieces of each message or step."""
    if isinstance(cut, Slices):
        return np.full(len(n_bytes), float(cut.number))
    return np.ones(len(n_bytes)) if cut is None else np.maximum(1.0, -(-n_bytes // cut))


def longest_pieces(n_bytes: Ints | Floats, cut: Cut) -> Ints | Floats:
    """Return the size of the longest piece of each message in bytes."""
    if isinstance(cut, Slices):
        return n_bytes / cut.number
    return n_bytes if cut is None else np.minimum(n_bytes, cut)


def whole_elements(cut: Cut, itemsize: int) -> Cut:
    """Return a cut with segments of whole elements, of at least one."""
    return max(1, cut // itemsize) * itemsize if isinstance(cut, int) else cut


def own_segment(spec: PlanSpec) -> int | None:
    """Return the segment size in bytes of a spec's passes; None if they do not cut messages."""
    given = [c.options.get("max_bytes") for c in spec.passes if c.name == "segment"]
    try:
        return min((parse_bytes(size) for size in given if size is not None), default=None) or None
    except ValueError:
        return None  # the pass itself reports the error


def without_slices(spec: PlanSpec) -> tuple[PlanSpec, Slices | None]:
    """Return a spec without the pass that slices its vector, and the slices."""
    for choice in spec.passes:
        number = choice.options.get("slices", DEFAULT_SLICES)
        if choice.name == SLICE_VECTOR and isinstance(number, int) and spec.collective.count:
            passes = tuple(one for one in spec.passes if one is not choice)
            return spec.replace(passes=passes), Slices(min(number, spec.collective.count))
    return spec, None
