"""Vector collectives of the drop-in under both MPIs, and when ranks meet about their counts."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.parametrize(
    ("displs", "first", "is_apart"),
    [(None, 0, False), ([0, 2], 0, False), ([3, 5], 3, False), ([7, 2], 0, True)],
)
def test_blocks_are_read_where_they_lie(
    displs: list[int] | None, first: int, is_apart: bool
) -> None:
    from collplan.dropin.arguments import KINDS
    from collplan.dropin.vector_arguments import read_vector_arguments

    own, buffer = np.zeros(3), np.zeros(12)
    given = [buffer, [2, 3], displs, MPI.DOUBLE]
    found = read_vector_arguments(KINDS["allgatherv"], own, given, None, 0, 1, 2)
    assert found.n_bytes == 24
    assert found.counts.counts.tolist() == [16, 24]
    received = found.received
    assert received.address == buffer.ctypes.data + 8 * first
    assert received.is_apart == is_apart
    if is_apart:
        assert (received.layout.counts, received.layout.displs) == ([2, 3], displs)


def test_ranks_of_an_alltoallv_know_their_own_counts_only() -> None:
    from collplan.dropin.arguments import KINDS
    from collplan.dropin.vector_arguments import read_vector_arguments

    sent, received = np.zeros(6), np.zeros(5)
    sides = [sent, [2, 4], None, MPI.DOUBLE], [received, [4, 1], None, MPI.DOUBLE]
    counts = read_vector_arguments(KINDS["alltoallv"], *sides, None, 0, 0, 2).counts
    assert counts.counts.tolist() == [16, 32]
    assert counts.received.tolist() == [32, 8]


def test_only_the_root_may_broadcast_from_memory_that_is_not_written() -> None:
    from collplan.dropin.arguments import KINDS, read_arguments

    buffer = np.zeros(4)
    buffer.flags.writeable = False
    found = read_arguments(KINDS["bcast"], None, buffer, 0, 0, 2)
    assert not found.received.is_reachable
    with pytest.raises(Exception, match=r"writ|read"):
        read_arguments(KINDS["bcast"], None, buffer, 0, 1, 2)
