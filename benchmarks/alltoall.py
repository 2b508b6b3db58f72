"""Scaling of alltoall: 7,168 ranks of OHIO's final design, 1,152 of pairwise; and orders.

Compiles and simulates both, each in a process of its own, compiles single
ranks' programs, and runs double-buffered plans in a thousand random legal
orders; with ``--all`` proves the former and compiles all other designs on as many ranks.
Run: ``python benchmarks/alltoall.py [--repetitions 3] [--only NAME] [--all]``
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable

import numpy as np
from stopwatch import Result, in_words, time_step

from collplan.executors.cost import simulate
from collplan.executors.local import run_local
from collplan.planner import Plan, compile_plan
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.memory import keep_freed_memory
from collplan.planner.metrics import measure
from collplan.planner.verify import verify
from collplan.select.alltoall_designs import DESIGNS
from collplan.specs import PlanSpec

N_ORDERS = 1_000


def design(name: str, nodes: int, ranks: int, preset: str | None = None) -> PlanSpec:
    """Return a design's spec, eight bytes per block."""
    machine = {"nodes": nodes, "ranks_per_node": ranks}
    if preset is not None:
        machine = {"preset": preset, "nodes": nodes}
    collective = {"kind": "alltoall", "count": 1, "datatype": "int64"}
    return DESIGNS[name].of(PlanSpec.model_validate({"machine": machine, "collective": collective}))


def timed(name: str, repetitions: int, step: Callable[[], Result]) -> Result:
    """Run `step` several times, print its times, return its last result."""
    times, result = time_step(step, repetitions)
    print(
        f"  {name:22s} {in_words(times.wall)}   "
        f"processor time, median {statistics.median(times.processor):7.3f} s"
    )
    return result


def scale(name: str, nodes: int, ranks: int, preset: str, repetitions: int) -> None:
    """Compile and simulate a design on a large machine."""
    small, large = (design(name, n, k, preset) for n, k in ((2, 2), (nodes, ranks)))
    compile_plan(design(name, 2, 2))  # loads compiled code
    compile_plan(design(name, 2, 2), rank=0)
    simulate(compile_plan(design(name, 2, 2)), small.machine.network)
    print(f"{name}, {large.machine.n_ranks:,} ranks on {nodes} nodes, blocks of 8 bytes:")
    if name.startswith("ohio"):
        for rank in (0, 1):
            own = timed(
                f"program of rank {rank}", repetitions, lambda r=rank: compile_plan(large, rank=r)
            )
            print(f"  {own.n_tasks:,} tasks")
    plan = timed("compile", repetitions, lambda: compile_plan(large))
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  {plan.n_tasks:,} tasks, {plan.nbytes / plan.n_tasks:.0f} bytes each")
    result = timed("simulate", repetitions, lambda: simulate(plan, large.machine.network))
    found = measure(plan)
    print(
        f"  a node: {found.queue_pairs_per_node:,} queue pairs, {found.posted_sends_per_node:,} "
        f"sends, {found.scratch_bytes_per_node:,} bytes; makespan {result.makespan_s * 1e6:.1f} µs"
    )
    print(f"  peak memory of the process after compiling: {peak_gib:.2f} GiB")


def orders() -> None:
    """Run double-buffered plans in random legal orders and compare every result."""
    for nodes, ranks in ((5, 2), (4, 3)):
        plan = compile_plan(design("ohio_v3", nodes, ranks))
        verify(plan)
        name = f"ohio_v3 on {nodes} x {ranks}"
        times, _ = time_step(lambda plan=plan, name=name: check_orders(plan, name))
        print(f"{name}: proved; right in {N_ORDERS:,} random orders ({times.wall[0]:.1f} s)")


def check_orders(plan: Plan, name: str) -> None:
    """Run a plan in random legal orders; exit where a result is wrong."""
    p, collective = plan.n_ranks, plan.spec.collective
    for seed in range(N_ORDERS):
        inputs = make_inputs(collective, p, seed)
        recvbufs = [np.zeros(p, np.int64) for _ in range(p)]
        run_local(plan, inputs, recvbufs, order=random.Random(seed))
        for got, truth in zip(recvbufs, expected(collective, inputs), strict=True):
            if not np.array_equal(got, truth):
                raise SystemExit(f"{name}: seed {seed} is wrong")


def proof() -> None:
    """Prove the plan of 7,168 ranks, as `verify` does on demand."""
    verify(compile_plan(design("ohio_v3", 2, 2)))  # loads compiled code
    plan = compile_plan(design("ohio_v3", 128, 56, "ohio-a"))
    timed(f"proof of {plan.n_tasks:,} tasks", 1, lambda: verify(plan))
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  peak memory of the process: {peak_gib:.2f} GiB")


def at_scale(name: str) -> Callable[[int], None]:
    """Return the case of a design on 7,168 ranks."""
    return lambda n: scale(name, 128, 56, "ohio-a", n)


FLAT = ("pairwise", "scatter_destination")
"""Designs that exchange a message per pair of ranks: 51 million on 7,168."""
CASES: dict[str, Callable[[int], None]] = {
    "v3": lambda n: scale("ohio_v3", 128, 56, "ohio-a", n),
    "pairwise": lambda n: scale("pairwise", 36, 32, "hydra", n),
    "orders": lambda n: orders(),
    "proof": lambda n: proof(),
} | {name: at_scale(name) for name in DESIGNS if name not in (*FLAT, "ohio_v3")}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", choices=list(CASES), help="one case, in this process")
    parser.add_argument("--all", action="store_true", help="the proof and all designs, too")
    arguments = parser.parse_args()
    keep_freed_memory()  # as the command line does
    if arguments.only:
        CASES[arguments.only](arguments.repetitions)
        return
    for name in CASES if arguments.all else ("v3", "pairwise", "orders"):
        again = [sys.executable, __file__, "--only", name]
        subprocess.run([*again, "--repetitions", str(arguments.repetitions)], check=True)


if __name__ == "__main__":
    main()
