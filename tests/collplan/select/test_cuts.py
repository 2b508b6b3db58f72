"""Messages in segments, and vectors in slices."""

from __future__ import annotations

from typing import Any

import numpy as np

import collplan
from collplan.select.cuts import (
    Slices,
    longest_pieces,
    own_segment,
    pieces,
    whole_elements,
    without_slices,
)
from collplan.specs import PlanSpec

SIZES = np.array([0, 100, 101])


def spec_with(count: int, *passes: dict[str, Any]) -> PlanSpec:
    collective = {"kind": "allreduce", "count": count}
    machine = {"nodes": 2, "ranks_per_node": 2}
    return collplan.parse_spec(
        {"machine": machine, "collective": collective, "passes": list(passes)}
    )


def test_segments_cut_long_messages_and_slices_cut_all() -> None:
    assert pieces(SIZES, None).tolist() == [1, 1, 1]
    assert pieces(SIZES, 50).tolist() == [1, 2, 3]
    assert pieces(SIZES, Slices(4)).tolist() == [4, 4, 4]
    assert longest_pieces(SIZES, None).tolist() == [0, 100, 101]
    assert longest_pieces(SIZES, 50).tolist() == [0, 50, 50]
    assert longest_pieces(SIZES, Slices(4)).tolist() == [0, 25, 25.25]


def test_segments_have_whole_elements() -> None:
    cuts = (None, 3, 20, Slices(2))
    assert [whole_elements(cut, 8) for cut in cuts] == [None, 8, 16, Slices(2)]


def test_the_smallest_segment_of_a_spec_counts() -> None:
    segments = ({"name": "segment", "options": {"max_bytes": size}} for size in (4096, "1KiB"))
    assert own_segment(spec_with(100, *segments)) == 1024
    assert own_segment(spec_with(100)) is None


def test_slices_are_no_more_than_elements() -> None:
    sliced = spec_with(3, {"name": "slice_vector", "options": {"slices": 5}})
    assert without_slices(sliced) == (spec_with(3), Slices(3))
    assert without_slices(spec_with(3)) == (spec_with(3), None)
