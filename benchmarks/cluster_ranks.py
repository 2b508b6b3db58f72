"""Program of every rank of the cluster benchmark; started by ``cluster.py``.

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

from cluster_cases import spec_of
from mpi4py import MPI

from collplan.emulate.launching import NODE
from collplan.emulate.machine import lane_bytes
from collplan.executors.mpi.world import join_world
from collplan.measure.guideline import measure_guideline, standard_candidates
from collplan.measure.timing import library_name, line_up
from collplan.specs import Machine

SETTLE_S: Final = 0.1
"""Time in seconds that counters are given until the last frames have arrived."""


class LaneCounter:
    """Count the bytes of each candidate's checked call on the lanes of all nodes."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self.lanes: dict[str, list[list[tuple[int, int]]]] = {}
        """By candidate, for every node and lane: bytes received and sent."""

    def __call__(self, name: str, call: Callable[[], object]) -> None:
        """Run `call`, counting."""
        before = self._read()
        line_up(self._comm, crowded=True)
        call()
        after = self._read()
        moved = [
            (after[lane][0] - before[lane][0], after[lane][1] - before[lane][1]) for lane in after
        ]
        # All ranks of a node see the same; the last one's word is taken.
        of_nodes = dict(self._comm.allgather((int(os.environ[NODE]), moved)))
        self.lanes[name] = [of_nodes[node] for node in sorted(of_nodes)]

    def _read(self) -> dict[int, tuple[int, int]]:
        line_up(self._comm, crowded=True)
        time.sleep(SETTLE_S)
        counted = lane_bytes()
        # Nobody goes on, and sends, before all have read.
        line_up(self._comm, crowded=True)
        return counted


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
        counter = LaneCounter(comm)
        candidates = {} if options.only_native else standard_candidates(spec)
        measured = measure_guideline(
            comm, spec, candidates, [spec.collective.count],
            repetitions=options.repetitions, watch=counter,
        )  # fmt: skip
        found["collectives"][kind] = {
            "rows": [
                {
                    **row.to_json(),
                    "max_s": row.summary.max_s,
                    "lanes": counter.lanes[row.candidate],
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
