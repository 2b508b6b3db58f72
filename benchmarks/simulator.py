"""Time the simulator on one core: ring allreduce and linear alltoall, tasks a second.

The flat machine has one rank a node; the other packs the ranks onto nodes of 32
with two lanes, so that ranks compete for them.
"""

from __future__ import annotations

import argparse
import resource
import statistics

from executors.cost import simulate
from planner import Plan, compile_plan
from specs import PlanSpec

COUNT = {"allreduce": 64, "alltoall": 1}
"""Elements a rank pair: every chunk of the ring has 64, whatever the number of ranks."""


def compile_for(kind: str, algorithm: str, n_ranks: int, n_nodes: int, n_lanes: int) -> Plan:
    count = COUNT[kind] * n_ranks if kind == "allreduce" else COUNT[kind]
    return compile_plan(
        PlanSpec.model_validate(
            {
                "machine": {
                    "nodes": n_nodes,
                    "ranks_per_node": n_ranks // n_nodes,
                    "lanes": n_lanes,
                },
                "collective": {"kind": kind, "count": count, "datatype": "int32"},
                "algorithms": algorithm,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024, help="a multiple of 32")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    n_ranks = arguments.ranks
    for kind, algorithm in (("allreduce", "ring"), ("alltoall", "linear")):
        for n_nodes, n_lanes in ((n_ranks, 1), (n_ranks // 32, 2)):
            plan = compile_for(kind, algorithm, n_ranks, n_nodes, n_lanes)
            simulate(plan)
            before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            times = [simulate(plan).simulate_s for _ in range(arguments.repetitions)]
            median = statistics.median(times)
            print(
                f"{kind}/{algorithm} on {n_nodes} x {n_ranks // n_nodes} ranks, {n_lanes} lane(s): "
                f"{plan.n_tasks} tasks, {plan.n_tasks / median / 1e6:.2f} M tasks/s "
                f"(median of {len(times)}: {median:.3f} s, {min(times):.3f} to {max(times):.3f}), "
                f"peak {before_kib / 2**20:.2f} GiB"
            )


if __name__ == "__main__":
    main()
