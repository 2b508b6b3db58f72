"""Time commands of an installed wheel with empty caches, with the wheel's machine code and without.

The wheel is installed with MPICH into a new environment. Each run has a cache folder of its own,
so that it finds no kernels and no choices of earlier runs. Runs with and without machine code in
the wheel take turns. A third column has runs with filled caches.

Usage: python benchmarks/cold.py --wheel FILE [--repetitions N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

ROOT = Path(__file__).parents[1]
SPEC: Final = str(ROOT / "examples" / "allreduce.yaml")
COMMANDS: Final = {
    "--help": ["--help"],
    "verify": ["verify", SPEC],
    "cost": ["cost", SPEC],
    "compare": ["compare", SPEC, "--sizes", "1KiB,64KiB,1MiB"],
    "run -n 2": ["run", SPEC, "-n", "2"],
}
WAYS: Final = ("ready", "compiled", "warm")
"""With the wheel's machine code, without it, and with filled caches."""


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel with MPICH into a new environment; return its command."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{wheel}[mpich]"], check=True)
    return folder / "bin" / "collplan"


def built_in(command: Path) -> Path:
    """Return the folder of the machine code that the wheel has brought."""
    (found,) = command.parents[1].glob(
        "lib/python*/site-packages/collplan/planner/machine_code/built"
    )
    return found


def time_once(command: Path, words: list[str], cache: Path) -> float:
    """Return the seconds of a command with a cache folder."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    begin = time.perf_counter()
    done = subprocess.run([str(command), *words], capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"collplan {' '.join(words)}: {done.stdout}{done.stderr}")
    return time.perf_counter() - begin


def measure(command: Path, repetitions: int, caches: Path) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of all commands by way, interleaved."""
    found = {name: {way: list[float]() for way in WAYS} for name in COMMANDS}
    built, warm = built_in(command), caches / "warm"
    hidden = built.with_name("hidden")
    for name, words in COMMANDS.items():
        time_once(command, words, warm)
        for turn in range(repetitions):
            for way in WAYS:
                cache = warm if way == "warm" else caches / f"{name} {way} {turn}"
                cache.mkdir(exist_ok=True)
                if way == "compiled":
                    built.rename(hidden)
                try:
                    found[name][way].append(time_once(command, words, cache))
                finally:
                    if way == "compiled":
                        hidden.rename(built)
    return found


def main() -> None:
    """Print a table of medians, minima and maxima."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="collplan-cold-") as text:
        folder = Path(text)
        command = install(arguments.wheel.resolve(), folder / "venv")
        (folder / "warm").mkdir()
        found = measure(command, arguments.repetitions, folder)
        n_bytes = arguments.wheel.stat().st_size
    if arguments.json:
        print(json.dumps({"wheel_bytes": n_bytes, "seconds": found}))
        return
    print(f"{arguments.wheel.name}: {n_bytes / 1e6:.1f} MB; seconds, median (minimum to maximum)")
    print(f"{'command':10}" + "".join(f"{way:>24}" for way in WAYS))
    for name, by_way in found.items():
        cells = (f"{median(one):.2f} ({min(one):.2f} to {max(one):.2f})" for one in by_way.values())
        print(f"{name:10}" + "".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    main()
