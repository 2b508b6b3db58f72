"""Cost of agreeing on counts that differ per rank: in a call of the drop-in, and at a bind.

usage: mpiexec -n N python benchmarks/drop_in_vectors.py [--rounds N]

Rank 0 prints, of every vector collective, the median time of a call on the slowest rank: of
native MPI, of the plan alone, of the drop-in with the plan, and of the drop-in where counts
change from call to call. The last lines are of what a bind takes from the views of ranks, and
what of that is agreeing on the spec.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import collplan
from collplan.api.rank_view import agree_on_spec
from collplan.measure.timing import time_in_turns
from tables_everywhere import planning_table

COUNT = 16


class Calls:
    """Calls of a vector collective, with one count that may grow from call to call."""

    def __init__(self, kind: str, comm: Any, *, is_growing: bool = False) -> None:
        self.kind, self.comm, self.step, self.n = kind, comm, int(is_growing), 0
        self.counts = [COUNT + rank % 3 for rank in range(comm.size)]
        self.sent = np.ones((COUNT + 3) * comm.size + 100_000)
        self.received = np.empty_like(self.sent)

    def __call__(self) -> None:
        counts, comm = self.counts.copy(), self.comm
        self.n += self.step
        counts[0] += self.n
        if self.kind == "alltoallv":
            own = counts[comm.rank]
            comm.Alltoallv([self.sent, [own] * comm.size], [self.received, counts])
        elif self.kind == "reduce_scatter":
            mine, total = counts[comm.rank], sum(counts)
            comm.Reduce_scatter([self.sent, total], [self.received, mine], counts)
        elif self.kind == "scatterv":
            comm.Scatterv([self.sent, counts], [self.received, counts[comm.rank]])
        else:
            method = getattr(comm, self.kind.capitalize())
            method([self.sent, counts[comm.rank]], [self.received, counts])


def show_calls(world: MPI.Intracomm, n_rounds: int) -> None:
    """Print times of calls."""
    for kind in ("gatherv", "scatterv", "allgatherv", "reduce_scatter", "alltoallv"):
        comm = collplan.Comm(world, table=planning_table(world.size), force=True, native_calls=0)
        changing = collplan.Comm(world, table=planning_table(world.size), force=True)
        repeated = Calls(kind, comm)
        repeated()
        route = next(reversed(comm._plans.kept.values()))
        calls = [Calls(kind, world), route.bound, repeated, Calls(kind, changing, is_growing=True)]
        found = np.median(time_in_turns(world, calls, n_rounds), axis=1) * 1e6
        if world.rank == 0:
            print(f"{kind:16s}" + "".join(f"{one:10.1f}" for one in found), flush=True)
        comm.let_go()
        changing.let_go()


def show_binding(world: MPI.Intracomm, n_rounds: int) -> None:
    """Print times of binds by views."""
    counts = [COUNT + rank % 3 for rank in range(world.size)]
    sent, received = np.ones(COUNT + 2), np.empty((COUNT + 2) * world.size)
    view = collplan.RankView("allgatherv", counts, own=counts[world.rank])

    def bind() -> None:
        collplan.bind(view, world, sent, received).free()

    calls = {"bind": bind, "agree on the spec": lambda: agree_on_spec(view, world)}
    times = time_in_turns(world, list(calls.values()), n_rounds)
    for name, found in zip(calls, times, strict=True):
        low, middle, high = np.percentile(found, [0, 50, 100]) * 1e3
        if world.rank == 0:
            print(f"{name}: {middle:.2f} ms ({low:.2f} to {high:.2f} ms)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    asked = parser.parse_args()
    world = MPI.COMM_WORLD
    if world.rank == 0:
        library = MPI.Get_library_version().splitlines()[0].split(",")[0]
        print(f"{' '.join(library.split())}, {world.size} ranks; µs per call")
        heads = "native", "plan", "drop-in", "changing"
        print(" " * 16 + "".join(f"{head:>10s}" for head in heads))
    show_calls(world, asked.rounds)
    show_binding(world, max(5, asked.rounds // 10))


if __name__ == "__main__":
    main()
