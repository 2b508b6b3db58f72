"""Cost of calls by mpi4py: natively, through a drop-in that leaves them native, and by plans.

usage: [mpiexec -n N] python benchmarks/drop_in.py [--calls N] [--rounds N]

In every round the same call is made several times in a row on three communicators. Messages have
16 doubles per rank. Rank 0 prints times per call on the slowest rank: the least and the median over
the rounds. On one rank, a plan only copies.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from stopwatch import in_a_row

import collplan
from collplan.measure.timing import time_in_turns
from tables_everywhere import planning_table

COUNT = 16
NEVER = 10**9
"""Number of native calls before a plan that no run reaches."""

Make = Callable[[Any], Any]


def calls(size: int) -> dict[str, Make]:
    """Return functions that make a call on a communicator, by name."""
    sent, received, blocks = np.ones(COUNT), np.empty(COUNT), np.empty(COUNT * size)
    double, in_place = MPI.DOUBLE, MPI.IN_PLACE
    return {
        "Barrier()": lambda comm: comm.Barrier(),
        "Allreduce(a, b)": lambda comm: comm.Allreduce(sent, received),
        "Allreduce([a, DOUBLE], ...)": lambda comm: comm.Allreduce(
            [sent, double], [received, double]
        ),
        "Allreduce(IN_PLACE, b)": lambda comm: comm.Allreduce(in_place, received),
        "Bcast(a)": lambda comm: comm.Bcast(sent),
        "Allgather(a, b)": lambda comm: comm.Allgather(sent, blocks),
        "Gather(a, b)": lambda comm: comm.Gather(sent, blocks, 0),
        "Iallreduce(a, b).Wait()": lambda comm: comm.Iallreduce(sent, received).Wait(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=300)
    asked = parser.parse_args()
    world, table = MPI.COMM_WORLD, planning_table(MPI.COMM_WORLD.size)
    comms = [world.Dup()]
    for native_calls in (NEVER, 0):
        comms.append(
            collplan.Comm(
                world.Dup(), table=table, force=True, native_calls=native_calls, nonblocking_from=0
            )
        )
    if world.rank == 0:
        library = MPI.Get_library_version().splitlines()[0].split(",")[0]
        print(f"{' '.join(library.split())}, {world.size} ranks; µs per call, least (median)")
        print(f"{'':28s} {'native':>14s} {'left native':>14s} {'by a plan':>14s}")
    for name, make in calls(world.size).items():
        blocks = [in_a_row(lambda one=one, make=make: make(one), asked.calls) for one in comms]
        found = time_in_turns(world, blocks, asked.rounds, warm_ups=1) / asked.calls * 1e6
        if world.rank == 0:
            cells = (f"{one.min():.2f} ({np.median(one):.2f})" for one in found)
            print(f"{name:28s} " + " ".join(f"{cell:>14s}" for cell in cells), flush=True)
    for comm in comms:
        comm.Free()


if __name__ == "__main__":
    main()
