"""Counts as each rank knows them: the table of all ranks, and what does not match, named."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.api.rank_counts import RankCounts, counts_of_all
from collplan.specs import CollplanError


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_the_root_knows_the_counts_of_all() -> None:
    for kind in ("gatherv", "scatterv"):
        ranks = [RankCounts(kind, own=4, root=1), RankCounts(kind, ints(4, 9), None, root=1)]
        assert counts_of_all(ranks).tolist() == [4, 9]


def test_every_rank_knows_the_counts_of_all_or_its_own() -> None:
    both = ints(3, 0)
    ranks = [RankCounts("allgatherv", both, own=3), RankCounts("allgatherv", both)]
    assert counts_of_all(ranks).tolist() == [3, 0]
    ranks = [RankCounts("reduce_scatter", own=3), RankCounts("reduce_scatter", own=0)]
    assert counts_of_all(ranks).tolist() == [3, 0]
    ranks = [RankCounts("reduce_scatter", own=3), RankCounts("reduce_scatter", both)]
    assert counts_of_all(ranks).tolist() == [3, 0]


def test_alltoallv_has_a_row_per_sender() -> None:
    ranks = [
        RankCounts("alltoallv", ints(1, 2), received=ints(1, 3)),
        RankCounts("alltoallv", ints(3, 4), received=ints(2, 4)),
    ]
    assert counts_of_all(ranks).tolist() == [[1, 2], [3, 4]]
    in_place = [RankCounts("alltoallv", received=ints(1, 2)) for _ in range(2)]
    with pytest.raises(CollplanError, match="rank 0 sends 2 elements to rank 1, which receives 1"):
        counts_of_all(in_place)


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (
            [RankCounts("gatherv", ints(4, 9), own=4), RankCounts("gatherv", own=8)],
            "counts: rank 1 sends 8 elements, rank 0 has 9 for its block; both must be equal",
        ),
        (
            [RankCounts("scatterv", ints(4, 9), own=4), RankCounts("scatterv", own=8)],
            "counts: rank 1 receives 8 elements, rank 0 has 9 for its block; both must be equal",
        ),
        (
            [RankCounts("allgatherv", ints(4, 9)), RankCounts("allgatherv", ints(4, 7))],
            "counts: rank 0 has 9 elements for the block of rank 1, rank 1 has 7; "
            "both must be equal",
        ),
        (
            [RankCounts("alltoallv", ints(1, 2), received=ints(1, 3))] * 2,
            "counts: rank 0 sends 2 elements to rank 1, which receives 1 from it; "
            "both must be equal",
        ),
        (
            [RankCounts("gatherv", ints(1, 2)), RankCounts("gatherv", own=2, root=1)],
            "root: rank 0 calls with 0, rank 1 with 1; both must be equal",
        ),
        (
            [RankCounts("gatherv", own=2), RankCounts("scatterv", own=2)],
            "kind: rank 0 calls with gatherv, rank 1 with scatterv; both must be equal",
        ),
        (
            [RankCounts("allgatherv", ints(1, 2, 3))] * 2,
            "counts: rank 0 has 3, there are 2 ranks; give one for every rank",
        ),
        (
            [RankCounts("gatherv", own=2)] * 2,
            "counts: no rank has those of all blocks; gatherv needs them",
        ),
        (
            [RankCounts("alltoallv", ints(1, 2))] * 2,
            "counts: alltoallv needs what each rank receives; give it",
        ),
    ],
)
def test_what_does_not_match_is_named(ranks: list[RankCounts], said: str) -> None:
    with pytest.raises(CollplanError) as caught:
        counts_of_all(ranks)
    assert str(caught.value) == said


def test_digests_differ_where_counts_do() -> None:
    one = RankCounts("alltoallv", ints(1, 2), received=ints(3))
    others = [
        RankCounts("alltoallv", ints(1, 2, 3)),
        RankCounts("alltoallv", received=ints(1, 2, 3)),
        RankCounts("alltoallv", ints(1), received=ints(2, 3)),
        RankCounts("gatherv", ints(1, 2, 3), root=1),
        RankCounts("gatherv", ints(1, 2, 3), own=1),
    ]
    digests = {one.digest(), one.digest("sum"), *(other.digest() for other in others)}
    assert len(digests) == 7
    assert RankCounts("alltoallv", ints(1, 2), received=ints(3)).digest() == one.digest()
