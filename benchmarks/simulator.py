"""Time the simulator on one core, in tasks per second.

Ring allreduce and linear alltoall on a flat machine, one rank per node, and with the ranks on
nodes of 32 with two lanes, so that ranks compete for them; then full-lane plans of rings on the
preset hydra, 36 nodes of 32 ranks, with all that its model has; then three allreduces on many
ranks or nodes, whose tables do not fit in a processor's caches.
Run on an idle core: ``python benchmarks/simulator.py [--ranks 1024] [--repetitions 5]``
"""

from __future__ import annotations

import argparse
import resource
import statistics
from typing import Any, Final

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.memory import keep_freed_memory
from collplan.specs import PlanSpec

Case = tuple[str, dict[str, Any]]

FLAT: Final = {
    "allreduce": ("ring", 64),
    "alltoall": ("linear", 1),
}
"""Algorithm, and elements of a pair of ranks: every chunk of the ring has 64, however many."""
FULL_LANE: Final = {
    "allreduce": (1_152_000, {"node": "ring", "lane": "ring"}),
    "allgather": (100, {"node": "ring", "lane": "ring"}),
    "bcast": (1_152_000, {"node": "auto", "lane": "auto"}),
}


def flat_cases(n_ranks: int) -> list[Case]:
    """Return the flat plans' names and specs."""
    found = []
    for kind, (algorithm, n) in FLAT.items():
        for n_nodes, lanes in ((n_ranks, 1), (n_ranks // 32, 2)):
            per_node = n_ranks // n_nodes
            count = n * n_ranks if kind == "allreduce" else n
            spec = {
                "machine": {"nodes": n_nodes, "ranks_per_node": per_node, "lanes": lanes},
                "collective": {"kind": kind, "count": count, "datatype": "int32"},
                "algorithms": algorithm,
            }
            found.append((f"{kind}/{algorithm}, {n_nodes} x {per_node} ranks, {lanes} lanes", spec))
    return found


def full_lane_cases() -> list[Case]:
    """Return the full-lane plans' names and specs."""
    return [
        (
            f"{kind}/full_lane, hydra",
            {
                "machine": {"preset": "hydra"},
                "collective": {"kind": kind, "count": count, "datatype": "int32"},
                "decomposition": "full_lane",
                "algorithms": algorithms,
            },
        )
        for kind, (count, algorithms) in FULL_LANE.items()
    ]


MANY_RANKS: Final = {
    "recursive_doubling, 65536 ranks": (65536, 1, 64, {"algorithms": "recursive_doubling"}),
    "rabenseifner, 16384 ranks": (16384, 1, 65536, {"algorithms": "rabenseifner"}),
    "hierarchical, 2048 x 8 ranks": (2048, 8, 65536, {"decomposition": "hierarchical"}),
}
"""Nodes, ranks of each, elements, and how, by name."""


def many_ranks_cases() -> list[Case]:
    """Return the names and specs of allreduces on many ranks."""
    return [
        (
            f"allreduce/{name}",
            {
                "machine": {"nodes": nodes, "ranks_per_node": per_node},
                "collective": {"kind": "allreduce", "count": count, "datatype": "int32"},
                **how,
            },
        )
        for name, (nodes, per_node, count, how) in MANY_RANKS.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024, help="a multiple of 32")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    # As the command line does.
    keep_freed_memory()
    cases = flat_cases(arguments.ranks) + full_lane_cases() + many_ranks_cases()
    for name, spec in cases:
        plan = compile_plan(PlanSpec.model_validate(spec))
        simulate(plan)
        times = [simulate(plan).simulate_s for _ in range(arguments.repetitions)]
        median = statistics.median(times)
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{name}: {plan.n_tasks} tasks, {plan.n_tasks / median / 1e6:.2f} M tasks/s "
            f"(median of {len(times)}: {1e3 * median:.1f} ms, "
            f"{1e3 * min(times):.1f} to {1e3 * max(times):.1f}), peak {peak_kib / 2**20:.2f} GiB"
        )


if __name__ == "__main__":
    main()
