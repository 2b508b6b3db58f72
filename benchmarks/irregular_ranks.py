"""Program of every rank of the benchmark of irregular counts; started by ``irregular.py``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from irregular_cases import candidates_of, spec_of

from collplan.executors.mpi.world import join_world
from collplan.measure.guideline import measure_guideline
from collplan.measure.timing import library_name
from collplan.specs import Machine


def main() -> int:
    """Measure, and let rank 0 write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--cases", nargs="+", required=True, help="KIND:DISTRIBUTION")
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    options = parser.parse_args()
    comm = join_world()
    given = os.environ.get("COLLPLAN_MACHINE")
    machine = Machine(ranks_per_node=comm.size)
    if given is not None:
        machine = Machine.model_validate_json(given)
    found: dict[str, Any] = {"library": library_name(), "cases": {}}
    for case in options.cases:
        kind, _, distribution = case.partition(":")
        spec = spec_of(kind, distribution, machine, options.bytes)
        measured = measure_guideline(
            comm,
            spec,
            dict(candidates_of(spec)),
            [spec.collective.count],
            repetitions=options.repetitions,
        )
        found["cases"][case] = {
            "rows": [{**row.to_json(), "max_s": row.summary.max_s} for row in measured.rows],
            "refused": {entry.candidate: entry.reason for entry in measured.refused},
        }
        if comm.rank == 0:
            # A long run that is stopped leaves what it has measured.
            options.output.write_text(json.dumps(found))
            print(f"{case}: measured", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
