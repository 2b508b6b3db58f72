"""Program of every rank of the prediction benchmark; started by ``prediction.py``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from cluster_cases import spec_of
from prediction_cases import chosen

from collplan.executors.mpi.world import join_world
from collplan.measure.guideline import measure_guideline
from collplan.specs import Machine


def main() -> int:
    """Measure all cells, and let rank 0 write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--machine", type=Path, required=True)
    parser.add_argument("--collectives", nargs="+", required=True)
    parser.add_argument("--sizes", nargs="+", type=int, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--candidates", required=True)
    parser.add_argument("--plans", required=True)
    options = parser.parse_args()
    comm = join_world()
    machine = Machine.model_validate_json(options.machine.read_text())
    found = []
    for kind in options.collectives:
        for n_bytes in options.sizes:
            spec = spec_of(kind, machine, n_bytes)
            candidates = chosen(options.candidates, options.plans, spec)
            measured = measure_guideline(
                comm, spec, candidates, [spec.collective.count], repetitions=options.repetitions
            )
            found += [
                {**row.to_json(), "collective": kind, "bytes": n_bytes} for row in measured.rows
            ]
            if comm.rank == 0:
                # A long run that is stopped leaves what it has measured.
                options.output.write_text(json.dumps(found))
                print(f"{kind}, {n_bytes} bytes: measured", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
