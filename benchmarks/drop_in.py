"""Cost of a call of the drop-in beyond the plan itself, for every form of its buffers.

usage: [mpiexec -n N] python benchmarks/drop_in.py [--calls N] [--rounds N]

In every round the plan alone is called several times in a row, then the same through the
drop-in; the difference of the two is what is looked up and rebound. Messages are of 16
doubles a rank, so that a plan takes as little as it can. Rank 0 prints times of a call on
the slowest rank: of the plan, and what the drop-in adds, the median over rounds and the
middle half, and the least of all rounds with it less the least without. The last line says
what it takes to make a plan.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from stopwatch import in_a_row

import collplan
from collplan.measure.timing import Call, Times, time_in_turns
from tables_everywhere import planning_table

COUNT = 16


def forms(comm: Any) -> dict[str, Call]:
    """Return calls that differ in how they give their buffers, by name."""
    sent, received = np.ones(COUNT), np.empty(COUNT)
    blocks = np.empty(COUNT * comm.size)
    others = [np.empty(COUNT), np.empty(COUNT)]
    raw, double, in_place = bytearray(8 * COUNT), MPI.DOUBLE, MPI.IN_PLACE
    whole, frozen = np.empty(3 * COUNT), np.ones(COUNT)
    frozen.flags.writeable = comm.rank > 0
    row = double.Create_contiguous(COUNT).Commit()
    column = double.Create_vector(COUNT, 1, 2).Commit()

    def turns() -> None:
        others.reverse()
        comm.Allreduce(others[1], others[0])

    return {
        "Barrier()": comm.Barrier,
        "Allreduce(a, b)": lambda: comm.Allreduce(sent, received),
        "Allreduce, other arrays each time": turns,
        "Allreduce, [a, DOUBLE]": lambda: comm.Allreduce([sent, double], [received, double]),
        "Allreduce, (a, DOUBLE)": lambda: comm.Allreduce((sent, double), (received, double)),
        "Allreduce, [a, n, DOUBLE]": lambda: comm.Allreduce(
            [sent, COUNT, double], [received, COUNT, double]
        ),
        "Allreduce, [a, n]": lambda: comm.Allreduce([sent, COUNT], [received, COUNT]),
        'Allreduce, [a, "d"]': lambda: comm.Allreduce([sent, "d"], [received, "d"]),
        "Allreduce, IN_PLACE": lambda: comm.Allreduce(in_place, received),
        "Allreduce, IN_PLACE, [b, DOUBLE]": lambda: comm.Allreduce(in_place, [received, double]),
        "Allreduce, [b, (n, COUNT), DOUBLE]": lambda: comm.Allreduce(
            sent, [whole, (COUNT, COUNT), double]
        ),
        "Bcast(a)": lambda: comm.Bcast(sent),
        "Bcast, [a, DOUBLE]": lambda: comm.Bcast([sent, double]),
        "Bcast, [a, n, DOUBLE]": lambda: comm.Bcast([sent, COUNT, double]),
        "Bcast, bytearray": lambda: comm.Bcast(raw),
        "Bcast, own contiguous datatype": lambda: comm.Bcast([sent, 1, row]),
        "Bcast, own strided datatype": lambda: comm.Bcast([whole, 1, column]),
        "Bcast, read-only at the root": lambda: comm.Bcast(frozen),
        "Allgather(a, b)": lambda: comm.Allgather(sent, blocks),
        "Allgather, [a, DOUBLE]": lambda: comm.Allgather([sent, double], [blocks, double]),
        "Allgather, IN_PLACE": lambda: comm.Allgather(in_place, blocks),
        "Reduce(a, b, root=0)": lambda: comm.Reduce(sent, received, MPI.SUM, 0),
        "Gather(a, b, root=0)": lambda: comm.Gather(sent, blocks, 0),
        "Scatter(b, a, root=0)": lambda: comm.Scatter(blocks, sent, 0),
    }


def measure(world: MPI.Intracomm, calls: Sequence[Call], n_calls: int, n_rounds: int) -> Times:
    """Return mean times of calls in µs on the slowest rank, shape (len(calls), n_rounds)."""
    blocks = [in_a_row(call, n_calls) for call in calls]
    return time_in_turns(world, blocks, n_rounds, warm_ups=0) / n_calls * 1e6


def show(name: str, without: Times, through: Times) -> None:
    """Print what a call takes, and what the drop-in adds."""
    low, middle, high = np.percentile(through - without, [25, 50, 75])
    least = through.min() - without.min()
    print(
        f"{name:34s} {np.median(without):7.2f} {without.min():6.2f}   {middle:7.2f} {least:6.2f}"
        f"   {low:6.2f} to {high:.2f}",
        flush=True,
    )


def show_binding(world: MPI.Intracomm, n_rounds: int) -> None:
    """Print what it costs to make a plan: of the first of all, and of later ones."""
    table = planning_table(world.size)
    comms: list[Any] = []

    def prepare() -> None:
        comms.append(collplan.Comm(world, table=table, force=True, native_calls=0))
        # The first one of a communicator finds out where ranks are, too.
        comms[-1].Bcast(np.zeros(2))

    def make_plan() -> None:
        count = COUNT + len(comms)
        comms[-1].Allreduce(np.ones(count), np.empty(count))

    def let_go() -> None:
        comms[-1].let_go()

    (slowest,) = time_in_turns(
        world, [make_plan], n_rounds, prepare=prepare, advance=let_go, warm_ups=0
    )
    if world.rank == 0:
        low, middle, high = np.percentile(slowest, [0, 50, 100]) * 1e3
        print(f"a plan is made in {middle:.1f} ms ({low:.1f} to {high:.1f} ms)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=300)
    asked = parser.parse_args()
    world = MPI.COMM_WORLD
    planned = collplan.Comm(world, table=planning_table(world.size), force=True, native_calls=0)
    without = collplan.Comm(world)
    if world.rank == 0:
        library = MPI.Get_library_version().splitlines()[0].split(",")[0]
        print(f"{' '.join(library.split())}, {world.size} ranks; µs per call")
        print(f"{'':34s} {'plan':>7s} {'least':>6s}   {'beyond':>7s} {'least':>6s}   middle half")
    for name, call in forms(planned).items():
        for _ in range(5):
            call()
        entry = next(reversed(planned._plans.kept.values()))
        found = measure(world, [entry.bound, call], asked.calls, asked.rounds)
        if world.rank == 0:
            show(name, *found)
    sent, received = np.ones(COUNT), np.empty(COUNT)
    natives = [lambda comm=comm: comm.Allreduce(sent, received) for comm in (world, without)]
    found = measure(world, natives, asked.calls, asked.rounds)
    if world.rank == 0:
        show("native Allreduce(a, b)", *found)
    planned.let_go()
    show_binding(world, 10)


if __name__ == "__main__":
    main()
