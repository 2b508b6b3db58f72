"""The pool of ranks survives whatever cases do to it, and says what they did."""

from __future__ import annotations

import pytest

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
    ("case", "said"),
    [
        ("fails_on_rank_1", "rank 1 is wrong"),
        ("fails_everywhere", "KeyError: 'rank 2'"),
        ("hangs", "in hangs"),
        ("is_killed", "no answer from ranks"),
        ("aborts", "no answer from ranks"),
        ("leaves_a_thread", "threads are still running: forgotten"),
    ],
)
def test_a_case_that_fails_is_one_failure(case: str, said: str, mpi: str, pools: Pools) -> None:
    with pytest.raises(CaseError, match=said):
        pools.of(mpi).run("pool_cases", case, 3, {}, timeout_s=10)
    pools.of(mpi).run("pool_cases", "sums", 3, {"count": 5})
