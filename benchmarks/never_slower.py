"""Is the drop-in ever slower than native MPI where it was tuned, and how much does it gain?

Tunes the collectives on an emulated cluster, then times every tuned point, native and through
the drop-in in turns, and the communication of Jacobi's iteration and of the parallel Adams
method, native and under ``collplan exec``. A point fails where the drop-in is slower than
native by more than 3 % and 20 µs: where the 95 % interval of the rounds' differences, of the
slowest ranks, excludes that. Exit status 1 where a point fails, or gains are missed.

Run: ``.venv/bin/python benchmarks/never_slower.py``, and with ``--one-node`` on 2 and 4 ranks
of this machine, where only points count. Everything is kept in ``--folder``: a run that was
stopped goes on where it was; ``--only`` runs some of its parts, and what is known is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from never_slower_verdicts import (
    ASKED_GAIN,
    ASKED_LESS,
    GAINING,
    HEADS,
    Verdict,
    gains,
    geometric_mean,
    markdown,
    rows_of,
    verdict_of,
)

from collplan.emulate.cluster import Cluster, parse_rate
from collplan.emulate.running import run_emulated
from collplan.executors.mpi.launch.jobs import run_job
from collplan.executors.mpi.launch.launcher import find_launcher
from collplan.planner.formats.output_files import write_text
from collplan.reports.output import format_seconds, print_line, print_table
from collplan.specs.errors import CollplanError
from collplan.specs.syntax.numbers import parse_bytes
from collplan.tables.table import load_table

HERE: Final = Path(__file__).resolve().parent
EXAMPLES: Final = HERE.parent / "examples"
PARTS: Final = ("tune", "collectives", "applications")
OF_VECTORS: Final = ("bcast", "allreduce", "reduce", "scan", "exscan")
ONE_NODE: Final = (2, 4)
"""Ranks on one node."""
APPLICATIONS: Final = {
    "Jacobi, rows": "jacobi.py --form row",
    "Jacobi, columns, allreduce": "jacobi.py --form column-allreduce",
    "Jacobi, columns, reduce": "jacobi.py --form column-reduce",
    "Adams": "pab.py --stages 2 --steps 40 --grid 192",
}
"""At sizes where communication dominates."""
JACOBI: Final = "--unknowns 131072 --tolerance=-1 --iterations 120"
APPLICATION_HEADS: Final = ("program", "in all", "communication", "by the table", "less")
Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Place of the ranks: an emulated cluster, or this machine."""

    cluster: Cluster | None

    def run(self, program: Sequence[str], n_ranks: int, timeout_s: float, shown: bool) -> str:
        """Run a Python program on every rank; return what it printed.

        Raises
        ------
        CollplanError
            If it fails.
        """
        command = [sys.executable, *program]
        if self.cluster is not None:
            done = run_emulated(self.cluster, command, timeout_s=timeout_s)
        else:
            launcher = find_launcher()
            environment = launcher.environment(n_ranks)
            done = run_job(launcher.command(n_ranks, command), environment, timeout_s, capture=True)
        if done.returncode != 0:
            raise CollplanError(f"{' '.join(program)}: exit {done.returncode}: {done.stderr}")
        if shown:
            sys.stderr.write(done.stderr)
            print_line(done.stdout)
        return done.stdout


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The request, and the files of its results."""

    asked: argparse.Namespace
    place: Place

    @property
    def name(self) -> str:
        """Return what files begin with."""
        return "cluster" if self.place.cluster else "one-node"

    @property
    def table(self) -> Path:
        """Return the tuning table's path."""
        return Path(self.asked.folder / f"{self.name}.yaml")

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the numbers of ranks to measure."""
        cluster = self.place.cluster
        return ONE_NODE if cluster is None else (self.asked.nodes * self.asked.per_node,)

    def found(self, n_ranks: int) -> Path:
        """Return the path of what was measured of collectives."""
        return Path(self.asked.folder / f"{self.name}-{n_ranks}.json")

    def tune(self) -> None:
        """Tune what is not in the table yet."""
        for is_vector in (True, False):
            kinds = [k for k in self.asked.collectives if (k in OF_VECTORS) == is_vector]
            sizes = self.asked.sizes if is_vector else self.asked.block_sizes
            if kinds and not self._is_tuned(kinds, sizes):
                program = ["-m", "collplan", "tune", "-o", str(self.table)]
                program += ["--collectives", ",".join(kinds), "--sizes", ",".join(sizes)]
                program += ["--ranks", ",".join(map(str, self.ranks)), *self.asked.tune.split()]
                self.place.run(program, max(self.ranks), self.asked.timeout, shown=True)

    def _is_tuned(self, kinds: Sequence[str], sizes: Sequence[str]) -> bool:
        part = self.table.with_name(self.table.name + ".part")
        if part.exists() or not self.table.exists():
            return False
        there = {
            (sweep.collective, sweep.ranks, point.bytes)
            for sweep in load_table(self.table).sweeps
            for point in sweep.points
        }
        n_bytes = [parse_bytes(size) for size in sizes]
        return there >= {(k, r, n) for k in kinds for r in self.ranks for n in n_bytes}

    def measure_collectives(self) -> None:
        """Measure all tuned points that are not known yet."""
        for n_ranks in self.ranks:
            program = [str(HERE / "never_slower_ranks.py"), str(self.table)]
            program += [str(self.found(n_ranks)), "--rounds", str(self.asked.rounds)]
            program += ["--seconds", str(self.asked.seconds)]
            self.place.run(program, n_ranks, self.asked.timeout, shown=True)

    def verdicts(self, n_ranks: int) -> list[Verdict]:
        """Return what is known of the table's points."""
        path = self.found(n_ranks)
        known: Found = json.loads(path.read_text()) if path.exists() else {}
        return [verdict_of(point) for point in known.values()]

    @property
    def applications(self) -> Path:
        """Return the path of what was measured of applications."""
        return Path(self.asked.folder / f"{self.name}-applications.json")

    def measure_applications(self) -> None:
        """Run each program so often natively, and on the table, in turns."""
        known = self.known_applications()
        for name, line in APPLICATIONS.items():
            runs: Found = known.setdefault(name, {"native": [], "table": []})
            while len(runs["table"]) < self.asked.repeats:
                script, *arguments = f"{line} {JACOBI if 'Jacobi' in name else ''}".split()
                program = [str(EXAMPLES / script), *arguments, "--json"]
                through = ["-m", "collplan", "exec", "--table", str(self.table), "--"]
                for how, prefix in (("native", ["-m", "mpi4py"]), ("table", through)):
                    text = self.place.run([*prefix, *program], 0, self.asked.timeout, shown=False)
                    runs[how].append(json.loads(text))
                write_text(self.applications, json.dumps(known) + "\n")
                sys.stderr.write(f"{name}: run {len(runs['table'])}\n")

    def known_applications(self) -> Found:
        """Return what is known of applications."""
        path = self.applications
        found: Found = json.loads(path.read_text()) if path.exists() else {}
        return found


