"""Collective calls that abort the job if a rank does not arrive within a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar, cast

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.errors import BindError, StallError, name_ranks, one_line
from collplan.executors.mpi.host.waiting import Wait
from collplan.executors.mpi.stall.watchdog import (
    BETWEEN_CHECKS_S,
    GRACE_S,
    VERDICT_S,
    Notices,
    end_job,
    say,
)

T = TypeVar("T")
N_SPEAKERS: Final = 8
"""Maximum number of ranks that report missing ranks."""


@contextmanager
def freed_on_error(free: Callable[[], None]) -> Iterator[None]:
    """Free common resources of ranks if all ranks raise an error; an aborted job frees nothing."""
    try:
        yield
    except StallError:
        raise
    except Exception:
        free()
        raise


class RollCall:
    """A common step of ranks, with reports of ranks that did not arrive.

    If no rank has a time limit, the methods make blocking calls of MPI.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks, which are named by their numbers in it.
    timeout_s : float or None
        Time limit of each call; infinity if only other ranks have one, None if no rank has one.
    doing : str
        Name of the step in messages, such as "bind the plan".
    listens : bool
        Whether to respond to ranks whose time is over, and abort the job together with them. This
        requires that the largest tag of `comm` is free.
    """

    def __init__(
        self, comm: MPI.Intracomm, timeout_s: float | None, doing: str, *, listens: bool = True
    ) -> None:
        self._comm, self.timeout_s, self._doing = comm, timeout_s, doing
        self._notices = Notices(comm)
        self._listens = listens and timeout_s is not None

    def wait(self, request: MPI.Request) -> None:
        """Wait until a nonblocking collective completes.

        Raises
        ------
        StallError
            If the process continues after the job was aborted.
        """
        wait = Wait()
        checked_s = wait.begin()
        limit_s = math.inf if self.timeout_s is None else self.timeout_s
        while not request.Test():
            now = wait.pause()
            is_over = wait.waited_s >= limit_s
            if self._listens and now - checked_s >= BETWEEN_CHECKS_S:
                checked_s = now
                is_over |= self._notices.collect()
            if is_over:
                self._report_absent(wait.waited_s)

    def before_blocking(self) -> None:
        """Wait for all ranks, if there is a time limit, before a call of MPI without a limit."""
        if self.timeout_s is not None:
            self.wait(self._comm.Ibarrier())

    def gather(self, value: Any, among: MPI.Comm | None = None) -> list[Any]:
        """Return the values of all ranks, on all ranks.

        Parameters
        ----------
        value : object
            Value of this rank, which is pickled.
        among : MPI.Comm, optional
            Communicator of the ranks that take part, if not all ranks do.
        """
        comm = self._comm if among is None else among
        if self.timeout_s is None:
            return comm.allgather(value)
        mine = MPI.pickle.dumps(value)
        n_bytes = np.empty(comm.size, dtype=np.int64)
        self.wait(comm.Iallgather(np.array([len(mine)], dtype=np.int64), n_bytes))
        ends = np.cumsum(n_bytes)
        everything = bytearray(int(ends[-1]))
        message = [everything, (n_bytes, ends - n_bytes), MPI.BYTE]
        self.wait(comm.Iallgatherv([mine, len(mine), MPI.BYTE], message))
        pieces = zip((ends - n_bytes).tolist(), ends.tolist(), strict=True)
        return [MPI.pickle.loads(everything[low:high]) for low, high in pieces]

    def together(self, make: Callable[[], T]) -> T:
        """Return the result of `make`. If it raises on one rank, all ranks raise.

        `make` may be collective, if it fails on a rank only after its last collective call.

        Raises
        ------
        Exception
            Error of this rank, or a `BindError` that names the first rank that failed.
        """
        made, error = None, None
        try:
            made = make()
        except StallError:
            raise
        except Exception as caught:
            error = caught
        mine = np.array([self._comm.size if error is None else self._comm.rank])
        lowest = np.empty_like(mine)
        if self.timeout_s is None:
            self._comm.Allreduce(mine, lowest, MPI.MIN)
        else:
            self.wait(self._comm.Iallreduce(mine, lowest, MPI.MIN))
        if lowest[0] < self._comm.size:
            self.raise_first(int(lowest[0]), error)
        return cast("T", made)

    def raise_first(self, culprit: int, error: Exception | None) -> NoReturn:
        """Raise this rank's error, or that of the first rank that failed; collective."""
        texts: list[str] = self.gather("" if error is None else one_line(error))
        raise error or BindError(f"rank {culprit} cannot {self._doing}: {texts[culprit]}")

    def _report_absent(self, waited_s: float) -> None:
        """Find out which ranks have arrived, report the missing ranks, and abort the job."""
        rank, size = self._comm.rank, self._comm.size
        # The job is aborted anyway, so messages of the program are not affected.
        notices = self._notices
        # Only few ranks report, as otherwise a thousand ranks would send a million messages.
        speakers = range(min(size, N_SPEAKERS))
        everybody = self._listens and rank in speakers
        notices.send(set(range(size) if everybody else speakers) - {rank})
        notices.collect_for(GRACE_S, enough=size - 1 if rank in speakers else 1)
        if rank not in speakers:
            # Reporting ranks that have arrived abort the job first.
            time.sleep(GRACE_S)
            absent = set(speakers)
        else:
            absent = set(range(size)) - notices.heard - {rank}
        reason = f"waited {waited_s:.3g} s to {self._doing}"
        if rank in speakers and rank > min(notices.heard | {rank}):
            # The lowest rank aborts the job before this time is over, unless it is slow or stopped.
            time.sleep(VERDICT_S)
        say(rank, [f"{reason}; {self._name(absent)}"])
        raise end_job(self._comm, reason)

    def _name(self, absent: Iterable[int]) -> str:
        """Return a text that names missing ranks, with their ranks in the world if these differ."""
        ordered = sorted(absent)
        if not ordered:
            return "all others wait, too, some of them for something else"
        there = list(MPI.Group.Translate_ranks(self._comm.group, ordered, MPI.COMM_WORLD.group))
        in_world = "" if there == ordered else f" ({name_ranks(there)} of the world)"
        return f"{name_ranks(ordered)}{in_world} did not reach this call"
