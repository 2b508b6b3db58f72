"""Kill and abort programs in C under ``collplan exec``: what do they leave behind?

usage: python benchmarks/native_kills.py [--kills N] [--aborts N] [--mpi NAME,...]

Each run has 3 ranks of a program that calls collectives by plans through shared memory. In turn, a
rank, the mpiexec and the helper process are killed by SIGKILL, where the job goes on after the last
one and is then ended by SIGTERM. Then runs end by MPI_Abort. The same ends are brought about in
native runs. What counts are processes of the job, files in /dev/shm, and sockets in the job's
TMPDIR, at most 20 s later. Exit status 1 if runs under ``exec`` leave more than native ones.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from collplan.tables.table import save_table  # noqa: E402
from ending_jobs import (  # noqa: E402
    helper_of,
    kill_marked,
    launcher_of,
    marked_processes,
    wait_until,
)
from mpi_launching import mpi_environment, mpi_python, mpiexec_of  # noqa: E402
from native_building import built  # noqa: E402
from tables_everywhere import planning_table  # noqa: E402

TARGETS: Final = ("rank", "mpiexec", "helper")
PATIENCE_S: Final = 60.0
LEFT_S: Final = 20.0


def shared_memory() -> set[str]:
    """Return the files of /dev/shm that no process uses."""
    used = ""
    for entry in Path("/proc").iterdir():
        try:
            used += (entry / "maps").read_text() if entry.name.isdecimal() else ""
        except OSError:  # it has ended
            continue
    return {str(path) for path in Path("/dev/shm").iterdir() if str(path) not in used}


def chosen(mark: str, program: Path, target: str) -> int | None:
    """Return a process to kill, None if it is not there yet."""
    running = marked_processes(mark)
    ranks = [pid for pid, words in running.items() if words[0] == str(program)]
    if len(ranks) < 3:
        return None
    if target == "rank":
        return ranks[-1]
    return helper_of(running) if target == "helper" else launcher_of(running)


def run(line: list[str], program: Path, target: str, mark: str) -> Counter[str]:
    """Run a job to its end, and count what it leaves by kind."""
    before, folder = shared_memory(), Path(mark)
    folder.mkdir()
    environment = {**mpi_environment(), "TMPDIR": mark}
    quiet = subprocess.DEVNULL
    job = subprocess.Popen(
        line, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        if target != "abort":
            found: list[int | None] = []

            def is_there() -> bool:
                found.append(chosen(mark, program, target))
                return found[-1] is not None

            if not wait_until(is_there, PATIENCE_S):
                raise SystemExit(f"{' '.join(line)}: there was no {target} within {PATIENCE_S} s")
            time.sleep(1.5)  # plans are made, and run
            assert found[-1] is not None
            os.kill(found[-1], signal.SIGKILL)
            if target == "helper":
                time.sleep(0.5)
                job.terminate()
        else:
            wait_until(lambda: job.poll() is not None, PATIENCE_S)
        wait_until(lambda: not marked_processes(mark), LEFT_S)
        left = {
            "process": len(marked_processes(mark)),
            "shared memory": len(shared_memory() - before),
        }
        return Counter({**left, "socket": sum(path.is_socket() for path in folder.rglob("*"))})
    finally:
        kill_marked(mark)
        job.wait()


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--aborts", type=int, default=10)
    parser.add_argument("--mpi", default="mpich,openmpi")
    options = parser.parse_args()
    is_worse = False
    print("| MPI | ended by | runs | native leaves | exec leaves |\n|---|---|---|---|---|")
    with TemporaryDirectory(prefix="native-kills-") as name:
        table = Path(name) / "table.json"
        save_table(planning_table(4, transport="shared"), table)
        for mpi in options.mpi.split(","):
            program = built(mpi, "calling.c")
            ends = [TARGETS[i % 3] for i in range(options.kills)] + ["abort"] * options.aborts
            left: dict[tuple[str, bool], Counter[str]] = {}
            for number, target in enumerate(ends):
                word = "abort" if target == "abort" else "spin"
                python = mpi_python(mpi)
                collplan = [str(python), "-m", "collplan", "exec", "--table", str(table), "--force"]
                native = [str(mpiexec_of(python)), "-n", "3", str(program), word]
                lines = [(True, [*collplan, "-n", "3", str(program), word])]
                if target != "helper":
                    lines.append((False, native))
                for is_planned, line in lines:
                    mark = f"{name}/{mpi}-{number}-{is_planned}"
                    found = run(line, program, target, mark)
                    left.setdefault((target, is_planned), Counter()).update(found)
            for target in (*TARGETS, "abort"):
                n = ends.count(target)
                if not n:
                    continue
                planned, own = left[target, True], left.get((target, False))
                is_worse |= bool(planned - (own or Counter()))
                words = ["nothing" if not c else ", ".join(f"{k} {v}" for k, v in c.items())
                         for c in (+(own or Counter()), +planned)]  # fmt: skip
                print(f"| {mpi} | {target} | {n} | {words[0] if own is not None else '-'} | "
                      f"{words[1]} |", flush=True)  # fmt: skip
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
