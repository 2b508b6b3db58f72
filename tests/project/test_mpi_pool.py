"""The pool of ranks survives whatever cases do to it, and says what they did."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import mpi_pool
from mpi_launching import MPIS, NOT_LAUNCHED, mpi_python
from mpi_pool import SIZES, CaseError, Pools

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def pairs_of_ranks() -> Iterator[Pools]:
    """Pools of two ranks, which start sooner than those that other tests use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mpi_pool, "SIZES", (2, 3))
        made = Pools()
        yield made
        made.close()


@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_cases_run_on_the_first_ranks(mpi: str, pools: Pools) -> None:
    pool = pools.of(mpi)
    for n_ranks in range(1, SIZES[0] + 1):
        for count in (1, 1000):
            pool.run("pool_cases", "sums", n_ranks, {"count": count})
        assert pools.of(mpi, n_ranks) is pool


def test_a_launcher_that_fails_to_start_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = mpi_pool.mpiexec_of(mpi_python("mpich"))
    flaky = tmp_path / "mpiexec"
    flaky.write_text(
        f'#!/bin/sh\n[ -e "$0.again" ] && exec {launcher} "$@"\n'
        f'touch "$0.again"; echo "{NOT_LAUNCHED}" >&2; exit 1\n'
    )
    flaky.chmod(0o755)
    monkeypatch.setattr(mpi_pool, "mpiexec_of", lambda _: flaky)
    monkeypatch.setattr(mpi_pool, "SIZES", (1,))
    pools = Pools()
    pools.of("mpich").run("pool_cases", "sums", 1, {"count": 1})
    pools.close()
    gc.collect()  # files of the first start would be a warning, which is an error


@pytest.mark.parametrize(
    ("case", "mpi", "said"),
    [
        ("fails_on_rank_1", "mpich", "rank 1 is wrong"),
        ("fails_everywhere", "openmpi", r"KeyError: 'rank \d'"),
        ("hangs", "mpich", "in hangs"),
        ("is_killed", "mpich", "no answer from ranks"),
        ("is_killed", "openmpi", "no answer from ranks"),
        ("aborts", "mpich", "no answer from ranks"),
        ("aborts", "openmpi", "no answer from ranks"),
        ("leaves_a_thread", "openmpi", "threads are still running: forgotten"),
    ],
)
def test_a_case_that_fails_is_one_failure(
    case: str, mpi: str, said: str, pairs_of_ranks: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = case == "hangs"
    monkeypatch.setattr(mpi_pool, "GRACE_S", 0.5)
    monkeypatch.setattr(mpi_pool, "STACKS_S", 60.0 if hangs else 0.1)
    timeout_s = 1.0 if hangs else 300.0
    arguments: dict[str, object] = {}
    with pytest.raises(CaseError, match=said):
        pairs_of_ranks.of(mpi).run("pool_cases", case, 2, arguments, timeout_s=timeout_s)
    pairs_of_ranks.of(mpi).run("pool_cases", "sums", 2, {"count": 5})


def test_a_case_with_more_ranks_replaces_the_pool(pairs_of_ranks: Pools) -> None:
    small = pairs_of_ranks.of("mpich")
    large = pairs_of_ranks.of("mpich", small.size + 1)
    assert not small.is_alive
    large.run("pool_cases", "sums", large.size, {"count": 5})
    large.run("pool_cases", "sums", 1, {"count": 5})
    assert pairs_of_ranks.of("mpich") is large
