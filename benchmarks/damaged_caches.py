"""Damage each file of a filled cache in each way, and run commands that use it.

usage: python benchmarks/damaged_caches.py [--sample N] [--commands NAMES] [--mpi NAME] [--seed N]

Commands are `run`, `cost`, `exec` and `profile`, or those that --commands names. A file becomes
empty, is cut in half or after 100 bytes, gets other bytes, becomes a folder, a FIFO or a dangling
link, or belongs to another user. The command must succeed, print at most one line more on standard
error than with a good cache, and take at most 10 s more than with an empty one. With --sample, only
N random cases are run; all take about half an hour. Exit status 1 if a case fails.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from collplan.tables.table import save_table  # noqa: E402
from damaging import DAMAGES, damaged  # noqa: E402
from mpi_launching import mpi_environment, mpi_python  # noqa: E402
from native_building import built  # noqa: E402
from tables_everywhere import planning_table  # noqa: E402

SPEC: Final = """\
machine: {ranks_per_node: 2}
collective: {kind: allreduce, count: 1000, datatype: float64, op: sum}
algorithms: ring
"""
LATE_S: Final = 10.0
HANG_S: Final = 120.0

Lines = dict[str, list[str]]
Outcome = tuple[float, list[str]]


def command_lines(folder: Path, mpi: str) -> Lines:
    """Return the command lines by the name of the command, with files in a folder."""
    table, spec = folder / "table.json", folder / "spec.yaml"
    save_table(planning_table(4, transport="shared"), table)
    spec.write_text(SPEC)
    python, program = str(mpi_python(mpi)), str(built(mpi, "calling.c"))
    command = [python, "-m", "collplan"]
    return {
        "run": [*command, "run", str(spec), "-n", "2"],
        "cost": [*command, "cost", str(ROOT / "examples" / "hydra_allreduce.yaml")],
        "exec": [*command, "exec", "--table", str(table), "--force", "-n", "2", program, "10"],
        "profile": [*command, "profile", "-n", "2", program, "10"],
    }


def outcome_of(line: list[str], cache: Path) -> Outcome:
    """Run a command with a cache; return its time, and the lines of its standard error."""
    environment = {**mpi_environment(), "NUMBA_CACHE_DIR": str(cache)}
    begin_s = time.monotonic()
    done = subprocess.run(
        line, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=HANG_S,
    )  # fmt: skip
    said = done.stderr.splitlines()
    if done.returncode:
        said += [f"exit status {done.returncode}"] * 2
    return time.monotonic() - begin_s, said


def fault_of(good: Outcome, found: Outcome, compile_s: float) -> str:
    """Return what is wrong with the outcome of a command; empty if nothing is."""
    seconds, said = found
    if len(said) > len(good[1]) + 1:
        return " / ".join(said[-3:])
    if seconds > compile_s + LATE_S:
        return f"took {seconds:.1f} s, and {compile_s:.1f} s with an empty cache"
    return ""


def kept_files(cache: Path) -> list[Path]:
    """Return the files of a cache, relative to it."""
    return sorted(path.relative_to(cache) for path in cache.rglob("*") if path.is_file())


def main(arguments: list[str] | None = None, cache: Path | None = None) -> int:
    """Run the script; a given cache is filled further, and formerly compiled code remains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--commands", default="run,cost,exec,profile")
    parser.add_argument("--mpi", default="mpich")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    n_wrong, slowest_s = 0, 0.0
    with TemporaryDirectory(prefix="damaged-caches-") as name:
        folder = Path(name)
        full, used = cache or folder / "full", folder / "used"
        every = command_lines(folder, options.mpi)
        lines = {name: every[name] for name in options.commands.split(",")}
        compile_s = {key: outcome_of(line, full)[0] for key, line in lines.items()}
        good = {key: outcome_of(line, full) for key, line in lines.items()}
        cases = [*product(kept_files(full), DAMAGES, lines)]
        if options.sample:
            cases = random.Random(options.seed).sample(cases, options.sample)
        for path, damage, key in cases:
            shutil.rmtree(used, ignore_errors=True)
            shutil.copytree(full, used)
            damaged(used / path, damage)
            try:
                found = outcome_of(lines[key], used)
                fault = fault_of(good[key], found, max(compile_s.values()))
                slowest_s = max(slowest_s, found[0])
            except subprocess.TimeoutExpired:
                fault = "it hangs"
            n_wrong += bool(fault)
            if fault:
                print(f"{key}, {path.name} {damage}: {fault}", flush=True)
        print(
            f"{len(cases)} cases of {len(kept_files(full))} files: {n_wrong} wrong, the slowest "
            f"took {slowest_s:.1f} s, and {max(compile_s.values()):.1f} s with an empty cache"
        )
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
