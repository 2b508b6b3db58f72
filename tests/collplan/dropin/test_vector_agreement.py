"""Vector collectives of the drop-in under both MPIs, and when ranks meet about their counts."""

from __future__ import annotations

import pytest

from check_names import checks_of

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed: pip install '.[mpich]'")
run_check = pytest.importorskip("drop_in_calls").run_check


@pytest.mark.ranks(1, 3)
@pytest.mark.parametrize("check", checks_of("vectors.py"))
def test_vector_collectives_leave_what_native_mpi_leaves(comm: MPI.Intracomm, check: str) -> None:
    run_check(comm, "vectors.py", check)


def test_meetings_in_vain_become_rare_and_start_anew() -> None:
    from collplan.dropin.vector_agreement import FREE, MOST_LEFT, Backoff

    backoff, gaps = Backoff(), []
    for _turn in range(FREE + 20):
        assert backoff.why_not_now() is None
        backoff.note_in_vain("changed")
        gaps.append(backoff.n_left)
        while backoff.n_left:
            assert backoff.why_not_now() == "changed"
    assert not any(gaps[: FREE + 1])
    assert gaps[FREE + 1 :: 2] == [min(2**n, MOST_LEFT) for n in range(1, 11)]
    assert not any(gaps[FREE::2])
