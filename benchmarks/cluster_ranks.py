"""What every rank of the cluster benchmark runs; started by ``cluster.py``.

One launch measures all collectives, as Python needs longer to start than
most of them take.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from cluster_cases import spec_of
from mpi4py import MPI

from executors.emulation.counters import lane_bytes
from executors.mpi import join_world
from executors.mpi.bench_timing import library_name, line_up
from executors.mpi.guideline import measure_guideline, standard_candidates
from specs import Machine

SETTLE_S: Final = 0.1
"""How long counters are given until the last frames have arrived."""


class LaneCounter:
    """Count the bytes of each candidate's checked call on the lanes of all nodes."""

    def __init__(self, comm: MPI.Intracomm, n_lanes: int) -> None:
        self._comm = comm
        self._n_lanes = n_lanes
        self.most_bytes: dict[str, int] = {}
        """Of the busiest lane of any node, in its busier direction, by candidate."""

    def __call__(self, name: str, call: Callable[[], object]) -> None:
        """Run `call`, counting."""
        before = self._read()
        line_up(self._comm, crowded=True)
        call()
        moved = self._read() - before
        self.most_bytes[name] = int(self._comm.allreduce(int(moved.max()), MPI.MAX))

    def _read(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        line_up(self._comm, crowded=True)
        time.sleep(SETTLE_S)
        counted = lane_bytes()
        return np.array([counted[lane] for lane in range(self._n_lanes)], np.int64)


def main() -> int:
    """Measure, and let rank 0 write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--collectives", nargs="+", required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--only-native", action="store_true")
    options = parser.parse_args()
    comm = join_world()
    machine = Machine.model_validate_json(os.environ["COLLPLAN_MACHINE"])
    found: dict[str, Any] = {"library": library_name(), "collectives": {}}
    for kind in options.collectives:
        spec = spec_of(kind, machine, options.bytes)
        counter = LaneCounter(comm, machine.lanes)
        candidates = [] if options.only_native else standard_candidates(spec)
        measured = measure_guideline(
            comm, spec, candidates, [spec.collective.count],
            repetitions=options.repetitions, watch=counter,
        )  # fmt: skip
        found["collectives"][kind] = {
            "rows": [
                {
                    **row.to_json(),
                    "max_s": row.summary.max_s,
                    "lane_bytes": counter.most_bytes[row.candidate],
                }
                for row in measured.rows
            ],
            "refused": {entry.candidate: entry.reason for entry in measured.refused},
        }
        if comm.rank == 0:
            # A long run that is stopped leaves what it has measured.
            options.output.write_text(json.dumps(found))
            print(f"{kind}: measured", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
