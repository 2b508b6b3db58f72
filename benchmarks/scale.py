"""Time and memory of planning for thousands of ranks, each case in a process of its own.

Four questions: what does one rank's program cost a rank, what does it cost with ``decomposition:
auto``, what does a folded plan cost that is proved and priced, and how does that compare with the
plan of all ranks, where that fits.

Usage: python benchmarks/scale.py [program] [auto] [fold] [whole] [--repetitions N]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from statistics import median
from typing import Any

from stopwatch import time_step

from collplan.executors.cost import simulate
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.verify import verify
from collplan.select.search import search
from collplan.specs import PlanSpec

MACHINES = [(36, 32), (128, 56), (1024, 8), (8192, 8)]
"""Nodes, and ranks per node."""
KINDS = {
    "bcast": 1 << 20, "reduce": 1 << 20, "allreduce": 1 << 20, "scan": 1 << 20, "exscan": 1 << 20,
    "gather": 64, "scatter": 64, "allgather": 64, "reduce_scatter_block": 64, "alltoall": 4,
}  # fmt: skip
"""Elements of the vector, or of a block, by kind."""
FOLDED = [
    ("allreduce", 65536, 1, 65536, "flat", "ring"),
    ("allreduce", 8192, 8, 65536, "flat", "ring"),
    ("alltoall", 65536, 1, 1, "flat", "linear"),
    ("alltoall", 8192, 8, 1, "flat", "pairwise"),
    ("allgather", 8192, 8, 1, "flat", "ring"),
    ("allreduce", 1024, 8, 1 << 20, "full_lane", {"lane": "ring"}),
    ("allreduce", 8192, 8, 1 << 20, "full_lane", {"lane": "ring"}),
]
WHOLE = [
    ("allreduce", 1024, 1, 1024, "flat", "ring"),
    ("alltoall", 1024, 1, 1, "flat", "linear"),
    ("allreduce", 128, 8, 1 << 20, "full_lane", {"lane": "ring"}),
]
"""Cases small enough for both the folded plan and that of all ranks."""


def spec_of(kind: str, nodes: int, per_node: int, count: int, *method: Any) -> PlanSpec:
    """Return the spec of a case."""
    machine = {"nodes": nodes, "ranks_per_node": per_node, "lanes": min(4, per_node)}
    fields = dict(zip(("decomposition", "algorithms"), method, strict=True))
    collective = {"kind": kind, "count": count}
    return PlanSpec.model_validate({"machine": machine, "collective": collective, **fields})


def run_case(what: str, case: list[Any]) -> dict[str, Any]:
    """Plan one case in this process; return its times in s, and the process' peak in MiB."""
    spec = spec_of(*case)
    found: dict[str, Any] = {}

    def step(name: str, call: Any) -> Any:
        times, result = time_step(call)
        found[name] = times.wall[0]
        return result

    if what in ("program", "auto"):
        is_auto = spec.decomposition.name == "auto"
        chosen = step("resolve", lambda: search(spec)[0].spec if is_auto else spec)
        plan = step("compile", lambda: compile_plan(chosen, rank=1))
    else:
        plan = step("compile", lambda: (compile_folded if what == "fold" else compile_plan)(spec))
        found["makespan_ns"] = step("price", lambda: simulate(plan)).makespan_ns
        step("verify", lambda: verify(plan))
    found |= {"tasks": plan.n_tasks, "of": plan.n_tasks * plan.n_copies}
    return found | {"MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(what: str, case: Any, repetitions: int) -> dict[str, Any]:
    """Run a case in processes of its own; return the median, least and most of each figure."""
    command = [sys.executable, __file__, "--case", json.dumps([what, case])]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(repetitions)
    ]
    values = {name: [run[name] for run in runs] for name in runs[0]}
    return {name: (median(each), min(each), max(each)) for name, each in values.items()}


def show(name: str, found: dict[str, Any]) -> None:
    """Print a case's line: median (least to most)."""
    steps = "   ".join(
        f"{step} {found[step][0]:.2f} s ({found[step][1]:.2f} to {found[step][2]:.2f})"
        for step in ("resolve", "compile", "price", "verify")
        if step in found
    )
    tasks, of = int(found["tasks"][0]), int(found["of"][0])
    repeated = "" if of == tasks else f" for {of:,}"
    print(
        f"{name:52} {tasks:>10,} tasks{repeated}   {steps}   {found['MiB'][2]:.0f} MiB", flush=True
    )


def main() -> None:
    """Print a line per case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=["program", "auto", "fold", "whole"])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--case")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(*json.loads(options.case))))
        return
    for what, decomposition in (("program", "full_lane"), ("auto", "auto")):
        for nodes, per_node in MACHINES if what in options.tables else ():
            for kind, count in KINDS.items():
                case = (kind, nodes, per_node, count, decomposition, "auto")
                name = f"rank 1, {nodes} x {per_node} {decomposition} {kind}"
                show(name, measure(what, case, options.repetitions))
    if "fold" in options.tables:
        for case in FOLDED:
            show(f"folded {' '.join(map(str, case))}", measure("fold", case, options.repetitions))
    if "whole" in options.tables:
        for case in WHOLE:
            name = " ".join(map(str, case))
            one, other = (measure(what, case, options.repetitions) for what in ("fold", "whole"))
            show(f"folded {name}", one)
            show(f"whole {name}", other)
            assert one["makespan_ns"] == other["makespan_ns"], "folding must not change the price"
            total = [sum(each[step][0] for step in ("compile", "price", "verify"))
                     for each in (one, other)]  # fmt: skip
            print(f"  folded / whole: time {total[0] / total[1]:.3f}, "
                  f"memory {one['MiB'][2] / other['MiB'][2]:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
