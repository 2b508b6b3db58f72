"""Ranks that are missing, plans that were tampered with, and what many starts leave behind."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.planner import compile_plan
from collplan.specs.errors import CollplanError
from folders import BENCHMARKS, PROGRAMS
from mpi_launching import MPIS, assert_passes, mpi_python, mpiexec_of, mpirun, run
from mpi_plans import reduction
from oracle import make_spec

pytestmark = pytest.mark.system

AWAITED = r"rank 0: (recv from 1 tag \d+ \(task #\d+, phase allreduce/ring\) has not arrived)"


def launched(case: str, way: str, mpi: str) -> subprocess.CompletedProcess[str]:
    """Run a case on two ranks as the command line starts them, with a limit of 2 s."""
    python = str(mpi_python(mpi))
    return run([python, str(PROGRAMS / "relaunching.py"), "missing.py", "50", case, way, "2"])


@pytest.mark.parametrize(("way", "mpi"), [("compiled", "mpich"), ("python", "openmpi")])
def test_a_rank_that_never_starts(way: str, mpi: str) -> None:
    """All others say what they wait for before the job ends, however they wait."""
    result = mpirun(3, "missing.py", "never_starts", way, "2", mpi=mpi)
    assert result.returncode != 0
    for rank in (0, 1):
        assert f"collplan: rank {rank}: the plan has stood still for" in result.stderr
    assert re.search(r"rank 0: recv from 2 tag \d+ \(task #\d+, phase .*ring\)", result.stderr)
    verdict = "rank 0: ranks 0 and 1 in the plan; rank 2 elsewhere: not started"
    assert verdict in result.stderr, result.stderr


def test_a_rank_that_never_starts_where_memory_is_shared() -> None:
    result = mpirun(2, "missing.py", "never_starts_shared", "compiled", "2")
    assert result.returncode != 0
    assert re.search(r"waits in shared memory for task #\d+ of rank 1", result.stderr)
    assert "rank 0: rank 0 in the plan; rank 1 elsewhere" in result.stderr, result.stderr


@pytest.mark.parametrize("mpi", MPIS)
def test_a_rank_that_stops_coming_in_the_middle_of_a_bind(mpi: str) -> None:
    result = mpirun(3, "absent.py", mpi=mpi)
    assert "passed" in result.stdout, result.stdout + result.stderr


def test_a_rank_that_never_binds() -> None:
    result = mpirun(3, "missing.py", "never_binds", "python", "1")
    assert result.returncode != 0
    assert re.search(r"waited 1(\.\d+)? s to bind the plan; rank 2 did not reach", result.stderr)


def test_a_rank_that_never_frees() -> None:
    result = mpirun(3, "missing.py", "never_frees", "compiled", "1")
    assert result.returncode != 0
    assert re.search(r"waited 1(\.\d+)? s to free the plan; rank 2 did not reach", result.stderr)


def test_a_rank_that_others_wait_for_to_allocate() -> None:
    result = mpirun(2, "missing.py", "never_completes", "compiled", "1")
    assert result.returncode != 0
    assert "to allocate buffers; rank 1 has not completed start 1" in result.stderr, result.stderr


@pytest.mark.ranks(3)
def test_a_rank_with_another_plan(comm: MPI.Intracomm) -> None:
    count = 64 + (comm.rank == 2)
    spec = make_spec("allreduce", "ring", 3, count=count, datatype="int32")
    plan = compile_plan(spec, rank=comm.rank)
    buffers = np.ones(count, np.int32), np.zeros(count, np.int32)
    with pytest.raises(CollplanError) as refused:
        bind(plan, comm, *buffers, operation=reduction("python", "sum"))
    line = str(refused.value)
    assert re.search(r"rank 2 binds a plan of digest \w{16}, ranks 0 and 1 one of", line)
    assert "(collective.count is 65, theirs 64); compile the same spec" in line


@pytest.mark.parametrize(
    ("way", "mpi"), [("compiled", "mpich"), ("python", "mpich"), ("compiled", "openmpi")]
)
def test_a_rank_that_is_killed(way: str, mpi: str) -> None:
    result = launched("is_killed", way, mpi)
    assert result.returncode not in (0, 2), result.stderr
    assert re.search(r"collplan: rank 0: was told .*; rank 1 ended", result.stderr), result.stderr
    assert re.search(AWAITED, result.stderr), result.stderr
    if mpi == "mpich":
        assert re.search(r"rank 1: process \d+ was killed by signal 9 \(SIGKILL\)", result.stderr)


def test_a_rank_that_crashes_while_others_are_inside_of_mpi() -> None:
    result = launched("is_killed_among_native_calls", "python", "mpich")
    assert result.returncode not in (0, 2), result.stderr
    assert re.search(r"collplan: rank 0: was told .*; rank 1 ended", result.stderr), result.stderr


@pytest.mark.parametrize(("way", "mpi"), [("compiled", "mpich"), ("python", "openmpi")])
def test_an_interrupt_during_a_wait(way: str, mpi: str) -> None:
    assert_passes(mpirun(2, "missing.py", "is_interrupted", way, "30", mpi=mpi))


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_tampered_plans(n_ranks: int) -> None:
    assert_passes(mpirun(n_ranks, "tampered.py"))


def test_starts_leave_nothing_behind() -> None:
    """A short run of the soak test; it exits with 1 where something grows."""
    python = mpi_python("mpich")
    command = [
        str(mpiexec_of(python)),
        "-n",
        "2",
        str(python),
        str(BENCHMARKS / "soak.py"),
    ]
    result = run([*command, "--rounds", "40", "--warm-up", "20"])
    assert_passes(result)
