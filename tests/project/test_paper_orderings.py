"""Measurements of Träff and Hunold (2020) on Hydra, 36 nodes of 32 ranks, beside the preset.

Not their times, but which of their two decompositions is faster, and by about how much; and
where the model contradicts them.
"""

from __future__ import annotations

from functools import cache

import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.specs import PlanSpec
from folders import ROOT

HIERARCHICAL, FULL_LANE = "hierarchical", "full_lane"

# Components are those of MPI libraries: binomial trees for a bcast and a scatter; reductions of
# what is short by recursive doubling, as MPICH below 2 KiB, and of what is long by Rabenseifner's
# algorithm and its halves; recursive doubling for an allgather of less than 50,000 bytes in all,
# as Open MPI 4.0.2 has it on powers of two, rings for longer ones.
BCAST = {
    HIERARCHICAL: {"node": "binomial", "lane": "binomial"},
    FULL_LANE: {"node/scatter": "binomial", "node/allgather": "ring", "lane": "binomial"},
}
SHORT_BCAST = {
    HIERARCHICAL: BCAST[HIERARCHICAL],
    FULL_LANE: {**BCAST[FULL_LANE], "node/allgather": "recursive_doubling"},
}
SHORT_ALLREDUCE = {
    HIERARCHICAL: {
        "node/reduce": "binomial",
        "node/bcast": "binomial",
        "lane": "recursive_doubling",
    },
    FULL_LANE: {
        "node/reduce_scatter": "recursive_halving",
        "node/allgather": "recursive_doubling",
        "lane": "recursive_doubling",
    },
}
ALLREDUCE = {
    HIERARCHICAL: {
        "node/reduce": "rabenseifner",
        "node/bcast": "scatter_allgather",
        "lane": "rabenseifner",
    },
    FULL_LANE: {
        "node/reduce_scatter": "recursive_halving",
        "node/allgather": "recursive_doubling",
        "lane": "rabenseifner",
    },
}
SHORT_ALLGATHER = {
    HIERARCHICAL: {"node/gather": "binomial", "node/bcast": "binomial", "lane": "bruck"},
    FULL_LANE: {"node": "recursive_doubling", "lane": "bruck"},
}
ALLGATHER = {
    HIERARCHICAL: {"node/gather": "binomial", "node/bcast": "scatter_allgather", "lane": "ring"},
    FULL_LANE: {"node": "ring", "lane": "ring"},
}


@cache
def makespan_s(kind: str, count: int, name: str, is_short: bool, strided: bool = True) -> float:
    """Return the makespan of a decomposition on Hydra, or on one without a cost of strides."""
    table = {
        ("bcast", False): BCAST,
        ("bcast", True): SHORT_BCAST,
        ("allreduce", False): ALLREDUCE,
        ("allreduce", True): SHORT_ALLREDUCE,
        ("allgather", False): ALLGATHER,
        ("allgather", True): SHORT_ALLGATHER,
    }
    network = {} if strided else {"strided_ns_per_byte": 0}
    spec = PlanSpec.model_validate(
        {
            "machine": {"preset": "hydra", "network": network},
            "collective": {"kind": kind, "count": count, "datatype": "int32"},
            "decomposition": name,
            "algorithms": table[kind, is_short][name],
        }
    )
    return simulate(compile_plan(spec)).makespan_s


def speedup(kind: str, count: int, *, is_short: bool = False, strided: bool = True) -> float:
    """Return how many times as fast as the hierarchical one the full-lane plan is."""
    slow, fast = (
        makespan_s(kind, count, name, is_short, strided) for name in (HIERARCHICAL, FULL_LANE)
    )
    return slow / fast


@pytest.mark.parametrize("count", [115_200, 1_152_000])
@pytest.mark.parametrize("kind", ["bcast", "allreduce"])
def test_full_lane_is_about_twice_as_fast_for_long_vectors(kind: str, count: int) -> None:
    assert 1.6 <= speedup(kind, count) <= 2.2


def test_full_lane_is_faster_for_a_broadcast_from_11_520_elements_on() -> None:
    assert speedup("bcast", 11_520, is_short=True) > 1


def test_the_model_contradicts_the_paper_on_the_shortest_broadcast() -> None:
    """Measured: full-lane is faster at 1,152 elements, too. The page says so beside the figure.

    If this fails because the model has full-lane faster, it has come closer to the paper:
    mend the table in docs/cost-model.md.
    """
    modelled = speedup("bcast", 1152, is_short=True)
    assert modelled < 1
    page = (ROOT / "docs" / "cost-model.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| bcast | 1,152 |")]
    assert f"| {modelled:.2f} | **full-lane faster: contradicts the model** |" in row


@pytest.mark.parametrize("kind", ["bcast", "allreduce"])
def test_rounds_decide_in_the_model_where_vectors_are_shortest(kind: str) -> None:
    """The paper measured no vectors of 32 elements."""
    assert speedup(kind, 32, is_short=True) < 1


@pytest.mark.long
def test_full_lane_pays_for_an_allgather_of_short_blocks() -> None:
    assert speedup("allgather", 100, is_short=True) > 1.2


@pytest.mark.long
def test_strides_decide_an_allgather_of_long_blocks() -> None:
    assert speedup("allgather", 10_000, strided=False) > 1.2
    assert speedup("allgather", 10_000) < 0.9


def test_an_allgather_of_strided_blocks_takes_three_times_as_long_inside_a_node() -> None:
    one_node = PlanSpec.model_validate(
        {
            "machine": {"preset": "hydra", "nodes": 1},
            "collective": {"kind": "allgather", "count": 36 * 10_000, "datatype": "int32"},
            "algorithms": "ring",
        }
    )
    contiguous_s = simulate(compile_plan(one_node)).makespan_s
    with_s, without_s = (
        makespan_s("allgather", 10_000, FULL_LANE, False, strided) for strided in (True, False)
    )
    assert 2.8 <= (contiguous_s + with_s - without_s) / contiguous_s <= 3.2
