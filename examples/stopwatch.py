"""Stopwatch for a program's total time and its time in communication."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI


class Stopwatch:
    """Times a program's exchanges; all ranks of `comm` make the same ones.

    A barrier before every exchange keeps waiting for ranks that still compute
    out of its time, and of every exchange the slowest rank counts.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self.restart()

    def restart(self) -> None:
        """Forget what was timed so far, such as first calls that open connections."""
        self._exchanges_s: list[float] = []
        self._comm.Barrier()
        self._started_s = time.perf_counter()

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Time the collectives called inside, together."""
        self._comm.Barrier()
        begin_s = time.perf_counter()
        yield
        self._exchanges_s.append(time.perf_counter() - begin_s)

    def stop(self) -> dict[str, float]:
        """Return seconds in all and seconds of communication, the same on every rank."""
        total_s = self._comm.allreduce(time.perf_counter() - self._started_s, MPI.MAX)
        mine = np.array(self._exchanges_s)
        slowest = np.empty_like(mine)
        self._comm.Allreduce(mine, slowest, MPI.MAX)
        return {"total_s": total_s, "communication_s": float(slowest.sum())}


def report(comm: MPI.Intracomm, is_right: bool, facts: dict[str, Any], as_json: bool) -> int:
    """Let rank 0 print what came out; return every rank's exit status.

    Only rank 0 has to know whether the result `is_right`.
    """
    if comm.rank == 0:
        if as_json:
            print(json.dumps({"correct": is_right, "ranks": comm.size, **facts}))
        else:
            verdict = "right" if is_right else "WRONG"
            total_s, exchanged_s = facts.pop("total_s"), facts.pop("communication_s")
            words = ", ".join(f"{name} {value}" for name, value in facts.items())
            print(f"{words}, {comm.size} ranks: {verdict}, checked against numpy")
            share = exchanged_s / total_s
            print(f"{total_s:.4f} s in all, {exchanged_s:.4f} s ({share:.0%}) of communication")
    return 0 if comm.bcast(is_right) else 1
