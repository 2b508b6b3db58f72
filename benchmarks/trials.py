"""Cost of trials of plans on a sub-communicator that no sweep speaks for, and what they gain.

usage: [collplan emulate ... -- | mpiexec -n N] python benchmarks/trials.py [options]

The world's last ranks never enter the sub-communicator. On it, every collective is called
through the drop-in until its trial is over. Then native calls and the drop-in's take turns, and
the slowest rank of each counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import collplan
from collplan.deciding.statistics import FASTER
from collplan.deciding.trials import TRIED
from collplan.measure.timing import time_in_turns
from collplan.specs import COLLECTIVES
from collplan.specs.loading import machine_at_hand
from collplan.tables.table import TuningTable, parse_table
from tables_everywhere import NOWHERE, sweep

FAR = 4096
"""Number of ranks that the table was tuned on: none of those here."""
MOST_CALLS = 20_000


def table_of(kinds: list[str]) -> TuningTable:
    """Return a table of other ranks, with the network of this machine."""
    sweeps = [sweep(kind, FAR, True if COLLECTIVES[kind].has_op else None) for kind in kinds]
    document = {"fingerprint": NOWHERE.model_dump(), "sweeps": sweeps}
    machine = machine_at_hand()
    table = parse_table(document)
    return table if machine is None else table.replace(network=machine.network)


def call_of(kind: str, n_bytes: int, comm: Any) -> Callable[[], Any]:
    n = max(1, n_bytes // 8)
    sent, received = np.ones(n), np.zeros(n)
    if kind in ("alltoall", "allgather"):
        received = np.zeros(n * comm.Get_size())
        sent = np.ones(n * comm.Get_size()) if kind == "alltoall" else sent
    given = (received,) if kind == "bcast" else (sent, received)
    method = getattr(comm, kind.capitalize())
    return lambda: method(*given)


def verdict_of(comm: Any) -> str | None:
    """Return what a trial has led to, once it is over; the same on all ranks."""
    for row in comm.stats().as_dict()["rows"]:
        if row["why"] == FASTER:
            return str(row["ran"])
        if row["why"].startswith(("tried here", "no plan to try")) and row["why"] != TRIED:
            return "native"
    return None


def run_until_over(comm: Any, call: Callable[[], Any]) -> tuple[str, list[float]]:
    """Call until a trial is over; return what it led to, and the time of each call in s."""
    times: list[float] = []
    verdict = None
    while verdict is None and len(times) < MOST_CALLS:
        begin = perf_counter()
        call()
        times.append(perf_counter() - begin)
        verdict = verdict_of(comm)
    longest = np.array(times)
    MPI.Intracomm(comm).Allreduce(MPI.IN_PLACE, longest, MPI.MAX)
    return verdict or "none", longest.tolist()


def in_words(times: Any) -> str:
    """Return the median of some times, and the least and the most, in ms."""
    least, median, most = np.min(times), np.median(times), np.max(times)
    return f"{median * 1e3:.3f} ({least * 1e3:.3f} to {most * 1e3:.3f}) ms"


def measure(part: Any, kind: str, n_bytes: int, rounds: int) -> None:
    """Print one line of a sub-communicator."""
    options: dict[str, Any] = {"table": table_of([kind]), "force": True}
    comm = collplan.Comm(part.Dup(), **options)
    verdict, times = run_until_over(comm, call_of(kind, n_bytes, comm))
    rows = comm.stats().as_dict()["rows"]
    n_tried = sum(row["calls"] for row in rows if row["why"] == TRIED)
    calls = [call_of(kind, n_bytes, one) for one in (part, comm)]
    native, chosen = time_in_turns(part, calls, rounds)
    if part.rank == 0:
        usual_s = float(np.median(times[: -n_tried - 1]))
        trial_s = sum(times[-n_tried - 1 :]) - (n_tried + 1) * usual_s
        print(
            f"{kind} {n_bytes} bytes: {verdict}\n"
            f"  {len(times)} calls took {sum(times):.2f} s until the trial was over, of which "
            f"{n_tried} were tried; it took {trial_s:.3f} s more than native calls, "
            f"{trial_s / sum(times):.1%}; the longest call took {max(times):.3f} s\n"
            f"  native {in_words(native)}, drop-in {in_words(chosen)}, "
            f"{np.median(native) / np.median(chosen):.2f} times as fast",
            flush=True,
        )
    comm.Free()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--left-out", type=int, default=5, help="ranks outside of it")
    parser.add_argument("--kinds", default="bcast,allreduce,allgather,alltoall")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("bytes", type=int, nargs="*", default=(1 << 10, 1 << 16, 1 << 19))
    asked = parser.parse_args()
    world = MPI.COMM_WORLD
    is_inside = world.rank < world.size - asked.left_out
    part = world.Split(0 if is_inside else MPI.UNDEFINED, world.rank)
    if is_inside:
        if part.rank == 0:
            library = MPI.Get_library_version().splitlines()[0]
            print(f"{library}, {part.size} of {world.size} ranks", flush=True)
        for kind in asked.kinds.split(","):
            for n_bytes in asked.bytes:
                measure(part, kind, n_bytes, asked.rounds)
        part.Free()
    # Ranks outside leave their cores to the others.
    request = world.Ibarrier()
    while not request.Test():
        sleep(0.01)


main()
