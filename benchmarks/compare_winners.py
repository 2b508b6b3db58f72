"""Check the winners that ``collplan compare`` names on large machines.

Every machine, collective and size is compared within the time that users get, and then
without limits, as far as memory allows. Printed are the winner, its makespan, the best
without limits, their ratio, and the seconds of both, of all processors together:

    python benchmarks/compare_winners.py --machines 64x48 --sizes 8,4194304 --reference
"""

from __future__ import annotations

import argparse
from time import process_time

from stopwatch import time_step

from collplan.select.comparison import SECONDS, Comparison, compare
from collplan.select.sweep import processes
from collplan.specs import PlanSpec

MACHINES = "64x48,70x48,128x128"
KINDS = "allreduce,bcast,allgather,alltoall"
SIZES = "8,512,32768,1048576,4194304,67108864"
LINK = {"L_ns": 1000, "o_ns": 300, "g_ns": 100, "G_ns_per_byte": 0.04}


def spec_of(machine: str, kind: str, n_bytes: int) -> PlanSpec:
    """Return a collective of so many bytes on nodes x ranks with two lanes of 200 Gbit/s."""
    nodes, ranks = map(int, machine.split("x"))
    shape = {"nodes": nodes, "ranks_per_node": ranks, "lanes": 2, "network": {"network": LINK}}
    collective = {"kind": kind, "count": n_bytes // 4, "datatype": "float32"}
    return PlanSpec.model_validate({"machine": shape, "collective": collective})


def timed(spec: PlanSpec, seconds: float | None, *, prune: bool) -> tuple[Comparison, float]:
    """Return a comparison, and how long it took."""

    def compare_once() -> Comparison:
        with processes() as executor:
            return compare([spec], executor, seconds=seconds, prune=prune)

    times, found = time_step(compare_once)
    return found, times.wall[0]


def main() -> None:
    """Print a line for every machine, collective and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", default=MACHINES)
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--reference", action="store_true", help="Simulate all, without limits.")
    options = parser.parse_args()
    print(
        f"{'machine':10} {'collective':10} {'bytes':>9}  winner, seconds, best, ratio", flush=True
    )
    for machine in options.machines.split(","):
        for kind in options.kinds.split(","):
            for size in map(int, options.sizes.split(",")):
                spec = spec_of(machine, kind, size)
                found, wall_s = timed(spec, options.seconds, prune=True)
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
                    whole, whole_s = timed(spec, None, prune=False)
                    least_s = min(whole.makespans.values())
                    other = whole.leading[size]
                    words += f"; {other}, {least_s * 1e6:.1f} µs, {best_s / least_s:.3f}"
                    words += f"; {whole_s:.0f} s"
                print(words, flush=True)
    print(f"{process_time():.0f} s of this process", flush=True)


if __name__ == "__main__":
    main()
