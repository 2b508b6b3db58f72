"""Programs in C and Fortran for tests, compiled for the MPIs that tests use."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

import pytest

from ending_jobs import helper_of, marked_processes
from folders import HELPERS
from mpi_launching import DEBIAN, HANG_S, mpi_environment, mpi_python

SOURCES = HELPERS / "native_programs"


@cache
def built(mpi: str, source: str, *options: str) -> Path:
    """Return a program of `native_programs`, compiled; skip the test where nothing can do that."""
    if sys.platform != "linux":
        pytest.skip("plans for programs in C need LD_PRELOAD and /proc, which only Linux has")
    python = mpi_python(mpi)
    made = _folder() / mpi / sha256(" ".join((source, *options)).encode()).hexdigest()[:8]
    made = made / Path(source).stem
    made.parent.mkdir(parents=True, exist_ok=True)
    command = [
        *_compiler(mpi, python, source),
        "-O1",
        "-pthread",
        str(SOURCES / source),
        "-o",
        str(made),
        *options,
    ]
    if mpi not in DEBIAN:
        folder = python.parents[1]
        include = _includes(mpi, python)
        command += [f"-I{include}", f"-L{folder}/lib", "-lmpi", f"-Wl,-rpath,{folder}/lib"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


def exec_line(mpi: str, table: Path, n_ranks: int, *program: object) -> list[str]:
    """Return the command line that runs a program on a table, which was tuned elsewhere."""
    command = [str(mpi_python(mpi)), "-m", "collplan", "exec", "--table", str(table)]
    return [*command, "--force", "-n", str(n_ranks), *map(str, program)]


def run_losing_helper(
    line: list[str], mark: Path, number: int = signal.SIGKILL, **environment: str
) -> tuple[int, str, str]:
    """Run a job that says that it is running and waits for a line; then send its helper a signal.

    Parameters
    ----------
    line : list of str
        Command line.
    mark : Path
        Text in the environment by which the processes of the job are found.
    number : int
        Signal.
    **environment : str
        Further environment variables.

    Returns
    -------
    tuple of int, str and str
        Exit status, standard output after the first line, and standard error.
    """
    marked = {**mpi_environment(), **environment, "COLLPLAN_TEST_MARK": str(mark)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        line, env=marked, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "running\n"
        found = helper_of(marked_processes(str(mark)))
        assert found is not None
        os.kill(found, number)
        out, err = job.communicate("go on\n", timeout=HANG_S)
    return job.returncode, out, err


@cache
def _folder() -> Path:
    """Return a folder that is removed when this process ends."""
    folder, owner = Path(mkdtemp(prefix="collplan-native-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # processes that it has forked end earlier
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _compiler(mpi: str, python: Path, source: str) -> list[str]:
    if mpi in DEBIAN:
        family = mpi.removeprefix("debian-")
        name = f"mpif90.{family}" if source.endswith(".f90") else f"mpicc.{family}"
        compiler = shutil.which("gfortran" if source.endswith(".f90") else "cc")
        if shutil.which(name) is None or compiler is None:
            pytest.skip(f"{name} is not installed; make .venv-debian/.ready installs it")
        return [name, *(["-fallow-argument-mismatch"] if source.endswith(".f90") else [])]
    if source.endswith(".f90"):
        pytest.skip("wheels of MPIs have no mpif.h to compile a Fortran program with")
    if not (_includes(mpi, python) / "mpi.h").exists():
        pytest.skip(f"the MPI of {python} has no mpi.h to compile a C program with")
    found = shutil.which("cc")
    if found is None:
        pytest.skip("there is no C compiler for programs of tests: apt-get install gcc libc6-dev")
    return [found]


def _includes(mpi: str, python: Path) -> Path:
    """Return the folder of an ``mpi.h``; Intel MPI's wheel has none, and the ABI of MPICH."""
    return (mpi_python("mpich") if mpi == "intel" else python).parents[1] / "include"
