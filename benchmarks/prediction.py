"""Predicted against measured times, on an emulated cluster or one node of this machine.

Measures collectives by several plans on a cluster in namespaces of this machine,
simulates the same plans on the model, and prints the errors; then how often the
plan that is predicted to be the best is, within 10 %.

Run: ``.venv/bin/python benchmarks/prediction.py --machine machine.yaml [--nodes 4
--per-node 4 --lanes 2 --rate 100Mbit --sizes 64KiB,256KiB,1MiB,4MiB --repetitions 5
--json FILE]``. Such a machine file is what ``collplan calibrate`` writes on the
same cluster; without one the model is the cluster's own estimate.
``--measured FILE`` takes times from an earlier run's ``--json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from atlas import TEXTBOOK
from cluster_cases import spec_of
from prediction_cases import CANDIDATES, NETWORK_FLAT

from collplan.api.compiling import compile_spec
from collplan.emulate.cluster import Cluster, parse_rate, parse_topology
from collplan.emulate.machine import emulated_machine
from collplan.emulate.running import run_emulated
from collplan.executors.cost import simulate
from collplan.executors.cost.link_use import LinkUse
from collplan.reports.output import format_bytes, format_seconds, print_line, print_table
from collplan.specs import Machine, parse_bytes
from collplan.specs.errors import CollplanError

RANKS: Final = Path(__file__).with_name("prediction_ranks.py")
KINDS: Final = ("bcast", "reduce", "allreduce", "allgather", "gather", "alltoall", "scan")
CLOSE: Final = 1.10
"""Largest distance of a predicted best from the measured best."""
Found = dict[str, Any]


def measure(cluster: Cluster, machine: Machine, options: argparse.Namespace) -> list[Found]:
    """Return the times of all cells, measured."""
    with tempfile.TemporaryDirectory() as folder:
        output, described = Path(folder) / "found.json", Path(folder) / "machine.json"
        described.write_text(machine.model_dump_json())
        program = [sys.executable, str(RANKS), str(output), "--machine", str(described)]
        program += ["--repetitions", str(options.repetitions)]
        program += ["--candidates", options.candidates, "--plans", options.plans]
        program += ["--sizes", *map(str, options.sizes), "--collectives", *options.collectives]
        done = run_emulated(cluster, program, timeout_s=options.timeout, capture=False)
        if done.returncode != 0:
            raise CollplanError(f"the ranks ended with exit status {done.returncode}")
        found: list[Found] = json.loads(output.read_text())
        return found


def predict(rows: list[Found], planned: Machine, model: Machine, names: str) -> None:
    """Add to every plan's row what the model says of it.

    Parameters
    ----------
    rows : list of dict
        Measured times, of plans compiled for `planned`.
    planned, model : Machine
        What the plans were made for, and what prices them.
    names : str
        Which candidates were measured.
    """
    for row in rows:
        spec = spec_of(row["collective"], planned, row["bytes"])
        candidates = CANDIDATES[names](spec)
        if row["candidate"] in candidates:
            plan = compile_spec(candidates[row["candidate"]], idle=[])
            timeline = simulate(plan, model.network)
            row["predicted_s"] = timeline.makespan_s
            if timeline.routes is not None:
                row["link_s"] = float(LinkUse(timeline.routes).busy_ns.max()) / 1e9


def print_rows(rows: list[Found]) -> None:
    """Print measured and predicted time of every cell."""
    print_table(
        ["collective", "bytes", "plan", "measured", "predicted", "predicted/measured"],
        [
            [
                row["collective"],
                format_bytes(row["bytes"]),
                row["candidate"],
                format_seconds(row["median_s"]),
                format_seconds(row["predicted_s"]),
                f"{row['predicted_s'] / row['median_s']:.2f}",
            ]
            for row in rows
        ],
    )


def print_summary(rows: list[Found]) -> None:
    """Print the errors' quantiles, and how good the choices are."""
    errors = np.array([abs(row["predicted_s"] / row["median_s"] - 1) for row in rows])
    print_line(
        f"{len(rows)} plans: absolute error {np.median(errors):.1%} (median), "
        f"{np.quantile(errors, 0.9):.1%} (90 %), {errors.max():.1%} (most)"
    )
    cells: dict[tuple[str, int], list[Found]] = {}
    for row in rows:
        cells.setdefault((row["collective"], row["bytes"]), []).append(row)
    missed = []
    for (kind, n_bytes), plans in cells.items():
        chosen = min(plans, key=lambda row: float(row["predicted_s"]))
        best = min(plans, key=lambda row: float(row["median_s"]))
        if chosen["median_s"] > CLOSE * best["median_s"]:
            missed.append(
                f"  {kind}, {format_bytes(n_bytes)}: {chosen['candidate']} is predicted to be "
                f"best, {best['candidate']} is, by {chosen['median_s'] / best['median_s']:.2f}"
            )
    print_line(
        f"the predicted best is within {CLOSE - 1:.0%} of the measured best in "
        f"{len(cells) - len(missed)} of {len(cells)} cells"
    )
    for line in missed:
        print_line(line)


