"""What a call of the drop-in costs beyond the plan itself, and beyond native MPI.

usage: python benchmarks/drop_in.py [--calls N] [--rounds N]

On one rank, so that nothing waits for others: a plan's call, the same through the
drop-in, a native call, the same through the drop-in; the least of several rounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import collplan
from tables_everywhere import planning_table


def least_us(call: Callable[[], object], n_calls: int, n_rounds: int) -> float:
    """Return the time of a call, in µs: the least mean of the rounds."""
    best = float("inf")
    for _ in range(n_rounds):
        begin = perf_counter()
        for _ in range(n_calls):
            call()
        best = min(best, (perf_counter() - begin) / n_calls)
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    native = MPI.COMM_SELF
    planned = collplan.Comm(native, table=planning_table(1), force=True)
    without = collplan.Comm(native)
    sent, received = np.ones(16), np.empty(16)
    others = [np.empty(16), np.empty(16)]

    def turns() -> None:
        others.reverse()
        planned.Allreduce(sent, others[0])

    planned.Allreduce(sent, received)
    (entry,) = planned._plans.kept.values()
    assert entry.bound is not None
    calls: dict[str, Callable[[], object]] = {
        "the plan itself": entry.bound,
        "drop-in, a plan, the same arrays": lambda: planned.Allreduce(sent, received),
        "drop-in, a plan, other arrays each time": turns,
        "drop-in, a plan, [array, datatype]": lambda: planned.Allreduce(
            [sent, MPI.DOUBLE], [received, MPI.DOUBLE]
        ),
        "drop-in, a plan, in place": lambda: planned.Allreduce(MPI.IN_PLACE, received),
        "native": lambda: native.Allreduce(sent, received),
        "drop-in, native": lambda: without.Allreduce(sent, received),
    }
    print(f"{MPI.Get_library_version().splitlines()[0]}, allreduce of 128 bytes on one rank")
    for name, call in calls.items():
        call()
        print(f"{name:42s} {least_us(call, asked.calls, asked.rounds):7.2f} µs", flush=True)


main()
