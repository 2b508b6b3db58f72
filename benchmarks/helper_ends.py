"""Stop and kill the helper process of programs under ``collplan exec`` at random times.

usage: python benchmarks/helper_ends.py [--times N] [--mpi NAME,...] [--ranks N,...] [--nodes N]
                                       [--seed N]

A program in C makes plans all the time, and checks its results. In N runs for each signal
(SIGKILL, SIGSTOP, SIGTERM and SIGSEGV) and each phase, its helper process gets the signal: during
the start, which is before the program's first call, and at a random time while it plans and runs.
With --nodes 2, the ranks are on emulated nodes, one of whose helpers gets the signal. Each run
must end with right results, at most 10 s later than natively, and leave no process. Exit status 1
if one does not.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from collplan.tables.table import save_table  # noqa: E402
from ending_jobs import HELPER, kill_marked, marked_processes, wait_until  # noqa: E402
from mpi_launching import mpi_environment, mpi_python, mpiexec_of  # noqa: E402
from native_building import built  # noqa: E402
from tables_everywhere import planning_table  # noqa: E402

SIGNALS: Final = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV)
PHASES: Final = ("start", "running")
N_SIZES: Final = "40"
LATE_S: Final = 10.0
HANG_S: Final = 120.0
LEFT_S: Final = 5.0


def helpers_of(mark: str) -> list[int]:
    """Return the helper processes of a job."""
    return [pid for pid, words in marked_processes(mark).items() if HELPER in words]


def run(line: list[str], mark: str, number: int | None, delay_s: float) -> tuple[float, str]:
    """Run a job whose helper gets a signal.

    Parameters
    ----------
    line : list of str
        Command line of the job.
    mark : str
        Text that the environment of the job's processes contains.
    number : int or None
        Signal for the helper.
    delay_s : float
        Time between the start of the helper and the signal.

    Returns
    -------
    seconds : float
        Time of the job.
    wrong : str
        What is wrong; empty if all is right.
    """
    environment, pipe = {**mpi_environment(), "COLLPLAN_TEST_MARK": mark}, subprocess.PIPE
    begin_s = time.monotonic()
    job = subprocess.Popen(
        line, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        if number is not None and wait_until(lambda: bool(helpers_of(mark)), HANG_S):
            time.sleep(delay_s)
            for pid in helpers_of(mark)[-1:]:
                os.kill(pid, number)
        out, _ = job.communicate(timeout=HANG_S)
        seconds = time.monotonic() - begin_s
        if job.returncode or "passed" not in out:
            return seconds, f"exit status {job.returncode}: {out[-500:]}"
        if not wait_until(lambda: not marked_processes(mark), LEFT_S):
            return seconds, f"left {list(marked_processes(mark).values())}"
        return seconds, ""
    except subprocess.TimeoutExpired:
        return time.monotonic() - begin_s, "it hangs"
    finally:
        kill_marked(mark)
        job.wait()


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--mpi", default="mpich,openmpi")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    choice, n_wrong, jobs = random.Random(options.seed), 0, 0
    print(
        "| MPI | ranks | phase | signal | runs | wrong | latest after native |\n" + "|---" * 7 + "|"
    )
    with TemporaryDirectory(prefix="helper-ends-") as folder:
        table = Path(folder) / "table.json"
        save_table(planning_table(4, transport="shared"), table)
        for mpi in options.mpi.split(","):
            python, program = mpi_python(mpi), str(built(mpi, "lasting.c"))
            collplan = [str(python), "-m", "collplan"]
            for n_ranks in map(int, options.ranks.split(",")):
                under_exec = [*collplan, "exec", "--table", str(table), "--force"]
                native, line = [str(mpiexec_of(python))], under_exec
                if options.nodes > 1:
                    per_node = str(n_ranks // options.nodes)
                    native = [*collplan, "emulate", "--nodes", str(options.nodes), "--per-node"]
                    native += [per_node, "--rate", "1Gbit", "--"]
                    line = [*native, *under_exec]
                else:
                    native, line = [*native, "-n", str(n_ranks)], [*line, "-n", str(n_ranks)]
                native, line = [*native, program, N_SIZES], [*line, program, N_SIZES]
                native_s, wrong = run(native, f"{folder}/{mpi}-{n_ranks}", None, 0.0)
                if wrong:
                    raise SystemExit(f"natively: {wrong}")
                for phase in PHASES:
                    for number in SIGNALS:
                        found, latest_s = [], 0.0
                        for _ in range(options.times):
                            jobs += 1
                            low, high = (0.0, 0.8) if phase == "start" else (0.8, 3.0)
                            delay_s = choice.uniform(low, high)
                            seconds, wrong = run(line, f"{folder}/job-{jobs}", number, delay_s)
                            latest_s = max(latest_s, seconds - native_s)
                            if seconds > native_s + LATE_S:
                                wrong = wrong or f"{seconds - native_s:.1f} s later than natively"
                            found += [f"{number.name} after {delay_s:.2f} s: {wrong}"] * bool(wrong)
                        n_wrong += len(found)
                        print(
                            f"| {mpi} | {n_ranks} | {phase} | {number.name} | {options.times} | "
                            f"{len(found)} | {latest_s:.1f} s |", *found, sep="\n" * bool(found),
                            flush=True,
                        )  # fmt: skip
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
