"""Cost of a non-blocking collective by a plan beside native MPI's and the blocking plan.

usage: mpiexec -n N python benchmarks/drop_in_nonblocking.py [--kind K] [--rounds N] [BYTES...]

Every collective is waited for at once, by its request's `Wait` or by `MPI.Request.Waitall`,
which leaves the plan to the thread. The least over rounds, all in turns, of the slowest
rank's time.
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

import collplan
from collplan.measure.timing import time_in_turns
from tables_everywhere import planning_table

SIZES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)


def calls_of(kind: str, n_bytes: int, comm: Any, native: Any) -> dict[str, Callable[[], Any]]:
    n = max(1, n_bytes // 8)
    sent, received = np.ones(n), np.zeros(n)
    if kind in ("alltoall", "allgather"):
        received = np.zeros(n * native.size)
        sent = np.ones(n * native.size) if kind == "alltoall" else sent
    given = (received,) if kind == "bcast" else (sent, received)
    now, later = kind.capitalize(), f"I{kind}"
    wait_all = MPI.Request.Waitall
    return {
        "native": lambda: getattr(native, now)(*given),
        "native, Wait": lambda: getattr(native, later)(*given).Wait(),
        "native, Waitall": lambda: wait_all([getattr(native, later)(*given)]),
        "plan": lambda: getattr(comm, now)(*given),
        "plan, Wait": lambda: getattr(comm, later)(*given).Wait(),
        "plan, Waitall": lambda: wait_all([getattr(comm, later)(*given)]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", default="allreduce")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("bytes", type=int, nargs="*", default=SIZES)
    asked = parser.parse_args()
    native = MPI.COMM_WORLD
    options: dict[str, Any] = {"force": True, "native_calls": 0, "nonblocking_from": 0}
    comm = collplan.Comm(native, table=planning_table(native.size), **options)
    if native.rank == 0:
        print(f"{MPI.Get_library_version().splitlines()[0]}, {native.size} ranks, {asked.kind}, µs")
    for n_bytes in asked.bytes:
        calls = calls_of(asked.kind, n_bytes, comm, native)
        times = time_in_turns(native, list(calls.values()), asked.rounds).min(axis=1) * 1e6
        if native.rank == 0:
            cells = "  ".join(f"{name} {us:.0f}" for name, us in zip(calls, times, strict=True))
            print(f"{n_bytes:8d} bytes  {cells}", flush=True)


main()
