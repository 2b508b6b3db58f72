"""Kill `collplan tune` at random moments, again and again: does it resume, and end with a table?

As in ``python benchmarks/tune_kills.py --kills 20``. Half of the times the command itself gets
SIGKILL, SIGTERM or SIGINT, else any of the processes it has started, mpiexec and ranks among
them, gets SIGKILL; all others then have to end by themselves. After each kill what was
measured before must still be there, unchanged. Exit status 1 where it is not, or the last
run, which is not killed, does not end with a complete, valid table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from collplan.tables.sweep import Point
from collplan.tables.table import TuningTable, load_table, parse_table

Points = dict[tuple[str, int], Point]

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SIZES = ("64B", "4KiB", "64KiB")
QUICK = ("--least", "6", "--most", "6", "--at-most", "3", "--no-progress")


def points_of(table: TuningTable) -> Points:
    return {(s.collective, p.bytes): p for s in table.sweeps for p in s.points}


def points_in(output: Path) -> Points:
    """Return what is measured so far; whatever file there is must be valid."""
    part = output.with_name(output.name + ".part")
    if part.exists():
        return points_of(parse_table(json.loads(part.read_text())["table"], source=str(part)))
    return points_of(load_table(output)) if output.exists() else {}


def started_by(pid: int) -> list[int]:
    """Return the processes a process has started, and those these have."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [found for child in map(int, children) for found in (child, *started_by(child))]


def run_for(command: list[str], seconds: float, generator: random.Random) -> str | None:
    """Run a command, and kill some of it after a time; return what, None if it ended before."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        others = started_by(process.pid) if generator.random() < 0.5 else []
        number = signal.SIGKILL if others else generator.choice(SIGNALS)
        os.kill(generator.choice(others or [process.pid]), number)
        process.wait()
        return f"{number.name} to {'one of its processes' if others else 'the command'}"
    if process.returncode != 0:
        raise SystemExit(f"failed: exit {process.returncode} of {' '.join(command)}")
    return None


def kill_again_and_again(
    command: list[str], output: Path, n_kills: int, generator: random.Random, horizon_s: float
) -> Points:
    """Kill and resume; return what was measured before the last, whole run."""
    known: Points = {}
    n_done = 0
    while n_done < n_kills:
        seconds = generator.uniform(0, horizon_s)
        how = run_for(command, seconds, generator)
        if how is not None:
            n_done += 1
            time.sleep(generator.uniform(0, 2))  # ranks that are ending may still finish a point
            found = points_in(output)
            lost = [key for key, point in known.items() if found.get(key) != point]
            print(f"killed by {how} after {seconds:.2f} s: {len(found)} points", flush=True)
            if lost:
                raise SystemExit(f"lost: {lost}")
            known = found
        if output.exists() and n_done < n_kills:
            # All is measured: begin anew, so that there is something to kill.
            print(f"complete after {n_done} kills; once more", flush=True)
            known = {}
            output.unlink()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return known


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--horizon", type=float, default=6.0, metavar="SECONDS")
    parser.add_argument("--collectives", default="bcast,gather,scatter,reduce,allgather,allreduce")
    parser.add_argument("--folder", type=Path, help="where to write the table; by default nowhere")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        output = folder / "killed.yaml"
        generator = random.Random(asked.seed)
        command = [sys.executable, "-m", "collplan", "tune", "-n", "2", "-o", str(output)]
        command += ["--collectives", asked.collectives, "--sizes", ",".join(SIZES), *QUICK]
        known = kill_again_and_again(command, output, asked.kills, generator, asked.horizon)
        table = load_table(output)
        found = points_of(table)
        others = sorted(p.name for p in output.parent.iterdir() if p.name != output.name)
    n_asked = len(asked.collectives.split(",")) * len(SIZES)
    is_whole = len(found) == n_asked and all(sweep.complete for sweep in table.sweeps)
    if not is_whole or any(found[key] != point for key, point in known.items()):
        print(f"incomplete: {len(found)} points of {n_asked}")
        return 1
    print(f"complete: {len(found)} points, {len(known)} of them from killed runs; beside: {others}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
