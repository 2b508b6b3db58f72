"""Background tasks in threads on communication cores, under both MPIs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from collplan.executors.mpi.binding.background import _cores_of, _Fact, _NoThreadError
from mpi_launching import MPIS, assert_passes, mpi_python, mpirun, run


@pytest.mark.system
@pytest.mark.parametrize(("n_ranks", "mpi", "n_starts"), [(2, "openmpi", 5), (3, "mpich", 3)])
def test_background(n_ranks: int, mpi: str, n_starts: int) -> None:
    """Starts of half of 44 plans overlap, and other calls come between and after them."""
    assert_passes(mpirun(n_ranks, "progress.py", str(n_starts), mpi=mpi))


@pytest.mark.system
def test_a_rank_that_does_not_start() -> None:
    """A rank that waits for a thread says what the thread waits for."""
    result = mpirun(2, "progress_ends.py", "stalls")
    assert result.returncode != 0
    assert re.search(r"rank 1: recv from 0 tag \d+ .* has not arrived", result.stderr)


@pytest.mark.system
def test_mpi_that_lets_in_one_thread() -> None:
    level = {"MPI4PY_RC_THREAD_LEVEL": "serialized"}
    result = mpirun(2, "progress_ends.py", "few_may_call_mpi", **level)
    assert_passes(result)
    # Else there was nothing to test.
    assert "thread level 2" in result.stdout


@pytest.mark.system
def test_the_command_line_warns(tmp_path: Path) -> None:
    """With fewer processors than cores, a run is right and says what it did."""
    spec = tmp_path / "bcast.yaml"
    spec.write_text(
        "machine: {ranks_per_node: 2, cores: 5000}\n"
        "collective: {kind: bcast, count: 8}\n"
        "passes: [place_progress]\n"
    )
    command = ["-m", "collplan", "run", str(spec), "--json", "--repetitions", "1"]
    result = run([str(mpi_python("mpich")), *command])
    assert result.returncode == 0, result.stderr
    why = "rank 0: the plan's node 0 has 5000 cores, its ranks may use "
    assert f"callers run background tasks: {why}" in result.stderr
    report = json.loads(result.stdout)
    assert report["progress"] == "caller"
    assert report["why_caller"].startswith(why)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_the_command_line_places_ranks_and_threads(tmp_path: Path, mpi: str) -> None:
    spec = tmp_path / "bcast.yaml"
    spec.write_text(
        "machine: {ranks_per_node: 2, cores: 3}\n"
        "collective: {kind: bcast, count: 8}\n"
        "passes: [place_progress]\n"
    )
    processors = sorted(os.sched_getaffinity(0))
    cores = f"{processors[0]},{processors[-1]},{processors[-1]}"
    command = ["-m", "collplan", "run", str(spec), "--json", "--repetitions", "1"]
    result = run([str(mpi_python(mpi)), *command, "--cores", cores])
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["correct"], report["progress"]) == (True, "thread")
    if mpi == "mpich":
        # One rank cannot be where it should, and none waits for it.
        result = run([str(mpi_python(mpi)), *command, "--cores", "0,9999,0"])
        assert result.returncode == 2, result.stderr
        assert "processor 9999: the thread cannot be kept there" in result.stderr, result.stderr


def fact(host: str, node: int, n_cores: int) -> _Fact:
    return _Fact(host, f"host {host}", range(8), node, n_cores)


def test_nodes_on_one_host_take_its_processors_in_turn() -> None:
    facts = [fact("a", 4, 3), fact("a", 2, 2), fact("b", 3, 8), fact("a", 2, 2)]
    found = [list(_cores_of(facts, rank)) for rank in range(4)]
    assert found == [[2, 3, 4], [0, 1], list(range(8)), [0, 1]]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            [fact("a", 0, 1), fact("b", 1, 1), fact("b", 0, 1)],
            "rank 0 runs on host a and rank 2 of the same node of the plan on host b",
        ),
        ([fact("a", 0, 9)], "the plan's node 0 has 9 cores, its ranks may use 8 processors"),
        ([fact("a", 0, 4), fact("a", 1, 5)], "the plan's 2 nodes here have 9 cores"),
    ],
)
def test_a_node_needs_its_processors_on_one_host(facts: list[_Fact], words: str) -> None:
    with pytest.raises(_NoThreadError, match=words):
        _cores_of(facts, 0)
