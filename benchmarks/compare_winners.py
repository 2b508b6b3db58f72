"""Check the winners that ``collplan compare`` names on large machines.

Every machine, collective and size is compared within the time that users get. With
``--reference`` it is compared once more, for as long as given, and nothing is left out but
what a lower bound excludes. Printed are the winner, its makespan and the seconds of the
comparison; then the best of the reference, its makespan, the ratio of the two makespans,
how many candidates were left for want of time or memory, and the seconds of the reference:

    python benchmarks/compare_winners.py --machines 64x48 --sizes 8,4194304 --reference 1800
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from math import inf
from time import process_time
from unittest.mock import patch

from stopwatch import time_step

from collplan.select import comparison, waves
from collplan.select.compared import LEFT_OUT, Comparison
from collplan.select.comparison import SECONDS, compare
from collplan.select.sweep import processes
from collplan.specs import PlanSpec

MACHINES = "64x48,70x48,128x128"
KINDS = "allreduce,bcast,allgather,alltoall"
SIZES = "8,512,32768,1048576,4194304,67108864"
BELIEVED = {"SAFETY": inf, "CAUTION": ((inf, 0.0),), "STEADY": 0.0, "TOLERANCE": 0.0}
"""Settings of a comparison that believes bounds alone, and no closed form."""
LINK = {"L_ns": 1000, "o_ns": 300, "g_ns": 100, "G_ns_per_byte": 0.04}


def spec_of(machine: str, kind: str, n_bytes: int) -> PlanSpec:
    """Return a collective of the given size on nodes x ranks with two lanes of 200 Gbit/s."""
    nodes, ranks = map(int, machine.split("x"))
    shape = {"nodes": nodes, "ranks_per_node": ranks, "lanes": 2, "network": {"network": LINK}}
    collective = {"kind": kind, "count": n_bytes // 4, "datatype": "float32"}
    return PlanSpec.model_validate({"machine": shape, "collective": collective})


def timed(spec: PlanSpec, seconds: float) -> tuple[Comparison, float]:
    """Return a comparison, and how long it took."""

    def compare_once() -> Comparison:
        with processes() as executor:
            return compare([spec], executor, seconds=seconds)

    times, found = time_step(compare_once)
    return found, times.wall[0]


def reference(spec: PlanSpec, seconds: float) -> tuple[Comparison, float]:
    """Return a comparison that leaves out only what bounds exclude, and how long it took."""
    with ExitStack() as settings:
        for name, value in BELIEVED.items():
            settings.enter_context(patch.object(waves, name, value))
        settings.enter_context(patch.object(comparison, "TOLERANCE", BELIEVED["TOLERANCE"]))
        return timed(spec, seconds)


def main() -> None:
    """Print a line for every machine, collective and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", default=MACHINES)
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--reference", type=float, help="Seconds for each processor.")
    options = parser.parse_args()
    print(
        f"{'machine':10} {'collective':10} {'bytes':>9}  winner, seconds, best, ratio", flush=True
    )
    for machine in options.machines.split(","):
        for kind in options.kinds.split(","):
            for size in map(int, options.sizes.split(",")):
                spec = spec_of(machine, kind, size)
                found, wall_s = timed(spec, options.seconds)
                name = found.leading.get(size)
                words = f"{machine:10} {kind:10} {size:9}  "
                if name is None:
                    print(words + f"nothing was simulated; {wall_s:.0f} s", flush=True)
                    continue
                best_s = found.makespans[name, size]
                rivals = len(found.rivals.get(size, []))
                words += f"{name if not rivals else f'none; {rivals} rivals of {name}'}, "
                words += f"{best_s * 1e6:.1f} µs; {wall_s:.0f} s"
                if options.reference:
                    whole, whole_s = reference(spec, options.reference)
                    other = whole.leading[size]
                    least_s = whole.makespans[other, size]
                    left = [
                        one for one in whole.pruned if one.by in LEFT_OUT and one.bound_s < least_s
                    ]
                    words += f"; {other}, {least_s * 1e6:.1f} µs, {best_s / least_s:.3f}"
                    words += f", {len(left)} left; {whole_s:.0f} s"
                print(words, flush=True)
    print(f"{process_time():.0f} s of this process", flush=True)


if __name__ == "__main__":
    main()
