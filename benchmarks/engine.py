"""The compiled engine beside native MPI and beside mpi4py by hand.

Starts its own ranks and prints

- what the engine costs a task, by messages to self, and what binding costs;
- the same algorithm by native MPI, by the engine and by hand, in place where MPI
  can: native is told which algorithm to use, and its own ways by shared memory
  are off;
- native as it comes beside the fastest plan of every collective.

Run: ``.venv/bin/python benchmarks/engine.py [--ranks 2,4,8 --rounds 15 --json FILE]``.
A ratio is the engine's time over native's in the same round; printed are the median
with its 95 % interval, and least and most of all rounds. Sizes are those of MPI's
count: of the vector, or of one block.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.executors.mpi.launch.jobs import relaunch
from collplan.executors.mpi.launch.launcher import find_launcher
from collplan.measure.statistics import LEAST, median_interval
from collplan.reports.output import format_bytes, format_seconds, print_line, print_table
from collplan.specs import parse_bytes
from collplan.specs.errors import CollplanError

HERE: Final = Path(__file__).parent
SAME: Final = ("allreduce", "bcast", "alltoall", "allgather")
ALL: Final = (
    *("bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall"),
    *("reduce_scatter_block", "scan", "exscan", "barrier"),
)
FORCED: Final = {
    "mpich": {
        "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
        "MPIR_CVAR_COLLECTIVE_FALLBACK": "print",
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring",
        "MPIR_CVAR_BCAST_INTRA_ALGORITHM": "binomial",
        "MPIR_CVAR_ALLTOALL_INTRA_ALGORITHM": "pairwise",
        "MPIR_CVAR_ALLGATHER_INTRA_ALGORITHM": "ring",
    },
    "openmpi": {
        "OMPI_MCA_coll": "^han,sm,adapt",
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_allreduce_algorithm": "4",
        "OMPI_MCA_coll_tuned_bcast_algorithm": "6",
        "OMPI_MCA_coll_tuned_alltoall_algorithm": "2",
        "OMPI_MCA_coll_tuned_allgather_algorithm": "4",
    },
}
"""By family, what makes native take the engine's algorithms: ring, binomial, pairwise, ring."""
Cell = dict[str, Any]


def measure(what: str, n_ranks: int, kinds: list[str], options: argparse.Namespace) -> list[Cell]:
    """Return the cells of one launch."""
    family = find_launcher().library.family
    forced = FORCED.get(family, {}) if what == "same" else {}
    kept = dict(os.environ)
    os.environ.update(forced)
    try:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "cells.json"
            program = [sys.executable, str(HERE / "engine_ranks.py"), str(output)]
            program += ["--what", what, "--rounds", str(options.rounds)]
            program += ["--sizes", *map(str, options.sizes), "--collectives", *kinds]
            if options.receives is not None:
                program += ["--receives", str(options.receives)]
            status = relaunch(program, n_ranks, options.timeout)
            if status != 0:
                raise CollplanError(f"the ranks ended with exit status {status}")
            cells: list[Cell] = json.loads(output.read_text())
            return cells
    finally:
        os.environ.clear()
        os.environ.update(kept)


def ratio_row(cell: Cell, method: str) -> list[str]:
    """Return a method's ratio to native in words: median, interval, least and most."""
    ratios = np.array(cell["times_s"][method]) / np.array(cell["times_s"]["native"])
    low, high = median_interval(ratios)
    return [
        f"{np.median(ratios):.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{ratios.min():.2f} to {ratios.max():.2f}",
    ]


def print_same(cells: list[Cell]) -> None:
    """Print the comparison of the same algorithms."""
    columns = ["collective", "bytes", "native", "engine", "95 %", "all", "slices", "persistent"]
    rows = []
    for cell in cells:
        native_s = float(np.median(cell["times_s"]["native"]))
        by_hand = [ratio_row(cell, method)[0] for method in ("slices", "persistent")]
        place = [cell["kind"], format_bytes(cell["bytes"]), format_seconds(native_s)]
        rows.append([*place, *ratio_row(cell, "engine"), *by_hand])
    print_table(columns, rows)


def print_best(cells: list[Cell]) -> None:
    """Print the best plans beside native, and how often they win."""
    columns = ["collective", "bytes", "native", "best plan/native", "95 %", "all", "plan"]
    rows = []
    n_won = n_lost = 0
    for cell in cells:
        native_s = float(np.median(cell["times_s"]["native"]))
        ratio = ratio_row(cell, "engine")
        low, high = (float(end) for end in ratio[1].split(" to "))
        n_won, n_lost = n_won + (high < 1), n_lost + (low > 1)
        place = [cell["kind"], format_bytes(cell["bytes"]), format_seconds(native_s)]
        rows.append([*place, *ratio, cell["best"]])
    print_table(columns, rows)
    print_line(f"of {len(cells)} cells the best plan wins {n_won} and loses {n_lost}")


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--what", choices=("self", "same", "best"), action="append")
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument(
        "--sizes",
        type=lambda text: [parse_bytes(size) for size in text.split(",")],
        default="8,1KiB,64KiB,1MiB,8MiB",
    )
    parser.add_argument("--collectives", type=lambda text: text.split(","), default=list(ALL))
    parser.add_argument("--rounds", type=int, default=15, help=f"at least {LEAST}")
    parser.add_argument(
        "--receives", type=int, help="of the engine's at once for 'same'; as many as there are"
    )
    parser.add_argument("--timeout", type=float, default=1800, help="seconds a launch")
    parser.add_argument("--json", type=Path, help="a file to write all times into")
    options = parser.parse_args()
    if options.rounds < LEAST:
        few = f"{options.rounds} are too few for an interval"
        parser.error(f"--rounds: {few}; make {LEAST} or more")
    return options


def main() -> int:
    """Print the tables."""
    options = parse_options()
    asked = options.what or ["self", "same", "best"]
    document: dict[str, list[Cell]] = {"same": [], "best": []}
    if "self" in asked:
        relaunch([sys.executable, str(HERE / "engine_self.py")], 1, options.timeout)
    for n_ranks in options.ranks or [2, 4, 8]:
        for what, known, show in (("same", SAME, print_same), ("best", ALL, print_best)):
            kinds = [kind for kind in options.collectives if kind in known]
            if what not in asked or not kinds:
                continue
            cells = measure(what, n_ranks, kinds, options)
            document[what] += cells
            title = "the same algorithm" if what == "same" else "the best plan"
            print_line(f"{title}, {n_ranks} ranks, {cells[0]['library']}, {options.rounds} rounds")
            show(cells)
            if options.json is not None:
                options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CollplanError as error:
        sys.exit(f"engine.py: error: {error}")
