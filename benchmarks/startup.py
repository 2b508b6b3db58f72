"""Time what a person waits for: ``collplan --help``, and ``collplan cost`` on 8 ranks.

It also takes apart the processor time of a rank that loads a plan file, binds it and runs it,
with machine code that earlier ranks have kept, and states what a rank of a native program takes
under ``collplan exec`` before the program begins.

Usage: python benchmarks/startup.py [REPETITIONS]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from stopwatch import time_step

import collplan
from collplan.executors.mpi.launch.launcher import find_launcher
from collplan.preload.rank_script import rank_command
from collplan.watch.options import HANG_AFTER_S, WatchOptions

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "collplan --help": ["--help"],
    "collplan cost (8 ranks)": ["cost", str(ROOT / "examples" / "allreduce.yaml"), "--json"],
}
STEPS = (
    "Python",
    "import collplan",
    "import numpy, mpi4py",
    "load plan",
    "import bind",
    "bind",
    "run",
)
RANK = """
import json, sys, time
spent = [0.0, time.process_time()]
def note():
    spent.append(time.process_time())
import collplan
note()
import numpy as np
from mpi4py import MPI
ones, total = np.ones(1024, np.int32), np.zeros(1024, np.int32)
note()
plan = collplan.load_plan(sys.argv[1])
note()
from collplan.executors.mpi.binding.bound_plan import bind
note()
bound = bind(plan, MPI.COMM_WORLD, ones, total)
note()
bound()
note()
bound.free()
if MPI.COMM_WORLD.rank == 0:
    print(json.dumps(np.diff(spent).tolist()))
"""


def time_rank(path: Path, repetitions: int) -> list[list[float]]:
    """Return a rank's seconds of processor time in each step, after runs that fill the caches."""
    command = [str(find_launcher().mpiexec), "-n", "2", sys.executable, "-c", RANK, str(path)]
    found = []
    for _ in range(repetitions + 1):
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    return found[1:]


def time_command(arguments: list[str], repetitions: int) -> list[float]:
    """Return the seconds of each repetition, after one that fills the caches."""
    command = [sys.executable, "-m", "collplan", *arguments]
    times, _ = time_step(
        lambda: subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL),
        repetitions + 1,
    )
    return times.wall[1:]


def time_program(repetitions: int) -> dict[str, list[float]]:
    """Return the processor time, in s, that a rank takes until a native program begins."""
    program, table = Path("/bin/true"), Path("table.yaml")  # which only MPI_Init would read
    ways = {
        "exec under mpiexec": [sys.executable, "-m", "collplan", "exec", "--table", str(table)],
        "exec -n": rank_command(program, [], table, force=False, watch=WatchOptions(HANG_AFTER_S)),
    }
    ways["exec under mpiexec"].append(str(program))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repetitions + 1):
        for name, command in ways.items():
            before = os.times()
            subprocess.run(command, cwd=ROOT, check=True)
            after = os.times()
            used = after.children_user - before.children_user
            found[name].append(used + after.children_system - before.children_system)
    return {name: seconds[1:] for name, seconds in found.items()}


def main() -> None:
    """Print the median and the least time of every command."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    for name, arguments in COMMANDS.items():
        seconds = time_command(arguments, repetitions)
        print(f"{name:26} median {median(seconds):.3f} s   min {min(seconds):.3f} s")
    collective = {"kind": "allreduce", "count": 1024, "datatype": "int32"}
    spec = collplan.parse_spec(
        {"machine": {"ranks_per_node": 2}, "collective": collective, "algorithms": "ring"}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "allreduce.plan"
        collplan.save_plan(collplan.compile(spec), path)
        for step, spent in zip(STEPS, zip(*time_rank(path, repetitions), strict=True), strict=True):
            name = f"CPU per rank: {step}"
            print(f"{name:36} median {median(spent):.3f} s   min {min(spent):.3f} s")
    for name, spent in time_program(repetitions).items():
        name = f"CPU per rank: {name}"
        print(f"{name:36} median {median(spent):.3f} s   min {min(spent):.3f} s")


if __name__ == "__main__":
    main()
