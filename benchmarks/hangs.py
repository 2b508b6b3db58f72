"""Reports of twenty programs in C and eight in Python that hang, and the times to them.

Run it as ``python benchmarks/hangs.py --mpi mpich openmpi``. The time is that from the start of the
command to the last line that is expected, so it contains the start of the ranks, and the 2 s after
which a job reports that it hangs. With ``--overhead``, it measures instead what the records of the
ranks cost per call.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from collplan.tables.table import TuningTable, save_table
from hanging_jobs import PLANTED, PLANTED_IN_PYTHON, PYTHON_PROGRAM, command_of, outcome_of
from mpi_launching import mpi_environment, mpi_python
from native_building import built
from tables_everywhere import planning_table

PATIENCE_S = 60.0


def main() -> None:
    """Run the programs, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mpi", nargs="+", default=["mpich", "openmpi"])
    parser.add_argument("--overhead", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="collplan-hangs-") as text:
        folder = Path(text)
        if options.overhead:
            measure(options.mpi, folder)
            return
        table = folder / "table.json"
        save_table(planning_table(3, transport="messages"), table)
        n_named = sum(report(mpi, table, folder) for mpi in options.mpi)
    n_planted = len(options.mpi) * (len(PLANTED) + len(PLANTED_IN_PYTHON))
    print(f"{n_named} of {n_planted} named; load {os.getloadavg()[0]:.1f}")


def report(mpi: str, table: Path, folder: Path) -> int:
    """Run all programs with an MPI, print a line for each, and return how many were named."""
    n_named = 0
    programs = {"c": (built(mpi, "hanging.c", "-g"), PLANTED)}
    programs["python"] = PYTHON_PROGRAM, PLANTED_IN_PYTHON
    for language, (program, ways) in programs.items():
        for planted in ways:
            line = command_of(mpi, table, program, planted)
            found = outcome_of(line, planted.said, folder, PATIENCE_S)
            n_named += not found.missing
            verdict = "named" if not found.missing else f"MISSING {' | '.join(found.missing)}"
            print(f"{mpi:9} {language:7} {planted.way:26} {found.seconds:5.1f} s  {verdict}")
    return n_named


def measure(mpis: list[str], folder: Path) -> None:
    """Print the times of calls that move nothing, with and without records."""
    table = folder / "table.json"
    save_table(TuningTable(fingerprint=planning_table(2).fingerprint, sweeps=()), table)
    print("ns per call: least, median, least and median of PMPI")
    for mpi in mpis:
        for seconds in ("0", "30"):
            line = [str(mpi_python(mpi)), "-m", "collplan", "exec", "--table", str(table)]
            line += ["--force", "--hang-after", seconds, "-n", "2"]
            line += [str(built(mpi, "empty_calls.c", "-O2"))]
            done = subprocess.run(line, env=mpi_environment(), capture_output=True, text=True)
            for row in done.stdout.splitlines():
                print(f"{mpi:9} --hang-after {seconds:3} {row}")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