def print_textbook(rows: list[Found]) -> None:
    """Print the textbook's best beside the best of all, measured, and what was predicted."""
    print_line(
        "| collective | bytes | the textbook's best | best of all | ratio | predicted best |"
    )
    print_line("|---|---|---|---|---|---|")
    cells: dict[tuple[str, int], list[Found]] = {}
    for row in rows:
        cells.setdefault((row["collective"], row["bytes"]), []).append(row)
    for (kind, n_bytes), plans in cells.items():
        known = [row for row in plans if row["candidate"].split()[0] in TEXTBOOK[kind]]
        old = min(known, key=lambda row: float(row["median_s"]))
        best = min(plans, key=lambda row: float(row["median_s"]))
        chosen = min(plans, key=lambda row: float(row["predicted_s"]))
        told = [
            f"{row['candidate']}, {format_seconds(row['median_s'])}" for row in (old, best, chosen)
        ]
        ratio = f"{old['median_s'] / best['median_s']:.2f}"
        cells_of_row = [kind, format_bytes(n_bytes), *told[:2], ratio, told[2]]
        print_line(f"| {' | '.join(cells_of_row)} |")


def print_links(rows: list[Found]) -> None:
    """Print by how much plans by switch beat flat ones, measured and by their busiest links."""
    cells: dict[tuple[str, int], list[Found]] = {}
    for row in rows:
        cells.setdefault((row["collective"], row["bytes"]), []).append(row)
    for (kind, n_bytes), plans in cells.items():
        by_switch = [row for row in plans if "switch" in row["candidate"]]
        flat = [
            row
            for row in plans
            if row["candidate"].split()[0] in NETWORK_FLAT[kind]
            if "mapped" not in row["candidate"]
        ]
        if not by_switch or not flat:
            continue
        best, other = (
            min(some, key=lambda row: float(row["median_s"])) for some in (by_switch, flat)
        )
        keys = ("median_s", "predicted_s", "link_s")
        measured, predicted, by_links = (other[key] / best[key] for key in keys)
        print_line(
            f"{kind}, {format_bytes(n_bytes)}: {best['candidate']} beats {other['candidate']} by "
            f"{measured:.2f}; the model says {predicted:.2f}, and the busiest links {by_links:.2f}"
        )


def read_machine(path: Path) -> Machine:
    """Return the machine of a file."""
    return Machine.model_validate(yaml.safe_load(path.read_text()))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--machine", type=Path, help="what collplan calibrate wrote")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--per-node", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--rate", default="100Mbit", help="of each lane, each way")
    parser.add_argument(
        "--sizes",
        type=lambda text: [parse_bytes(size) for size in text.split(",")],
        default="64KiB,256KiB,1MiB,4MiB",
        help="see cluster_cases.py",
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--collectives", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument(
        "--candidates",
        choices=CANDIDATES,
        default="plans",
        help="flat and decomposed plans; all flat algorithms beside those of the textbook; or, "
        "with a topology, plans in rank order, mapped, by node and by switch",
    )
    parser.add_argument("--plans", default="*", help="patterns of their names, by commas")
    parser.add_argument("--topology", type=parse_topology, help="as of collplan emulate")
    parser.add_argument("--order", default="block", choices=("block", "cyclic"))
    parser.add_argument("--timeout", type=float, default=1800, help="seconds")
    parser.add_argument("--json", type=Path, help="a file to write everything into")
    parser.add_argument("--measured", type=Path, help="such a file, to predict again")
    return parser.parse_args()


def main() -> int:
    """Print the tables."""
    options = parse_options()
    cluster = Cluster(
        options.nodes,
        options.per_node,
        options.lanes,
        parse_rate(options.rate),
        rank_order=options.order,
        topology=options.topology,
    )
    estimate = emulated_machine(cluster)
    model = estimate if options.machine is None else read_machine(options.machine)
    if options.measured is not None:
        document = json.loads(options.measured.read_text())
        planned, rows = Machine.model_validate(document["machine"]), document["rows"]
    else:
        planned = model
        rows = measure(cluster, planned, options)
    rows = [row for row in rows if row["candidate"] != "native"]
    predict(rows, planned, model, options.candidates)
    print_rows(rows)
    print_summary(rows)
    if options.candidates == "flat":
        print_textbook(rows)
    if options.topology is not None:
        print_links(rows)
    if options.json is not None:
        document = {"machine": planned.model_dump(mode="json"), "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CollplanError as error:
        sys.exit(f"prediction.py: error: {error}")
