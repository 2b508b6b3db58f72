"""Time what a person waits for: ``collplan --help``, and ``collplan cost`` on 8 ranks.

Usage: python benchmarks/startup.py [REPETITIONS]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

from stopwatch import time_step

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "collplan --help": ["--help"],
    "collplan cost (8 ranks)": ["cost", str(ROOT / "examples" / "allreduce.yaml"), "--json"],
}


def time_command(arguments: list[str], repetitions: int) -> list[float]:
    """Return the seconds of each repetition, after one that fills the caches."""
    command = [sys.executable, "-m", "collplan", *arguments]
    times, _ = time_step(
        lambda: subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL),
        repetitions + 1,
    )
    return times.wall[1:]


def main() -> None:
    """Print the median and the least time of every command."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    for name, arguments in COMMANDS.items():
        seconds = time_command(arguments, repetitions)
        print(f"{name:26} median {median(seconds):.3f} s   min {min(seconds):.3f} s")


if __name__ == "__main__":
    main()
