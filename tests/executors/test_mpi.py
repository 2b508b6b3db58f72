"""Every algorithm on real ranks, with both MPIs, against numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from oracle import REGULAR, VECTORS
from tiers import covering

conformance = pytest.importorskip("conformance", reason="mpi4py is not installed")
irregular_conformance = pytest.importorskip("irregular_conformance", reason="needs mpi4py")
packed_conformance = pytest.importorskip("packed_conformance", reason="needs mpi4py")
native_conformance = pytest.importorskip("native_conformance", reason="needs mpi4py")
Cases = list[dict[str, Any]]


def of_ranks(of_kinds: Iterable[Sequence[dict[str, Any]]], request: pytest.FixtureRequest) -> Cases:
    """Return the cases of the test's MPI and number of ranks that run."""
    place = request.node.callspec.params["comm"]
    taken = [one for cases in of_kinds for one in covering(cases)]
    return [one for one in taken if (one["mpi"], one["ranks"]) == place]


@pytest.fixture
def regular(request: pytest.FixtureRequest) -> Cases:
    return of_ranks(map(conformance.cases, REGULAR), request)


@pytest.fixture
def irregular(request: pytest.FixtureRequest) -> Cases:
    return of_ranks(map(irregular_conformance.cases, VECTORS.values()), request)


@pytest.fixture
def gathered(request: pytest.FixtureRequest) -> Cases:
    return of_ranks([conformance.gathered_cases()], request)


@pytest.fixture
def native(request: pytest.FixtureRequest) -> Cases:
    return of_ranks([native_conformance.cases()], request)


@pytest.mark.each_mpi
@pytest.mark.ranks(*conformance.SIZES)
def test_all_algorithms(comm, regular: Cases) -> None:
    conformance.run_cases(comm, conformance.run, regular)


@pytest.mark.each_mpi
@pytest.mark.ranks(*irregular_conformance.SIZES)
def test_counts_that_differ_per_rank(comm, irregular: Cases) -> None:
    conformance.run_cases(comm, irregular_conformance.run, irregular)


@pytest.mark.each_mpi
@pytest.mark.ranks(*conformance.GATHERED_SIZES)
def test_reduces_gathered_at_the_roots_node(comm, gathered: Cases) -> None:
    conformance.run_cases(comm, conformance.run_gathered, gathered)


@pytest.mark.each_mpi
@pytest.mark.ranks(*native_conformance.SIZES)
def test_native_components(comm, native: Cases) -> None:
    conformance.run_cases(comm, native_conformance.run, native)


@pytest.mark.each_mpi
@pytest.mark.ranks(*packed_conformance.SIZES)
def test_packed_algorithms(comm) -> None:
    conformance.run_cases(comm, packed_conformance.run, packed_conformance.cases())
