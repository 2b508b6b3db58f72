"""Non-blocking collectives of C programs: where their thread runs, and what plans run them."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from collplan.preload import helper
from collplan.preload.helper import Helper
from collplan.preload.teams import MASK_AT, N_FACTS
from collplan.tune.table import save_table
from mpi_launching import MPIS, run
from native_building import built, exec_line
from tables_everywhere import planning_table

if sys.platform != "linux":
    pytest.skip("LD_PRELOAD is Linux's: native programs run there", allow_module_level=True)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table of plans that pass messages, for all sizes of non-blocking calls."""
    path = tmp_path / "table.json"
    save_table(planning_table(4, overlaps=True), path)
    return path


def places_of(out: str) -> dict[str, str]:
    """Return what `places.c` prints: processors by thread."""
    return dict(line.split(": ") for line in out.splitlines())


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_and_their_threads_are_bound_to_processors(mpi: str, table: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    first, last = usable[0], usable[-1]
    cores = ("--cores", f"{first},{first},{last}")
    done = run(exec_line(mpi, table, 2, *cores, built(mpi, "places.c")))
    assert done.returncode == 0, done.stderr
    places = {"program": str(first), "thread": str(last)}
    expected = {f"{name} of rank {rank}": on for name, on in places.items() for rank in range(2)}
    assert places_of(done.stdout) == expected


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_thread_runs_on_a_core_to_spare(mpi: str, table: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        pytest.skip("one processor leaves none to spare")
    done = run(exec_line(mpi, table, 1, built(mpi, "places.c")))
    assert done.returncode == 0, done.stderr
    found = places_of(done.stdout)
    assert found["program of rank 0"] == " ".join(map(str, usable))
    assert found["thread of rank 0"] in map(str, usable)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize(
    ("cores", "why"),
    [
        ("0", "cores: 1 processors, a node has 2 ranks"),
        ("0,8000,1", "processor 8000: rank 1 cannot be kept there"),
    ],
)
def test_wrong_cores_bind_no_rank_and_one_line_says_so(
    mpi: str, cores: str, why: str, table: Path
) -> None:
    done = run(exec_line(mpi, table, 2, "--cores", cores, built(mpi, "places.c")))
    assert done.returncode == 0, done.stderr
    everywhere = " ".join(map(str, sorted(os.sched_getaffinity(0))))
    assert set(places_of(done.stdout).values()) == {everywhere}
    assert done.stderr.count(why) == 1
    assert done.stderr.count("ranks are not bound to processors") == 1


def test_the_helper_knows_the_processors_of_all_ranks(
    monkeypatch: pytest.MonkeyPatch, table: Path
) -> None:
    monkeypatch.setenv(helper.TABLE, str(table))
    monkeypatch.setenv(helper.FORCE, "1")
    answering = Helper()
    sizes = helper.HANDLE_BYTES, helper.STATUS_BYTES
    hello = struct.pack("<7q", os.getpid(), 0, 3, 2, *sizes, 2**20) + b"MPICH Version: 4.2"
    assert answering.answer(helper.HELLO, hello)[0] == 0
    facts = np.zeros((3, N_FACTS), np.uint64)
    facts[:, 0], facts[:, 1], facts[:, MASK_AT] = (7, 7, 8), (1, 1, 2), 0b111

    def place(rank: int) -> tuple[int, ...]:
        message = struct.pack("<qq", rank, 3) + facts.tobytes()
        status, text = answering.answer(helper.PLACE, message)
        assert status == 0, text
        return struct.unpack("<3q", text)

    assert [place(rank) for rank in range(3)] == [(-1, 2, 2), (-1, 2, 2), (-1, 1, 1)]
    monkeypatch.setenv(helper.CORES, "4,5,7")
    assert [place(rank) for rank in range(3)] == [(4, 7, 7), (5, 7, 7), (4, 5, 5)]
