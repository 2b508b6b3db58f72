"""A job on random hosts of a dragonfly of 1,056: algorithms in rank order, and mapped.

Per collective and algorithm: bytes over global links, how long the busiest link takes for its
bytes, and the makespan, without the pass `map_ranks` and with it.

Usage: python benchmarks/mapping.py [--nodes 64] [--seed 7] [--sorted] [--size BYTES]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from collplan.executors.cost import simulate
from collplan.executors.cost.link_use import LinkUse
from collplan.planner.compiler.compile import compile_plan
from collplan.specs import PlanSpec, parse_spec

ALGORITHMS = {
    "allreduce": ("recursive_doubling", "rabenseifner", "bine", "circulant", "ring"),
    "allgather": ("recursive_doubling", "bruck", "sparbit", "ring"),
    "reduce_scatter_block": ("recursive_halving", "butterfly", "ring"),
    "bcast": ("binomial", "bine", "scatter_allgather"),
}


def cases(options: argparse.Namespace) -> Iterator[tuple[str, list[PlanSpec]]]:
    """Yield names, and the specs of an algorithm in rank order and mapped."""
    topology = {"kind": "dragonfly", "groups": 33, "routers": 8, "hosts": 4}
    machine: dict[str, Any] = {
        "nodes": options.nodes,
        "placement": {"random": options.seed, "shuffled": not options.sorted},
        "network": {"topology": topology},
    }
    for kind, algorithms in ALGORITHMS.items():
        is_vector = kind in ("allreduce", "bcast")
        count = options.size if is_vector else options.size // options.nodes
        for algorithm in algorithms:
            spec = parse_spec(
                {
                    "machine": machine,
                    "collective": {"kind": kind, "count": count, "datatype": "uint8"},
                    "algorithms": algorithm,
                }
            )
            mapped = parse_spec(spec.model_dump(mode="json") | {"passes": ["map_ranks"]})
            yield f"{kind} {algorithm}", [spec, mapped]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--sorted", action="store_true", help="ranks in the order of hosts")
    parser.add_argument("--size", type=int, default=1 << 20)
    options = parser.parse_args()
    columns = ("global MiB", "mapped", "link us", "mapped", "makespan us", "mapped", "ratio")
    print(f"{'':38}", *(f"{name:>11}" for name in columns))
    for name, specs in cases(options):
        plans = [compile_plan(spec, is_proved=False) for spec in specs]
        timelines = [simulate(plan) for plan in plans]
        spans = [timeline.makespan_s for timeline in timelines]
        uses = [LinkUse(one.routes) for one in timelines if one.routes is not None]
        cells = [use.bytes_by_reach["global"] / 2**20 for use in uses]
        cells += [use.busy_ns.max() / 1e3 for use in uses] + [1e6 * span for span in spans]
        cells.append(spans[0] / spans[1])
        print(f"{name:38}", *(f"{cell:11.2f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
