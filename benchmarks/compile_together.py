"""Compilation by each rank for itself beside compilation by all ranks together.

    python benchmarks/compile_together.py --nodes 16 --ranks-per-node 4

Starts as many ranks on this machine as the spec has, twice per round and in turns. In one
run every rank compiles its own program (``rank=``), in the other rank 0 does what it can do
for all (``comm=``). Prints the processor time of all ranks together, the largest peak of
memory of a rank, and that of all ranks together, as medians of the rounds with the least and
the greatest, and the ratios.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from collplan.executors.mpi.launch.launcher import find_launcher

WAYS = ("rank", "comm")
UNITS = ("s", "MiB", "MiB in all")


def spec_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the spec that the options describe."""
    return {
        "machine": {
            "nodes": options.nodes,
            "ranks_per_node": options.ranks_per_node,
            "lanes": min(2, options.ranks_per_node),
        },
        "collective": {"kind": options.kind, "count": options.count, "datatype": "int32"},
        "decomposition": options.decomposition,
    }


def compile_as_rank(options: argparse.Namespace) -> None:
    """Compile on a rank; rank 0 prints what all ranks used."""
    from mpi4py import MPI

    import collplan
    import collplan.programs.compiling_together

    comm = MPI.COMM_WORLD
    spec = collplan.parse_spec(spec_of(options))
    begin = time.process_time()
    if options.way == "rank":
        plan = collplan.compile(spec, rank=comm.rank)
    else:
        plan = collplan.compile(spec, comm=comm)
    used = (
        time.process_time() - begin,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        plan.n_tasks,
    )
    everyone = comm.gather(used)
    if everyone is not None:
        times, peaks, n_tasks = zip(*everyone, strict=True)
        document = {"s": sum(times), "MiB": max(peaks), "MiB in all": sum(peaks)}
        print(json.dumps(document | {"tasks": sum(n_tasks)}))


def measure(options: argparse.Namespace, way: str) -> dict[str, float]:
    """Return what a run of all ranks used."""
    n_ranks = options.nodes * options.ranks_per_node
    launcher = find_launcher()
    done = subprocess.run(
        launcher.command(n_ranks, [sys.executable, __file__, *sys.argv[1:], "--way", way]),
        env=launcher.environment(n_ranks),
        capture_output=True,
        text=True,
        check=True,
        timeout=1800,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the processor time and the memory of both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--ranks-per-node", type=int, default=4)
    parser.add_argument("--kind", default="allreduce")
    parser.add_argument("--count", type=int, default=1 << 20)
    parser.add_argument("--decomposition", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        compile_as_rank(options)
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            found[way].append(measure(options, way))
    assert len({one["tasks"] for runs in found.values() for one in runs}) == 1, found
    medians = {}
    for way, runs in found.items():
        for unit in UNITS:
            values = [run[unit] for run in runs]
            medians[way, unit] = statistics.median(values)
            print(
                f"{way}=: {medians[way, unit]:.3g} {unit} "
                f"({min(values):.3g} to {max(values):.3g}, {len(values)} runs)"
            )
    for unit in UNITS:
        print(f"comm= over rank=, {unit}: {medians['comm', unit] / medians['rank', unit]:.3f}")


if __name__ == "__main__":
    main()
