"""Thousands of starts of random plans, several bound at once: what do they leave behind?

Run under mpiexec, as in ``mpiexec -n 2 python benchmarks/soak.py --seconds 120``. Exit
status 1 if memory, file descriptors or MPI's objects keep growing.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import collplan
from collplan.planner.machine_code import interpreted

KINDS = ("allreduce", "bcast", "allgather", "alltoall", "scan", "reduce_scatter_block", "gather")
N_AT_ONCE = 3
N_STARTS = 4
SAMPLE_EVERY = 50
LARGEST_GROWTH_MIB = 8.0
INDEX_BITS = 2**26 - 1
"""Of an MPICH handle: the others say what it is of and which of two pools it is from."""
POOL = 64
"""Numbers of objects that may be out of order."""
WARM_UP_ROUNDS = 200
"""Until libraries have grown their pools."""
comm = MPI.COMM_WORLD


def random_plan(rng: np.random.Generator) -> collplan.Plan:
    """Return this rank's program of a random collective, the same on all ranks."""
    collective = {"kind": str(rng.choice(KINDS)), "count": int(rng.integers(1, 3000))}
    if collective["kind"] in ("bcast", "gather"):
        collective["root"] = int(rng.integers(comm.size))
    spec: dict[str, object] = {
        "machine": {"ranks_per_node": comm.size},
        "collective": {**collective, "datatype": "int32"},
        "transport": "shared" if rng.random() < 0.3 else "messages",
    }
    if rng.random() < 0.3:
        spec["passes"] = [{"name": "segment", "max_bytes": 1024}]
    return collplan.compile(collplan.parse_spec(spec), rank=comm.rank)


class Adding:
    """A sum in Python, which the engine calls."""

    def apply(self, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
        """Write the sum into `out`."""
        np.add(left, right, out=out)


def fill(bound: collplan.BoundPlan) -> None:
    """Give a plan buffers of ones, and keep no reference: a window lives as long as its arrays."""
    for buffer in bound.allocate():
        buffer.fill(1)


def one_round(rng: np.random.Generator) -> int:
    """Bind several plans, start all at once several times, free them; return the starts."""
    bounds = []
    for _ in range(N_AT_ONCE):
        operation = Adding() if rng.random() < 0.3 else None
        timeout_s = 60 if rng.random() < 0.5 else None
        bound = collplan.bind(random_plan(rng), comm, operation=operation, timeout_s=timeout_s)
        fill(bound)
        bounds.append(bound)
    for _ in range(N_STARTS):
        for bound in bounds:
            bound.start()
        left = bounds
        while left:
            left = [bound for bound in left if not bound.test()]
    for bound in reversed(bounds):
        bound.free()
    return N_AT_ONCE * N_STARTS


def resident_mib() -> float:
    """Return this process's resident memory without what it shares."""
    fields = Path("/proc/self/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGESIZE") / 2**20


def handles() -> dict[str, int]:
    """Return numbers of new objects: libraries reuse them, so what leaks raises them for good."""
    made = comm.Dup()
    datatype = MPI.INT.Create_contiguous(3).Commit()
    request = made.Send_init([np.zeros(1), MPI.DOUBLE], comm.rank)
    window = len(os.listdir("/dev/shm")) if Path("/dev/shm").exists() else 0
    found = {
        "communicator": made.py2f() & INDEX_BITS,
        "datatype": datatype.py2f() & INDEX_BITS,
        "request": request.py2f() & INDEX_BITS,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "shared files": window,
    }
    request.Free()
    datatype.Free()
    made.Free()
    return found


def main() -> int:
    """Run for some seconds, print a line now and then, compare the end with the beginning."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=10**9)
    parser.add_argument("--warm-up", type=int, default=WARM_UP_ROUNDS)
    options = parser.parse_args()
    # All kernels are loaded in the warm-up: else the machine's load decides when memory grows.
    interpreted.SHARE = 0
    rng = np.random.default_rng(1)
    end = time.monotonic() + options.seconds
    n_rounds = n_starts = 0
    before: tuple[float, dict[str, int]] | None = None
    while comm.bcast(time.monotonic() < end and n_rounds < options.rounds):
        n_starts += one_round(rng)
        n_rounds += 1
        if n_rounds == options.warm_up:
            gc.collect()
            before = resident_mib(), handles()
        if n_rounds % SAMPLE_EVERY == 0 and comm.rank == 0:
            sys.stdout.write(f"{n_rounds} rounds: {resident_mib():.1f} MiB\n")
            sys.stdout.flush()
    if before is None:
        sys.stderr.write("too short: the rounds to warm up are not over; give more seconds\n")
        return 2
    gc.collect()
    after = resident_mib(), handles()
    growth = comm.allreduce(after[0] - before[0], MPI.MAX)
    grown = {name: after[1][name] - before[1][name] for name in after[1]}
    # MPICH's pools give numbers back in any order; the files of other jobs come and go.
    slack = POOL + n_rounds * N_AT_ONCE // 10
    n_grown = comm.allreduce(sum(n > slack for name, n in grown.items() if name != "shared files"))
    is_leaking = n_grown > 0 or growth > LARGEST_GROWTH_MIB
    if comm.rank == 0:
        n_bound = n_rounds * N_AT_ONCE
        print(f"{n_starts} starts, {n_bound} plans bound and freed on {comm.size} ranks")
        print(f"memory: {growth:+.2f} MiB on the rank where most, {before[0]:.1f} MiB before")
        print("numbers of new objects: " + ", ".join(f"{k} {v:+d}" for k, v in grown.items()))
        print("leaking" if is_leaking else "passed")
    return int(is_leaking)


sys.exit(main())
