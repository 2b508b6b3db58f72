"""Time `collplan compare` on a large machine: allreduce on Hydra, 10 sizes, all candidates.

Each repetition is a process of its own, from its start to its end, as a person waits for it.
Run on idle cores: ``python benchmarks/compare.py [--repetitions 3]``
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from stopwatch import time_step

ROOT: Final = Path(__file__).resolve().parents[1]
SPEC: Final = ROOT / "examples" / "hydra_allreduce.yaml"
SIZES: Final = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,2MiB,4MiB,8MiB,16MiB"


def compare(spec: Path, sizes: str) -> dict[str, Any]:
    """Return what a comparison in a process of its own has found."""
    command = [sys.executable, "-m", "collplan", "compare", str(spec), "--sizes", sizes, "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path, nargs="?", default=SPEC)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    times, found = time_step(
        lambda: compare(arguments.spec, arguments.sizes), arguments.repetitions
    )
    seconds = times.wall
    pruned = [one["by"] for one in found["pruned"]]
    print(
        f"{arguments.spec.name}, {len(found['bounds'])} sizes on {os.cpu_count()} processors: "
        f"{statistics.median(seconds):.1f} s "
        f"(median of {len(seconds)}: {min(seconds):.1f} to {max(seconds):.1f})"
    )
    print(
        f"{len(found['candidates'])} candidates, {len(found['rows'])} simulations, "
        f"{pruned.count('bound')} pruned by bound, {pruned.count('price')} by closed form, "
        f"{pruned.count('tasks')} too large"
    )


if __name__ == "__main__":
    main()
