"""Collectives of which each rank knows a part: what ranks agree on, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.api.rank_view import RankView, spec_of_all
from collplan.specs import CollplanError, SpecError


def test_blocks_that_ranks_keep_in_different_places_are_sent_to_each() -> None:
    views = [RankView("allgatherv", [2, 3], displs=[0, 2 + rank]) for rank in range(2)]
    collective: Any = spec_of_all(views, {"ranks_per_node": 2}).collective
    assert collective.kind == "alltoallv"
    assert collective.counts.to_json() == [[2, 2], [3, 3]]
    assert collective.recv_displs.to_json() == [[0, 2], [0, 3]]
    same = spec_of_all(views[:1] * 2, {"ranks_per_node": 2}).collective
    assert same.kind == "allgatherv"
    with pytest.raises(CollplanError, match="displs: ranks differ in where blocks begin"):
        spec_of_all(
            [RankView("allgatherv", [2, 3], displs=[0, 2 + r], in_place=True) for r in (0, 1)]
        )


def test_views_that_differ_or_are_of_no_vector_collective_are_refused() -> None:
    views = [RankView("allgatherv", [2, 3], datatype=name) for name in ("int32", "int64")]
    with pytest.raises(CollplanError, match="datatype: rank 0 calls with int32, rank 1 with int64"):
        spec_of_all(views)
    with pytest.raises(SpecError, match="kind: 'bcast' has no counts per rank; valid: gatherv, "):
        spec_of_all([RankView("bcast")])
    with pytest.raises(
        SpecError, match=r"'neighbor_alltoallv' has no counts per rank; valid: .*v$"
    ):
        spec_of_all([RankView("neighbor_alltoallv", [2])])
    with pytest.raises(SpecError, match=r"displs: has shape \(1,\); give one number for each rank"):
        spec_of_all([RankView("allgatherv", [2, 3], displs=[0])] * 2)
