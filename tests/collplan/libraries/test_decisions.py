"""Rules of MPI libraries: what their sources say for single cases, and that no case is left out."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from collplan.libraries.decisions import (
    DECIDING,
    Nodes,
    RuleInputs,
    decide,
    decided_kinds,
    fewest_extra,
    title_of,
)
from collplan.specs.collectives.collective import COLLECTIVES


def case(
    kind: str, n_ranks: int, n_bytes: int, nodes: Nodes = "spread", **facts: Any
) -> RuleInputs:
    """Return a case of bytes: of a vector, or of all blocks."""
    has_blocks = COLLECTIVES[kind].has_blocks
    return RuleInputs(kind, n_ranks, nodes, n_bytes, 1, has_blocks, **facts)


def runs(library: str, of: RuleInputs) -> str:
    decision = decide(library, of)
    assert decision is not None
    return str(decision)


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (case("bcast", 8, 100), "knomial radix=4"),
        (case("bcast", 8, 63), "binary_tree"),
        (case("bcast", 16, 1_048_576), "scatter_allgather"),
        (case("bcast", 16, 1_048_576, "one"), "scatter_allgather"),
        (case("bcast", 16, 1_048_576, "several"), "han segment=65536"),
        (case("allreduce", 8, 8_191), "recursive_doubling"),
        (case("allreduce", 8, 8_192), "rabenseifner"),
        (case("allreduce", 128, 131_071), "nonoverlapping"),
        (case("allreduce", 8, 8_192, commutes=False), "recursive_doubling"),
        (case("allreduce", 8, 8_192, "several", commutes=False), "recursive_doubling"),
        (case("allgather", 2, 2), "two_proc"),
        (case("alltoall", 2, 4), "two_proc"),
        (case("alltoall", 2, 8), "pairwise"),
        (case("alltoallv", 100, 100), "pairwise"),
        (case("reduce", 4, 4_096), "chain fanout=1"),
        (case("reduce", 8, 100, commutes=False), "in-order_binary"),
        (case("barrier", 64, 0), "bruck"),
        (case("scan", 64, 100), "linear"),
    ],
)
def test_open_mpi_decides_as_its_source_says(of: RuleInputs, name: str) -> None:
    assert runs("openmpi", of) == name


def test_open_mpi_runs_another_where_its_algorithm_cannot_serve() -> None:
    names = {runs("openmpi", case("allgather", n, n * 64)) for n in range(33, 64)}
    # Recursive doubling would run Bruck's algorithm on such numbers of ranks.
    assert "recursive_doubling" not in names
    assert runs("openmpi", case("reduce", 3, 4)) == "rabenseifner"
    few = RuleInputs("allreduce", 300, "spread", 100, 64)
    assert runs("openmpi", few) == "basic_linear"


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (case("bcast", 8, 12_288), "binomial"),
        (case("bcast", 8, 12_289), "scatter_recursive_doubling_allgather"),
        (case("bcast", 8, 524_289), "scatter_ring_allgather"),
        (case("bcast", 12, 12_289), "scatter_ring_allgather"),
        (case("bcast", 12, 12_287, "several"), "smp"),
        (case("bcast", 12, 12_288, "several"), "binomial"),
        (case("bcast", 16, 524_287, "several"), "smp"),
        (case("bcast", 16, 524_288, "several"), "scatter_recursive_doubling_allgather"),
        (case("bcast", 16, 8, "one"), "release_gather segment=32768"),
        (case("allreduce", 12, 8), "recursive_doubling"),
        (case("allreduce", 12, 9), "reduce_scatter_allgather"),
        (case("allreduce", 12, 100, is_built_in=False), "recursive_doubling"),
        (RuleInputs("reduce", 12, "spread", 7, 1_000), "binomial"),
        (RuleInputs("reduce", 12, "spread", 8, 1_000), "reduce_scatter_gather"),
        (case("alltoall", 7, 7 * 256), "scattered"),
        (case("alltoall", 8, 8 * 256), "brucks"),
        (case("alltoall", 8, 8 * 257), "scattered"),
        (case("alltoall", 8, 8 * 32_769), "pairwise"),
        (case("alltoall", 8, 8, is_in_place=True), "pairwise_sendrecv_replace"),
        (case("allgather", 6, 81_919), "brucks"),
        (case("allgather", 6, 81_920), "ring"),
        (case("reduce_scatter_block", 6, 100), "recursive_halving folded"),
        (case("reduce_scatter_block", 8, 100, commutes=False), "noncommutative"),
        (case("scan", 8, 100, "several"), "smp"),
        (case("scan", 8, 100, "several", is_in_node_order=False), "recursive_doubling"),
        (case("barrier", 8, 0), "k_dissemination radix=2"),
    ],
)
def test_mpich_decides_as_its_source_says(of: RuleInputs, name: str) -> None:
    assert runs("mpich", of) == name


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (case("bcast", 2, 100_000), "knomial radix=2"),
        (case("bcast", 9, 32_767), "knomial radix=4"),
        (case("bcast", 9, 32_768), "sag_knomial radix=3"),
        (case("allreduce", 8, 4_095), "knomial radix=4"),
        (case("allreduce", 7, 4_096), "sra_knomial radix=7"),
        (case("allgather", 8, 4_096), "neighbor"),
        (case("allgather", 7, 4_096), "ring"),
        (case("allgather", 8, 4_096, is_in_node_order=False), "ring"),
        (case("alltoall", 64, 64 * 128), "bruck"),
        (case("alltoall", 64, 66_000), "pairwise posts=0"),
        (case("alltoall", 64, 66_048), "pairwise posts=1"),
        (case("alltoall", 32, 100_000), "pairwise posts=0"),
        (case("alltoallv", 64, 64), "hybrid radix=2"),
    ],
)
def test_ucc_decides_as_its_source_says(of: RuleInputs, name: str) -> None:
    assert runs("ucc", of) == name


def test_libraries_decide_nothing_for_collectives_that_they_lack() -> None:
    assert decide("ucc", case("scan", 8, 8)) is None
    assert "exscan" not in decided_kinds("ucc")


@pytest.mark.parametrize("library", DECIDING)
def test_every_case_has_an_algorithm_of_the_table_of_counterparts(library: str) -> None:
    kinds = decided_kinds(library)
    assert set(kinds) <= set(COLLECTIVES)
    assert title_of(library)
    sizes = (0, 1, 100, 1_000, 5_000, 20_000, 100_000, 10**6, 10**7)
    for kind, n_ranks, nodes, commutes, n_bytes in product(
        kinds, (1, 2, 3, 5, 8, 16, 33, 100, 300, 1_152, 5_000), ("one", "several", "spread"),
        (True, False), sizes,
    ):  # fmt: skip
        decision = decide(library, case(kind, n_ranks, n_bytes, nodes, commutes=commutes))
        assert decision is not None
        row = decision.counterpart
        assert row is not None, f"{library} {kind} {decision}"
        assert row.none or row.plan or decision.ours, f"{library} {kind} {decision}"
        assert bool(row.none) <= bool(decision.remark)
        if decision.ours is not None:
            assert not any(value in ("any", "k") for value in decision.ours.options.values())


def test_uccs_radix_leaves_the_fewest_ranks_over() -> None:
    for n_ranks in range(2, 200):
        radix = fewest_extra(case("bcast", n_ranks, 1))
        assert min(3, n_ranks) <= radix <= n_ranks
        power = max(radix**i for i in range(10) if radix**i <= n_ranks)
        assert n_ranks % power == 0, "the number of ranks itself leaves none"
    assert fewest_extra(case("bcast", 24, 1, "several", domain_size=8)) == 6
    assert fewest_extra(case("bcast", 27, 1, "several", domain_size=8)) == 3
    assert fewest_extra(case("bcast", 27, 1, "several", domain_size=1)) == 4
    # Radix 3 would leave fewer over, but a socket has two ranks.
    assert fewest_extra(case("bcast", 7, 1, "several", domain_size=2)) == 2


def test_remarks_say_where_messages_differ() -> None:
    def remark(library: str, of: RuleInputs) -> str:
        decision = decide(library, of)
        assert decision is not None
        return decision.remark

    assert remark("ucc", case("allreduce", 16, 100)) == ""
    assert "no power" in remark("ucc", case("allreduce", 12, 100))
    assert "libnbc" in remark("openmpi", case("bcast", 16, 100, "several"))
    assert remark("mpich", case("barrier", 16, 0, "several")) == "", "ours is hierarchical, too"
