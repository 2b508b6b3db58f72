"""Part of a non-blocking collective that an unchanged application hides behind computation.

``examples/overlapped_sums.py`` computes between ``Ireduce``, ``Iallreduce`` or ``Ibcast`` and
``Wait``. It runs on an emulated cluster, natively and under ``collplan exec`` in turns, by a table
that ``collplan tune --computation`` writes first. All ranks compute on the first processor; the
second one is to spare. The overlap
is (communication + computation - both) / min(communication, computation), of the slowest rank:
the median over rounds within a launch, then median, least and greatest over launches.

Run: ``.venv/bin/python benchmarks/overlap_applications.py [--launches 5 --bytes 4194304]``
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from collplan.emulate.cluster import Cluster, parse_rate
from collplan.emulate.running import run_emulated
from collplan.executors.mpi.launch.environment import launch_environment, n_cores
from collplan.executors.mpi.launch.launcher import find_launcher
from collplan.reports.output import print_line, print_table
from collplan.specs.errors import CollplanError

EXAMPLE: Final = str(Path(__file__).resolve().parents[1] / "examples" / "overlapped_sums.py")
COLLECTIVES: Final = ("reduce", "allreduce", "bcast")
KERNELS: Final = ("numpy", "python")
ASKED: Final = 0.8
"""Least median of what the table's plan hides."""
ROUNDS: Final = 4
HEADS: Final = (
    *("collective", "kernel", "native", "least to most", "by the table", "least to most"),
    *("communication", "by the table"),
)


class Runs:
    """Launches on an emulated cluster.

    Parameters
    ----------
    options : Namespace
        Of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._cluster = Cluster(
            nodes=options.nodes, ranks_per_node=1, lanes=1, rate_bits_per_s=parse_rate(options.rate)
        )
        # Ranks share a processor, although they are as few as processors.
        family = find_launcher().library.family
        self._environment = launch_environment(family, n_cores() + 1, are_late=True)
        first, second = sorted(os.sched_getaffinity(0))[:2]
        self._cores = f"{first},{second}"
        self._first = str(first)

    def tune(self, table: Path) -> None:
        """Write a table of the collectives beside the computation."""
        options = self._options
        self._run(
            *("-m", "collplan", "tune", "-o", str(table), "--cores", self._cores),
            *("--computation", str(options.computation), "--sizes", f"{options.bytes}B"),
            *("--collectives", options.collectives, "--at-most", "4", "--seconds", "6"),
        )

    def overlap(self, kind: str, kernel: str, table: Path | None) -> dict[str, Any]:
        """Run the application natively, or by a table; return what it found."""
        options = self._options
        program = [EXAMPLE, "--json", "--collective", kind, "--kernel", kernel]
        program += ["--bytes", str(options.bytes), "--computation", str(options.computation)]
        program += ["--rounds", str(ROUNDS)]
        if table is None:
            found = json.loads(self._run(*program, pinned=True))
        else:
            found = json.loads(
                self._run(
                    *("-m", "collplan", "exec", "--table", str(table), "--cores", self._cores),
                    *program,
                )
            )
        if not found["correct"]:
            raise CollplanError(f"{kind}: the result is wrong")
        return dict(found)

    def _run(self, *program: str, pinned: bool = False) -> str:
        command = [sys.executable, *program]
        if pinned:
            command[:0] = ["taskset", "-c", self._first]
        done = run_emulated(
            self._cluster, command, timeout_s=self._options.timeout, environment=self._environment
        )
        if done.returncode != 0:
            raise CollplanError(f"{' '.join(program)}: exit {done.returncode}: {done.stderr}")
        return str(done.stdout)


def in_percent(overlaps: Sequence[float]) -> tuple[str, str]:
    """Return the median of some overlaps, and their least and greatest, in words.

    Examples
    --------
    >>> in_percent([0.9, 0.8, 0.95])
    ('90 %', '80 to 95 %')
    """
    least, most = min(overlaps), max(overlaps)
    return f"{median(overlaps):.0%}".replace("%", " %"), f"{100 * least:.0f} to {most:.0%}".replace(
        "%", " %"
    )


def measure(runs: Runs, kind: str, kernel: str, table: Path, launches: int) -> list[Any]:
    """Return a row of the table, and whether what was asked for is reached."""
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for _ in range(launches):
        for by_table in found:
            found[by_table].append(runs.overlap(kind, kernel, table if by_table else None))
    cells: list[str] = []
    for ones in found.values():
        cells += in_percent([median(one["overlap"]) for one in ones])
    times = [median(one["communication_s"] for one in ones) for ones in found.values()]
    reached = median(median(one["overlap"]) for one in found[True]) >= ASKED
    return [[f"I{kind}", kernel, *cells, *(f"{1e3 * s:.0f} ms" for s in times)], reached]


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rate", default="100Mbit")
    parser.add_argument("--bytes", type=int, default=4 << 20)
    parser.add_argument("--computation", type=float, default=0.2, help="s of a core, per block")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=900.0)
    parser.add_argument("--table", type=Path, help="of an earlier run, or where to write it")
    options = parser.parse_args(arguments)
    runs, rows, is_reached = Runs(options), [], True
    with TemporaryDirectory() as folder:
        table = options.table or Path(folder) / "table.yaml"
        if not table.exists():
            runs.tune(table)
        for kind in options.collectives.split(","):
            for kernel in options.kernels.split(","):
                row, reached = measure(runs, kind, kernel, table, options.launches)
                rows.append(row)
                sys.stderr.write("  ".join(row) + "\n")
                is_reached &= reached
    print_line(
        f"{options.nodes} nodes of one rank, {options.rate}, {options.bytes} bytes, "
        f"{options.computation} s of computation, {find_launcher().library.version}, "
        f"{options.launches} launches"
    )
    print_table(list(HEADS), rows)
    return 0 if is_reached else 1


if __name__ == "__main__":
    sys.exit(main())
