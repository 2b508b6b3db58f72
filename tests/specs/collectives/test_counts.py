"""Tables of counts and distributions: how they are written, drawn and checked."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.specs import PlanSpec, SpecError, Table, parse_spec
from collplan.specs.collectives.counts import Distribution, scaled

DISTRIBUTIONS = ("uniform", "linear", "zipf", "spike", "sparse")


def vector(kind="gatherv", n_ranks=3, **fields):
    return {"machine": {"ranks_per_node": n_ranks}, "collective": {"kind": kind, **fields}}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("shape", [(1,), (7,), (1, 1), (5, 5)], ids=str)
def test_distributions_have_the_total_and_are_the_same_for_a_seed(name, shape):
    for total in (0, 1, 3, 1000, 2**40 + 1):
        counts = Distribution(distribution=name, total=total, seed=4).table(shape)
        assert counts.shape == shape
        assert counts.min() >= 0
        assert counts.sum() == total
        again = Distribution(distribution=name, total=total, seed=4).table(shape)
        assert (counts == again).all()


def test_distributions_are_what_their_names_say():
    def drawn(name, shape):
        return Distribution(distribution=name, total=10_000, seed=1).table(shape)

    assert sorted(drawn("linear", (4,))) == [1000, 2000, 3000, 4000]
    ranked = sorted(drawn("zipf", (4,)), reverse=True)
    assert ranked == [4800, 2400, 1600, 1200]
    assert np.count_nonzero(drawn("spike", (9,))) == 1
    (sender,) = np.flatnonzero(drawn("spike", (9, 9)).sum(axis=1))
    assert set(drawn("spike", (9, 9))[sender]) <= {1111, 1112}
    assert np.count_nonzero(drawn("sparse", (100,))) == 10
    assert len(set(drawn("uniform", (50,)))) > 40
    assert any(
        not np.array_equal(drawn("linear", (9,)), Distribution(
            distribution="linear", total=10_000, seed=seed).table((9,)))
        for seed in range(2, 5)
    )  # fmt: skip


def test_counts_are_written_as_they_were_given():
    for counts in ([3, 0, 5], {"distribution": "zipf", "total": 9, "seed": 2}):
        spec = parse_spec(vector(counts=counts, displs=[9, 3, 0]))
        assert spec.model_dump(mode="json")["collective"]["counts"] == counts
        assert PlanSpec.model_validate_json(spec.to_json()) == spec
        assert hash(PlanSpec.model_validate_json(spec.to_json())) == hash(spec)
    assert Table(np.array([1, 2], np.uint8)) == Table((1, 2)) != Table((2, 1))


def test_totals_beyond_32_bits_are_counted():
    spec = parse_spec(vector(counts=[2**31, 2**31, 5]))
    assert spec.collective.count == 2**32 + 5


def test_other_totals_keep_the_proportions():
    assert scaled(Table([1, 2, 3]), 60) == Table([10, 20, 30])
    assert scaled(Table([1, 0, 1]), 3) == Table([2, 0, 1])
    assert scaled(Table([0, 0]), 4) == Table([2, 2]), "where nothing was, all get the same"
    spec = parse_spec(vector(counts=[1, 2, 3], displs=[7, 5, 0])).with_count(12)
    assert spec.collective.counts == Table([2, 4, 6])
    assert spec.collective.displs is None


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("gatherv", {"counts": [1, 2]}, "has entries for 2 ranks, the machine has 3"),
        ("gatherv", {"counts": [1, -2, 1]}, r"counts: -2 \(rank 1\) is negative; give 0 or more"),
        ("gatherv", {"counts": [1, 2.5, 1]}, r"2.5 \(rank 1\) is not a whole number"),
        ("gatherv", {"counts": [1, True, 1]}, r"True \(rank 1\) is not a whole number"),
        ("gatherv", {"counts": "1, 2"}, "is no list of numbers"),
        ("gatherv", {"counts": 4}, "4 is not a list of numbers; give one per rank"),
        ("gatherv", {"counts": [[1, 2, 3]] * 3}, "counts is a matrix; gatherv needs a list"),
        ("gatherv", {"counts": [1, 2, 2**60]}, "is too large; give 72057594037927936 or less"),
        ("gatherv", {"counts": [1, 2, 1e300]}, r"1e\+300 \(rank 2\) is too large"),
        ("gatherv", {"counts": [2**55] * 3}, "elements in all; give at most"),
        ("gatherv", {"counts": {"distribution": "zip", "total": 1}}, "use uniform, linear, zipf"),
        ("gatherv", {"counts": {"distribution": "zipf"}}, "counts.total: is missing"),
        ("gatherv", {"count": 3}, "unknown key; did you mean 'counts'"),
        ("gatherv", {"counts": [2, 2, 2], "displs": [0, 1, 5]}, "rank 0's 2 elements from 0 and "
         "rank 1's 2 elements from 1 overlap"),
        ("allgatherv", {"counts": [1, 1, 1], "displs": [0, 1]}, "displs: has entries for 2 ranks"),
        ("alltoallv", {"counts": [1, 2, 3]}, "counts is a list; alltoallv needs a matrix"),
        ("alltoallv", {"counts": [[1, 2, 3]] * 2}, "2 rows of 3 numbers; it must be square"),
        ("alltoallv", {"counts": [[1, 2, 3], [1, 2]]}, "the rows differ in length"),
        ("alltoallv", {"counts": [[1] * 3] * 3, "recv_displs": [[0, 1, 2], [0, 0, 5], [0, 1, 2]]},
         "rank 0's 1 elements from 0 and rank 1's 1 elements from 0 overlap in rank 1's buffer"),
        ("alltoallv", {"counts": [[0, 1, 0], [2, 0, 0], [0, 0, 0]], "in_place": True},
         "rank 0 has 1 elements for rank 1, which has 2 for it; in place both"),
        ("alltoallv", {"counts": [[1] * 3] * 3, "in_place": True, "send_displs": [[0, 1, 2]] * 3},
         "send_displs: in place, blocks are sent from where recv_displs puts them"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused_in_a_line(kind, fields, words):
    with pytest.raises(SpecError, match=words) as raised:
        parse_spec(vector(kind, **fields))
    assert "\n" not in str(raised.value)


def test_blocks_may_be_sent_more_than_once():
    parse_spec(vector("scatterv", counts=[2, 2, 2], displs=[0, 1, 0]))
    parse_spec(vector("alltoallv", counts=[[1] * 3] * 3, send_displs=[[0] * 3] * 3))
