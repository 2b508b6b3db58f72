"""Processor time of comparisons on 36 x 32 ranks: all algorithms beside the textbook's alone.

Both take turns, each in a process of its own, and the libraries' rows are left out of both:

    python benchmarks/atlas_cost.py [--kinds allreduce bcast allgather] [--repetitions 3]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import process_time
from typing import Final

from atlas import keep_textbook, specs_of

from collplan.select.comparison import compare

KINDS: Final = ("allreduce", "bcast", "allgather")
SECONDS: Final = 300.0
"""Limit of a comparison, far above what it takes."""


def measure(kind: str, only_textbook: bool) -> None:
    """Compare in this process, and print its seconds and numbers of candidates and simulations."""
    if only_textbook:
        keep_textbook()
    begin = process_time()
    found = compare(specs_of("36 x 32", kind), patterns=["*"], seconds=SECONDS)
    took_s = process_time() - begin
    print(took_s, len(found.specs), len(found.makespans))


def run(kind: str, which: str) -> list[float]:
    """Return what a process of its own measures."""
    command = [sys.executable, str(Path(__file__)), "--one", kind, which]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("KIND", "WHICH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.one[0], options.one[1] == "textbook")
        return
    for kind in options.kinds:
        pairs = [(run(kind, "textbook"), run(kind, "all")) for _ in range(options.repetitions)]
        ratios = sorted(every[0] / old[0] for old, every in pairs)
        for name, found in (("textbook", [a for a, _ in pairs]), ("all", [b for _, b in pairs])):
            seconds = [one[0] for one in found]
            print(
                f"{kind}, {name}: {median(seconds):.1f} s ({min(seconds):.1f} to "
                f"{max(seconds):.1f}), {found[0][1]:.0f} candidates, {found[0][2]:.0f} simulations"
            )
        print(
            f"{kind}: ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True
        )


if __name__ == "__main__":
    main()
