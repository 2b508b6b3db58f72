"""The pool of ranks survives whatever cases do to it, and says what they did."""

from __future__ import annotations

import pytest

import mpi_pool
from mpi_launching import MPIS
from mpi_pool import SIZE, CaseError, Pools


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("n_ranks", range(1, SIZE + 1))
def test_cases_run_on_the_first_ranks(n_ranks: int, mpi: str, pools: Pools) -> None:
    pool = pools.of(mpi)
    for count in (1, 1000):
        pool.run("pool_cases", "sums", n_ranks, {"count": count})
    assert pools.of(mpi) is pool


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize(
    ("case", "timeout_s", "said"),
    [
        ("fails_on_rank_1", 10, "rank 1 is wrong"),
        ("fails_everywhere", 10, "KeyError: 'rank 2'"),
        ("hangs", 3, "in hangs"),
        ("is_killed", 10, "no answer from ranks"),
        ("aborts", 10, "no answer from ranks"),
        ("leaves_a_thread", 10, "threads are still running: forgotten"),
    ],
)
def test_a_case_that_fails_is_one_failure(
    case: str, timeout_s: float, said: str, mpi: str, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_pool, "GRACE_S", 2.0)
    with pytest.raises(CaseError, match=said):
        pools.of(mpi).run("pool_cases", case, 3, {}, timeout_s=timeout_s)
    pools.of(mpi).run("pool_cases", "sums", 3, {"count": 5})
