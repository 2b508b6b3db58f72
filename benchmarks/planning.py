"""Speed of compiling, verifying and simulating plans, and memory per task.

Ring allreduce on 256 and 1,024 ranks, one rank per node, each step timed several
times in one process. Run: ``python benchmarks/planning.py [--repetitions 5]``
"""

from __future__ import annotations

import argparse
import resource
import statistics
from collections.abc import Callable

from stopwatch import Result, in_words, time_step

from collplan.executors.cost import simulate
from collplan.planner import Plan, compile_plan
from collplan.planner.memory import keep_freed_memory
from collplan.planner.verify import verify
from collplan.specs import Network, PlanSpec


def ring_allreduce(n_ranks: int) -> PlanSpec:
    """Return a ring allreduce of 16 elements a chunk."""
    return PlanSpec.model_validate(
        {
            "machine": {"nodes": n_ranks, "ranks_per_node": 1},
            "collective": {"kind": "allreduce", "count": 16 * n_ranks, "datatype": "int32"},
            "algorithms": "ring",
        }
    )


def timed(name: str, n_tasks: int | None, repetitions: int, step: Callable[[], Result]) -> Result:
    """Run `step` several times, print its times, return its last result."""
    times, result = time_step(step, repetitions)
    n_tasks = n_tasks or (result.n_tasks if isinstance(result, Plan) else 0)
    speed = n_tasks / statistics.median(times.wall) / 1e6
    print(f"  {name:10s} {in_words(times.wall)}   {speed:6.2f} M tasks/s")
    return result


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    keep_freed_memory()  # as the command line does
    simulate(compile_plan(ring_allreduce(4)), Network())  # loads compiled code
    for n_ranks in (256, 1024):
        spec = ring_allreduce(n_ranks)
        print(f"ring allreduce, {n_ranks} ranks:")
        plan = timed("compile", None, repetitions, lambda spec=spec: compile_plan(spec))
        print(f"  {plan.n_tasks} tasks, {plan.nbytes / plan.n_tasks:.1f} bytes per task")
        timed("verify", plan.n_tasks, repetitions, lambda plan=plan: verify(plan))
        timed("simulate", plan.n_tasks, repetitions, lambda p=plan: simulate(p, Network()))
        timed("one rank", None, repetitions, lambda spec=spec: compile_plan(spec, rank=1))
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of the process: {peak_gib:.1f} GiB")


if __name__ == "__main__":
    main()