def application_rows(known: Found) -> tuple[list[list[str]], bool]:
    """Return the cells of a table, and whether every program communicates less as asked."""
    rows, is_good = [], True
    for name, runs in known.items():
        if not runs["table"]:
            continue
        total, native, planned = (
            median(run[key] for run in runs[how])
            for how, key in (
                ("native", "total_s"),
                ("native", "communication_s"),
                ("table", "communication_s"),
            )
        )
        less = 1 - planned / native
        is_right = all(run["correct"] for how in runs for run in runs[how])
        is_good = is_good and is_right and less >= ASKED_LESS
        times = map(format_seconds, (total, native, planned))
        rows.append([name if is_right else f"{name}: WRONG", *times, f"{less:.0%}"])
    return rows, is_good


def report(benchmark: Benchmark) -> tuple[str, bool]:
    """Print all that is known; return it as a document's text, and whether it is as asked."""
    text, is_good = "", True
    for n_ranks in benchmark.ranks:
        verdicts = benchmark.verdicts(n_ranks)
        if not verdicts:
            continue
        rows = rows_of(verdicts)
        print_line(f"{n_ranks} ranks")
        print_table(HEADS, rows)
        text += f"{n_ranks} ranks\n\n" + markdown(HEADS, rows) + "\n"
        failed = [one for one in verdicts if one.is_failed]
        summary = f"{len(failed)} of {len(verdicts)} points failed"
        is_good = is_good and not failed
        gained = gains(verdicts) if benchmark.place.cluster else {}
        if gained:
            mean = geometric_mean(list(gained.values()))
            kinds = ", ".join(f"{kind} {gain:.2f}" for kind, gain in gained.items())
            summary += f"; from 256 KiB on {mean:.2f} times as fast on geometric mean: {kinds}"
            is_good = is_good and mean >= ASKED_GAIN
        print_line(summary)
        text += summary + "\n\n"
    rows, saves = application_rows(benchmark.known_applications())
    if rows:
        print_table(APPLICATION_HEADS, rows)
        text += markdown(APPLICATION_HEADS, rows)
    return text, is_good and saves


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def words(text: str) -> list[str]:
        return text.split(",")

    parser.add_argument("--one-node", action="store_true", help="2 and 4 ranks of this machine")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--per-node", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--rate", default="100Mbit", help="of each lane, each way")
    parser.add_argument("--folder", type=Path, default=HERE.parent / "build" / "never-slower")
    parser.add_argument("--only", type=words, default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--collectives", type=words, default=list(GAINING))
    parser.add_argument("--sizes", type=words, default="1KiB,16KiB,256KiB,1MiB", help="of vectors")
    parser.add_argument("--block-sizes", type=words, default="1KiB,16KiB,256KiB", help="of blocks")
    parser.add_argument(
        "--tune",
        default="--keep-within 1.2 --at-most 16 --seconds 4",
        help="options of collplan tune",
    )
    parser.add_argument("--rounds", type=int, default=25, help="of a point, at most")
    parser.add_argument("--seconds", type=float, default=6.0, help="about, of a point's rounds")
    parser.add_argument("--repeats", type=int, default=2, help="runs of an application")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds, of each launch")
    parser.add_argument("--report", type=Path, help="write the tables as Markdown")
    options = parser.parse_args(arguments)
    unknown = set(options.only) - set(PARTS)
    if unknown:
        parser.error(f"--only: no {', '.join(sorted(unknown))}; valid: {','.join(PARTS)}")
    return options


def main() -> int:
    """Do what is asked for, then print all that is known."""
    asked = parse_options()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rate = parse_rate(asked.rate)
    cluster = Cluster(asked.nodes, asked.per_node, asked.lanes, rate)
    benchmark = Benchmark(asked, Place(None if asked.one_node else cluster))
    if "tune" in asked.only:
        benchmark.tune()
    if "collectives" in asked.only:
        benchmark.measure_collectives()
    if "applications" in asked.only and not asked.one_node:
        benchmark.measure_applications()
    text, is_good = report(benchmark)
    if asked.report is not None:
        write_text(asked.report, text)
    return 0 if is_good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CollplanError as error:
        sys.exit(f"never_slower.py: error: {error}")
