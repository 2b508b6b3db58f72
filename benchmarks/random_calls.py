"""Random collective calls of programs under ``collplan exec``, beside MPI's own results.

usage: python benchmarks/random_calls.py [--calls N] [--cores P,...] [--language c|python]
           [--mpi NAME,...] [--ranks N,...] [--seed N] [--transport messages|shared]

The table has plans for everything. Blocking, non-blocking and persistent calls of all collectives
come in random order, with many datatypes and operations, on four communicators that are freed and
made again. Requests end in another order on each rank, by all functions of MPI that complete
requests. Every result is compared with that of the same native call to the last bit. Prints a row
per MPI and number of ranks. Exit status 1 if a result differs, or a job fails.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from collplan.tables.table import save_table  # noqa: E402
from folders import PROGRAMS  # noqa: E402
from mpi_launching import mpi_python, run  # noqa: E402
from native_building import built  # noqa: E402
from native_cases import write_random_cases  # noqa: E402
from tables_everywhere import planning_table  # noqa: E402

LANGUAGES: Final = ("c", "python")
TRANSPORTS: Final = ("messages", "shared")
HANG_S: Final = 1800.0


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=17_000)
    parser.add_argument("--cores", help="processor of each core, as for collplan exec")
    parser.add_argument("--language", choices=LANGUAGES, default="c")
    parser.add_argument("--mpi", default="mpich,openmpi")
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transport", choices=TRANSPORTS, default="shared")
    options = parser.parse_args()
    is_python, n_wrong = options.language == "python", 0
    print("| MPI | ranks | seed | calls | by plans | time | result |\n" + "|---" * 7 + "|")
    with TemporaryDirectory(prefix="random-calls-") as name:
        table, cases = Path(name) / "table.json", Path(name) / "cases"
        save_table(planning_table(4, transport=options.transport, overlaps=True), table)
        write_random_cases(cases, options.seed, options.calls)
        for mpi in options.mpi.split(","):
            for n_ranks in options.ranks.split(","):
                line = [str(mpi_python(mpi)), "-m", "collplan", "exec", "--table", str(table)]
                program = PROGRAMS / "random_calls.py" if is_python else built(mpi, "conformance.c")
                line += [] if options.cores is None else ["--cores", options.cores]
                line += ["--force", "-n", n_ranks, str(program), str(cases), "1"]
                begin_s = perf_counter()
                try:
                    done = run(line, HANG_S, COLLPLAN_LOG="1", COLLPLAN_NATIVE_CALLS="2")
                    said, status = done.stdout + done.stderr, done.returncode
                except AssertionError as error:
                    said, status = str(error), 1
                planned = re.search(r"(\d+) collectives by plans", said)
                is_right = status == 0 and f"{options.calls} cases, 0 wrong" in said
                n_wrong += not is_right
                print(
                    f"| {mpi} | {n_ranks} | {options.seed} | {options.calls} | "
                    f"{planned[1] if planned else 'none'} | {perf_counter() - begin_s:.0f} s | "
                    f"{'equal' if is_right else 'WRONG'} |",
                    flush=True,
                )
                if not is_right:
                    print(said[-3000:], file=sys.stderr, flush=True)
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
