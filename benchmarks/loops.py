"""Loops of small and large calls in a C program, natively and under ``collplan exec``.

Run it as ``python benchmarks/loops.py --table TABLE -n 2``, in the environment whose MPI is to be
measured, with a table that ``collplan tune`` has written there. Native runs and runs on the table
take turns. A row is marked if it is slower on the table by more than 10 % and 0.1 µs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

HELPERS = Path(__file__).parents[1] / "tests" / "helpers"
SLOWER, SLOWER_US = 1.1, 0.1
Times = defaultdict[tuple[str, int], list[float]]


def main() -> None:
    """Build the program, run it in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True, type=Path)
    parser.add_argument("-n", type=int, default=2, help="number of ranks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", default="0.02", help="time of a loop")
    parser.add_argument("--mpicc", default=str(Path(sys.prefix) / "bin" / "mpicc"))
    parser.add_argument("--mpiexec", default=str(Path(sys.prefix) / "bin" / "mpiexec"))
    options = parser.parse_args()
    native, planned = Times(list), Times(list)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "loops"
        source = HELPERS / "native_programs" / "loops.c"
        subprocess.run([options.mpicc, "-O2", str(source), "-o", str(program)], check=True)
        words = ["-n", str(options.n), str(program), options.seconds]
        exec_line = [sys.executable, "-m", "collplan", "exec", "--table", str(options.table)]
        for _ in range(options.rounds):
            add(native, [options.mpiexec, *words])
            add(planned, [*exec_line, *words])
    n_slower = 0
    print(f"{'collective':11}{'bytes':>9}{'native µs':>12}{'exec µs':>12}{'ratio':>8}")
    for (name, n_bytes), found in native.items():
        own, other = median(planned[name, n_bytes]), median(found)
        is_slower = own > SLOWER * other and own > other + SLOWER_US
        n_slower += is_slower
        mark = "  slower" if is_slower else ""
        print(f"{name:11}{n_bytes:9}{other:12.2f}{own:12.2f}{own / other:8.2f}{mark}")
    print(f"{n_slower} of {len(native)} rows are slower")


def add(times: Times, line: list[str]) -> None:
    """Run the program, and add the times of its loops."""
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True)
    for row in done.stdout.splitlines():
        name, n_bytes, us = row.split()
        times[name, int(n_bytes)].append(float(us))


if __name__ == "__main__":
    main()
