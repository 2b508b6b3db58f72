"""Cost of intercepted calls in a C program on one rank, beside MPI's own.

Run it as ``python benchmarks/preload.py``, in the environment whose MPI is to be measured. A
planned call is compared with an empty one: on one rank a plan only copies, so the time of the call
is an upper limit of what is added to a plan. Native calls take turns with those of PMPI.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HELPERS = Path(__file__).parents[1] / "tests" / "helpers"
sys.path.insert(0, str(HELPERS))
KINDS = ("allreduce", "allgather", "bcast")


def main() -> None:
    """Build the program, run it, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logged", action="store_true", help="count calls, as COLLPLAN_LOG=1 does")
    options = parser.parse_args()
    from collplan.tables.table import save_table
    from tables_everywhere import planning_table

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        save_table(planning_table(1, KINDS, overlaps=True), folder / "table.json")
        prefix = Path(sys.prefix)
        command = ["cc", "-O2", str(HELPERS / "native_programs" / "overhead.c"), "-lmpi"]
        command += [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
        subprocess.run([*command, "-o", str(folder / "overhead")], check=True)
        line = [sys.executable, "-m", "collplan", "exec", "--table", str(folder / "table.json")]
        line += ["--force", "-n", "1", str(folder / "overhead")]
        environment = {**os.environ, "COLLPLAN_LOG": "1" if options.logged else "0"}
        done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    head = "ns per call", "least", "median", "PMPI least", "PMPI median"
    print(f"{head[0]:50}", *(f"{one:>12}" for one in head[1:]))
    for row in done.stdout.splitlines():
        name, *times = row.split("\t")
        print(f"{name:50}", *(f"{one:>12}" for one in times))


if __name__ == "__main__":
    main()
