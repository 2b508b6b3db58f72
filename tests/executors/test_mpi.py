"""Every algorithm on real ranks, with both MPIs, against numpy."""

from __future__ import annotations

import pytest

from folders import HELPERS
from mpi_launching import MPIS, assert_passes, mpirun
from oracle import REGULAR, VECTORS

conformance = pytest.importorskip("conformance", reason="mpi4py is not installed")
irregular_conformance = pytest.importorskip("irregular_conformance", reason="needs mpi4py")


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("kind", REGULAR)
def test_all_algorithms(comm, kind: str) -> None:
    assert conformance.run_all(comm, kind) > 0


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("kind", VECTORS.values())
def test_counts_that_differ_per_rank(comm, kind: str) -> None:
    """Algorithms, decompositions, distributions, roots, in place and gaps take turns."""
    assert irregular_conformance.run_all(comm, kind) > 0


@pytest.mark.ranks(1, 2, 3, 4)
def test_reduces_gathered_at_the_roots_node(comm) -> None:
    """All roots, on nodes of every split in two, in order and in any order, in place or not."""
    assert conformance.run_gathered(comm) > 0


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("kind", REGULAR)
def test_native_components(comm, kind: str) -> None:
    assert conformance.run_native(comm, kind) > 0


@pytest.mark.parametrize("mpi", MPIS)
def test_more_ranks_than_a_pool_has(mpi: str) -> None:
    """Of the collectives only a part: the ranks share two cores.

    All algorithms run on 7 ranks. One launch has all numbers of ranks, as Python takes longest
    to start.
    """
    n_ranks = ("7", "5", "8") if mpi == "openmpi" else ("7", "6", "17")
    program = str(HELPERS / "irregular_conformance.py")
    assert_passes(mpirun(max(map(int, n_ranks)), program, *n_ranks, mpi=mpi, timeout_s=600))
