"""Sums of blocks over all ranks, each while the ranks compute the next block.

Every rank integrates functions by samples of its own, block by block, as a parameter scan or a
gradient does. The sum of a block goes to rank 0 by ``Ireduce`` (or to all by ``Iallreduce``, or
rank 0 sends the next parameters by ``Ibcast``), and the next block is computed between the call
and ``Wait``. The program knows nothing of collplan; run it natively, and on a tuning table:

    mpiexec -n 2 python examples/overlapped_sums.py
    collplan exec --table table.yaml -n 2 examples/overlapped_sums.py

It times communication alone, computation alone and both, in turns, and prints how much of the
shorter of the two was hidden behind the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

CHUNK = 4096
"""Samples that are evaluated together; they stay in a core's cache."""
WARM_UPS = 2
"""Rounds that are not counted: first calls open connections, and make plans."""


class Sums:
    """Blocks of this rank, and what is done with them.

    Parameters
    ----------
    comm : MPI.Intracomm
    kind : {"reduce", "allreduce", "bcast"}
        The collective of every block.
    n_bytes : int
        Size of a block.
    kernel : {"numpy", "python"}
        What computes: numpy, which lets other threads of Python run, or Python itself.
    """

    def __init__(self, comm: Any, kind: str, n_bytes: int, kernel: str) -> None:
        self._comm, self._kind = comm, kind
        self._mine = np.full(n_bytes // 8, 1.0 + comm.rank)
        self._sum = np.zeros_like(self._mine)
        self._samples = np.linspace(0.0, 1.0, CHUNK)
        self._step = {"numpy": self._step_in_numpy, "python": self._step_in_python}[kernel]
        self.n_steps = 0
        self.value = 0.0

    def start(self) -> MPI.Request:
        """Start the exchange of a block."""
        if self._kind == "bcast":
            return self._comm.Ibcast(self._mine, root=0)
        if self._kind == "allreduce":
            return self._comm.Iallreduce(self._mine, self._sum)
        return self._comm.Ireduce(self._mine, self._sum, root=0)

    def compute(self) -> None:
        """Compute the next block."""
        for _ in range(self.n_steps):
            self._step()

    def communicate(self) -> None:
        """Exchange a block, and do nothing meanwhile."""
        self.start().Wait()

    def both(self) -> None:
        """Exchange a block while the next is computed."""
        request = self.start()
        self.compute()
        request.Wait()

    def is_right(self) -> bool:
        """Return whether the last exchange had the right result on this rank."""
        size = self._comm.size
        if self._kind == "bcast":
            return bool((self._mine == 1.0).all())
        has_sum = self._kind == "allreduce" or self._comm.rank == 0
        return not has_sum or bool((self._sum == size * (size + 1) / 2).all())

    def calibrate(self, seconds: float) -> None:
        """Let a computation take so long on a core of its own; other threads do not count."""
        self.n_steps, took_s = 1, 0.0
        while took_s < min(seconds, 0.02):
            self.n_steps *= 2
            begin = time.thread_time()
            self.compute()
            took_s = time.thread_time() - begin
        self.n_steps = max(1, round(self.n_steps * seconds / took_s))

    def _step_in_numpy(self) -> None:
        self.value += float(np.exp(-self._samples * self._samples).sum())

    def _step_in_python(self) -> None:
        value = 0.0
        for i in range(CHUNK // 16):
            value += 1.0 / (1.0 + i * i)
        self.value += value


def time_in_turns(comm: Any, calls: list[Callable[[], None]], rounds: int) -> list[list[float]]:
    """Return the slowest rank's times of every call in every round."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(WARM_UPS + rounds):
        for call, own in zip(calls, times, strict=True):
            comm.Barrier()
            begin = time.perf_counter()
            call()
            took_s = comm.allreduce(time.perf_counter() - begin, MPI.MAX)
            if turn >= WARM_UPS:
                own.append(took_s)
    return times


def main() -> int:
    """Run, and print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--collective", default="reduce", choices=("reduce", "allreduce", "bcast"))
    parser.add_argument("--bytes", type=int, default=4 << 20, help="size of a block")
    parser.add_argument("--computation", type=float, default=0.1, help="s of a core, per block")
    parser.add_argument("--kernel", default="numpy", choices=("numpy", "python"))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    sums = Sums(comm, options.collective, options.bytes, options.kernel)
    sums.calibrate(options.computation)
    # The same work on all ranks.
    sums.n_steps = comm.allreduce(sums.n_steps, MPI.MAX)
    calls = [sums.communicate, sums.compute, sums.both]
    rounds = list(zip(*time_in_turns(comm, calls, options.rounds), strict=True))
    is_right = comm.allreduce(sums.is_right(), MPI.LAND)
    hidden = [(alone + work - both) / min(alone, work) for alone, work, both in rounds]
    if comm.rank == 0:
        names = ("communication_s", "computation_s", "both_s")
        facts = dict(zip(names, map(median, zip(*rounds, strict=True)), strict=True))
        if options.json:
            print(json.dumps({"correct": is_right, "ranks": comm.size, "overlap": hidden, **facts}))
        else:
            words = ", ".join(f"{name[:-2]} {1e3 * value:.1f} ms" for name, value in facts.items())
            print(f"I{options.collective} of {options.bytes} bytes, {comm.size} ranks: {words}")
            print(f"overlap {median(hidden):.0%}, from {min(hidden):.0%} to {max(hidden):.0%}")
            print("results are right" if is_right else "results are WRONG")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
