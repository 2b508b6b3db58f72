"""Program of every rank of the never-slower benchmark; started by ``never_slower.py``.

Times, for every point of a tuning table, the native collective and the same call of a
drop-in communicator on that table, in turns. What was found is written after each point,
and known points are left out, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import collplan
from collplan.executors.mpi.world import join_world
from collplan.measure.lanes import node_of_ranks
from collplan.measure.timing import time_in_turns
from collplan.planner.formats.output_files import write_text
from collplan.tables.sweep import NodePlacement, Point, Sweep
from collplan.tables.table import TuningTable, load_table

FIRST_CALLS = 4
"""In these connections are opened, and the drop-in makes its plan."""
LEAST_ROUNDS = 9
"""The median of fewer has too wide an interval to say anything."""
Call = Callable[[], object]
BLOCKS = {
    "gather": (1, None),
    "scatter": (None, 1),
    "allgather": (1, None),
    "alltoall": (None, None),
    "reduce_scatter_block": (None, 1),
}
"""Blocks a rank sends and receives; None for one of every rank. Others have one vector."""


class Case:
    """A collective's call on buffers of a size, by any communicator; rank 0 is the root."""

    def __init__(self, kind: str, n_bytes: int, size: int, rank: int) -> None:
        self.kind = kind
        n_sent, n_received = BLOCKS.get(kind, (1, 1))
        count = n_bytes // 8
        # Small whole numbers: sums are exact in any order.
        self.sendbuf = np.arange(count * (n_sent or size)) % 1000 + float(rank)
        self.recvbuf = np.zeros(count * (n_received or size))

    def on(self, comm: MPI.Intracomm) -> Call:
        """Return the call on a communicator."""
        method = getattr(comm, self.kind.capitalize())
        if self.kind == "barrier":
            return lambda: method()
        if self.kind == "bcast":
            return lambda: method(self.recvbuf)
        sendbuf, recvbuf = self.sendbuf, self.recvbuf
        return lambda: method(sendbuf, recvbuf)

    def result_of(self, call: Call, rank: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return what MPI promises of a call's result, from buffers filled anew."""
        self.recvbuf[:] = -1.0
        if self.kind == "bcast" and rank == 0:
            self.recvbuf[:] = self.sendbuf
        call()
        promised = rank != 0 if self.kind == "exscan" else rank == 0
        is_defined = promised or self.kind not in ("reduce", "gather", "exscan")
        return self.recvbuf.copy() if is_defined else self.recvbuf[:0].copy()


def points_here(table: TuningTable, comm: MPI.Intracomm) -> Iterator[tuple[Sweep, Point]]:
    """Yield the points of sweeps that were tuned on ranks where these are."""
    placement = NodePlacement.of_nodes(node_of_ranks(comm))
    for sweep in table.sweeps:
        if sweep.complete and sweep.placement == placement:
            yield from ((sweep, point) for point in sweep.points)


def n_rounds(comm: MPI.Intracomm, calls: list[Call], most: int, seconds: float) -> int:
    """Return how many rounds fit into a time, the same on all ranks."""
    spent = time_in_turns(comm, calls, 1, warm_ups=0).sum()
    return int(np.clip(seconds / spent, LEAST_ROUNDS, most))


def measure(
    comm: MPI.Intracomm, dropin: MPI.Intracomm, sweep: Sweep, point: Point, asked: Any
) -> dict[str, Any]:
    """Return what a point's rounds took, in s, and whether both gave the same."""
    case = Case(sweep.collective, point.bytes, comm.size, comm.rank)
    calls = [case.on(comm), case.on(dropin)]
    for call in calls * FIRST_CALLS:
        call()
    native, planned = (case.result_of(call, comm.rank) for call in calls)
    is_equal = comm.allreduce(bool(np.array_equal(native, planned)), MPI.LAND)
    times = time_in_turns(comm, calls, n_rounds(comm, calls, asked.rounds, asked.seconds))
    return {
        "collective": sweep.collective,
        "bytes": point.bytes,
        "winner": point.winner,
        "correct": is_equal,
        "native_s": times[0].tolist(),
        "dropin_s": times[1].tolist(),
    }


def main() -> int:
    """Measure what is not known yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("table", type=Path)
    parser.add_argument("found", type=Path, help="read, where it is there, and written")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    asked = parser.parse_args()
    comm = join_world()
    table = comm.bcast(load_table(asked.table) if comm.rank == 0 else None)
    known = comm.bcast(
        json.loads(asked.found.read_text()) if comm.rank == 0 and asked.found.exists() else {}
    )
    # Every point is let go of when it is measured, so what comes first must be a plan.
    dropin = collplan.Comm(comm.Dup(), table=table, native_calls=0)
    for sweep, point in points_here(table, comm):
        key = f"{sweep.collective} {point.bytes} {point.winner}"
        if key in known:
            continue
        known[key] = measure(comm, dropin, sweep, point, asked)
        dropin.let_go()
        if comm.rank == 0:
            write_text(asked.found, json.dumps(known) + "\n")
            print(f"{sweep.collective}, {point.bytes} B: measured", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
