"""Cost of calls that get no plan, beyond mpi4py's own: calls of 8 bytes, and new communicators.

usage: [mpiexec -n N] python benchmarks/drop_in_native.py [--calls N] [--rounds N]

In turn, each call is made several times in a row by mpi4py, by a drop-in whose table has the
native collective as the winner of every sweep, and by a drop-in without a table. Rank 0 prints
mean times of a call in µs on the slowest rank: the least of all rounds, and the median difference
to mpi4py's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from stopwatch import in_a_row

import collplan
from collplan.measure.timing import Call, time_in_turns
from collplan.tune.table import TuningTable, parse_table
from tables_everywhere import planning_table

CREATING_FEWER = 10
"""Factor by which fewer communicators are created in a row than calls are made."""


def native_table(n_ranks: int) -> TuningTable:
    """Return a table whose winner is the native collective everywhere."""
    document = planning_table(n_ranks).model_dump()
    for point in (point for sweep in document["sweeps"] for point in sweep["points"]):
        point["winner"] = "native"
    return parse_table(document)


def calls_of(comm: Any) -> dict[str, Call]:
    """Return calls of a communicator by name."""
    a, b, blocks, own = np.ones(1), np.empty(1), np.empty(comm.size), np.ones(comm.size)
    ones = [1] * comm.size
    types = [own, (ones, [8 * i for i in range(comm.size)]), [MPI.DOUBLE] * comm.size]
    received = [blocks, *types[1:]]
    ring = comm.Create_cart([comm.size], periods=[True])
    both = np.empty(2)
    return {
        "Barrier()": comm.Barrier,
        "Bcast(a)": lambda: comm.Bcast(a),
        "Reduce(a, b)": lambda: comm.Reduce(a, b),
        "Allreduce(a, b)": lambda: comm.Allreduce(a, b),
        "Allreduce([a, DOUBLE], [b, DOUBLE])": lambda: comm.Allreduce(
            [a, MPI.DOUBLE], [b, MPI.DOUBLE]
        ),
        "Allgather(a, c)": lambda: comm.Allgather(a, blocks),
        "Alltoall(c, d)": lambda: comm.Alltoall(own, blocks),
        "Allgatherv(a, [c, counts])": lambda: comm.Allgatherv(a, [blocks, ones]),
        "Alltoallv([c, counts], [d, counts])": lambda: comm.Alltoallv([own, ones], [blocks, ones]),
        "Alltoallw": lambda: comm.Alltoallw(types, received),
        "Neighbor_allgather(a, e)": lambda: ring.Neighbor_allgather(a, both),
        "allreduce(1)": lambda: comm.allreduce(1),
        "Ibarrier().Wait()": lambda: comm.Ibarrier().Wait(),
        "Ibcast(a).Wait()": lambda: comm.Ibcast(a).Wait(),
        "Iallreduce(a, b).Wait()": lambda: comm.Iallreduce(a, b).Wait(),
        "Iallgatherv(a, [c, counts]).Wait()": lambda: comm.Iallgatherv(a, [blocks, ones]).Wait(),
        "Ialltoallw().Wait()": lambda: comm.Ialltoallw(types, received).Wait(),
    }


def creations_of(comm: Any) -> dict[str, Call]:
    """Return calls that create communicators and free them, by name."""
    grid = comm.Create_cart([comm.size, 1])
    return {
        "Dup().Free()": lambda: comm.Dup().Free(),
        "Split(0, rank).Free()": lambda: comm.Split(0, comm.rank).Free(),
        "Cart.Sub([True, False]).Free()": lambda: grid.Sub([True, False]).Free(),
    }


def main() -> None:
    """Measure all calls, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=100)
    asked = parser.parse_args()
    world = MPI.COMM_WORLD
    comms: list[Any] = [
        world,
        collplan.Comm(world, table=native_table(world.size), force=True),
        collplan.Comm(world),
    ]
    if world.rank == 0:
        library = MPI.Get_library_version().splitlines()[0].split(",")[0]
        print(f"{' '.join(library.split())}, {world.size} ranks; µs per call")
        print(f"{'':36s} {'mpi4py':>7s}   {'native table':>14s}   {'no table':>14s}")
    for found, divisor in ((calls_of, 1), (creations_of, CREATING_FEWER)):
        n_calls = asked.calls // divisor
        forms = [found(comm) for comm in comms]
        for name in forms[0]:
            blocks = [in_a_row(form[name], n_calls) for form in forms]
            times = time_in_turns(world, blocks, asked.rounds, warm_ups=2) / n_calls * 1e6
            least, more = times.min(axis=1), np.median(times - times[0], axis=1)
            if world.rank == 0:
                added = (f"{least[i]:7.2f} {more[i]:+6.2f}" for i in (1, 2))
                print(f"{name:36s} {least[0]:7.2f}   {'   '.join(added)}", flush=True)


if __name__ == "__main__":
    main()
