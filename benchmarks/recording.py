"""Recorded starts beside unrecorded ones, in turns: what recording costs.

An allreduce, segmented by default, on all ranks of an mpiexec:

    mpiexec -n 4 python benchmarks/recording.py --sizes 1024,65536,1048576 --rounds 101

Prints for each size recorded over unrecorded time: the ratio of the medians and of the
least times, and the quartiles of the ratios of rounds.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI

import collplan
from collplan.executors.mpi.engine.loop_memory import Recorder
from collplan.measure.timing import time_in_turns


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1024,65536,262144,1048576")
    parser.add_argument("--rounds", type=int, default=101)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    for n_bytes in map(int, options.sizes.split(",")):
        spec = collplan.parse_spec(
            {
                "machine": {"ranks_per_node": comm.size},
                "collective": {"kind": "allreduce", "count": n_bytes // 4, "datatype": "int32"},
                "algorithms": "ring",
                "passes": [{"name": "segment", "max_bytes": 16384}] if n_bytes > 65536 else [],
            }
        )
        plan = collplan.compile(spec, rank=comm.rank)
        given, result = np.ones(n_bytes // 4, np.int32), np.zeros(n_bytes // 4, np.int32)
        with (
            collplan.bind(plan, comm, given, result) as plain,
            collplan.bind(plan, comm, given, result, recorder=Recorder()) as recorded,
        ):
            times = time_in_turns(comm, [plain, recorded], options.rounds)
        plain_s, recorded_s = times
        if comm.rank == 0:
            ratio = np.median(recorded_s) / np.median(plain_s)
            low, high = np.quantile(recorded_s / plain_s, (0.25, 0.75))
            print(
                f"{n_bytes:>9} B, {plan.n_tasks} tasks on rank 0: {ratio:.3f}, least "
                f"{recorded_s.min() / plain_s.min():.3f}, quartiles {low:.3f} to {high:.3f}; "
                f"unrecorded {np.median(plain_s) * 1e6:.1f} µs",
                flush=True,
            )


if __name__ == "__main__":
    main()
