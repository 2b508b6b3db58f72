"""Part of a message between two ranks that computation hides, on two processors.

Rank 0 computes on the first processor. Its progress thread and rank 1, with its own, are on
the second. The slowest rank of each repetition counts. Run under mpiexec, as in
``mpiexec -n 2 python benchmarks/overlap.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import numpy as np
from mpi4py import MPI

import collplan
from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.together import first_alone
from collplan.measure.overlap.overlapped import Computation
from collplan.measure.overlap.sweep import overlap_ratio
from collplan.measure.timing import Call, nothing, time_in_turns

CORES = 4
WARM_UPS = 12
QUANTILE = 0.25
"""Of the repetitions: others may take the processors in many of them, and few are lucky."""
comm = MPI.COMM_WORLD


def bound_plan(
    kind: str, transport: str, n_bytes: int, processors: list[int], progress: str
) -> collplan.BoundPlan:
    """Bind a collective of two ranks with a communication core for each."""
    spec = {
        "machine": {"ranks_per_node": 2, "cores": CORES},
        "collective": {"kind": kind, "count": n_bytes // 8},
        "transport": transport,
        "passes": [{"name": "place_progress"}],
    }
    plan = collplan.compile(collplan.parse_spec(spec))
    first, second = processors
    cores = [first if core == plan.rank_core[0] else second for core in range(CORES)]
    return collplan.bind(plan, comm, progress=progress, cores=cores, timeout_s=60)


def beside(bound: collplan.BoundPlan, compute: Call) -> Call:
    """Return a call that communicates, and computes meanwhile."""

    def both() -> None:
        bound.start()
        compute()
        bound.wait()

    return both


def main() -> int:
    """Measure, and print a line of JSON for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=8 * 2**20)
    parser.add_argument("--kinds", default="bcast,allreduce")
    parser.add_argument("--repetitions", type=int, default=60)
    parser.add_argument("--progress", default="thread", choices=("thread", "caller"))
    options = parser.parse_args()
    processors = sorted(set().union(*comm.allgather(affinity())))[:2]
    if comm.size != 2 or len(processors) < 2:
        print(f"{comm.size} ranks on {len(processors)} processors; two of each are needed")
        return 2
    os.sched_setaffinity(0, {processors[comm.rank]})
    for kind in options.kinds.split(","):
        for transport in ("messages", "shared"):
            plan = kind, transport, options.bytes, processors, options.progress
            with bound_plan(*plan) as bound:
                for buffer in bound.allocate():
                    buffer.fill(comm.rank)
                alone = beside(bound, nothing)
                (warm,) = time_in_turns(comm, [alone], WARM_UPS, warm_ups=0)
                length = float(np.quantile(warm, QUANTILE))
                compute = first_alone(comm, lambda length=length: Computation(length))
                if comm.rank > 0:
                    compute = nothing
                calls = [alone, compute, beside(bound, compute)]
                times = time_in_turns(comm, calls, options.repetitions)
            if comm.rank == 0:
                quick = np.quantile(times, QUANTILE, axis=1).tolist()
                names = ("communication_s", "computation_s", "both_s")
                row = {"kind": kind, "transport": transport, "bytes": options.bytes}
                row |= dict(zip(names, quick, strict=True)) | {"overlap": overlap_ratio(*quick)}
                print(json.dumps(row | {"progress": bound.progress}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
