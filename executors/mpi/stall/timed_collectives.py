"""Collective calls that end the job where a rank does not come within a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar, cast

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.errors import BindError, StallError, one_line
from collplan.executors.mpi.host.cores import name_ranks
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
    """Free what ranks make together where all of them raise; a job that ends frees nothing."""
    try:
        yield
    except StallError:
        raise
    except Exception:
        free()
        raise


class RollCall:
    """A step that ranks take together, and reports of those that did not come to it.

    Without a limit anywhere these are MPI's own blocking calls.

    Parameters
    ----------
    comm : MPI.Intracomm
        Whose ranks are called, by the numbers they have there.
    timeout_s : float or None
        How long any of it may take; infinity where another rank has a limit,
        None where no rank has.
    doing : str
        What ranks come to do, for messages, such as "bind the plan".
    listens : bool
        Whether to answer others whose time is over, and so end the job with
        them. The largest tag of `comm` must be free then.
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
            After the job was told to end, if it lets this process go on.
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
        """See that all ranks are here, if there is a limit: MPI has no other for what follows."""
        if self.timeout_s is not None:
            self.wait(self._comm.Ibarrier())

    def gather(self, value: Any, among: MPI.Comm | None = None) -> list[Any]:
        """Return what every rank brings, on all of them.

        Parameters
        ----------
        value : object
            What this rank brings, to be pickled.
        among : MPI.Comm, optional
            The ranks that bring something, if not all of them do together.
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
        """Return what `make` returns; where it raises on one rank, all ranks raise.

        `make` may be collective, if it fails on a rank only after its last collective call.

        Raises
        ------
        Exception
            This rank's own, or a `BindError` that names the first rank that failed.
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
        """Raise a rank's own error, or the first one's; collective."""
        texts: list[str] = self.gather("" if error is None else one_line(error))
        raise error or BindError(f"rank {culprit} cannot {self._doing}: {texts[culprit]}")

    def _report_absent(self, waited_s: float) -> None:
        """Find out who else waits, say who does not, and end the job."""
        rank, size = self._comm.rank, self._comm.size
        # The job ends anyway, so a message that the program did not send does no harm.
        notices = self._notices
        # Few listen, or a thousand ranks would send a million messages.
        speakers = range(min(size, N_SPEAKERS))
        everybody = self._listens and rank in speakers
        notices.send(set(range(size) if everybody else speakers) - {rank})
        notices.collect_for(GRACE_S, enough=size - 1 if rank in speakers else 1)
        if rank not in speakers:
            # Speakers that are here end the job first.
            time.sleep(GRACE_S)
            absent = set(speakers)
        else:
            absent = set(range(size)) - notices.heard - {rank}
        reason = f"waited {waited_s:.3g} s to {self._doing}"
        if rank in speakers and rank > min(notices.heard | {rank}):
            # The lowest ends the job before this is over, unless it is slow or stopped.
            time.sleep(VERDICT_S)
        say(rank, [f"{reason}; {self._name(absent)}"])
        raise end_job(self._comm, reason)

    def _name(self, absent: Iterable[int]) -> str:
        """Say which ranks did not come, and which of the world they are, if that differs."""
        ordered = sorted(absent)
        if not ordered:
            return "all others wait, too, some of them for something else"
        there = list(MPI.Group.Translate_ranks(self._comm.group, ordered, MPI.COMM_WORLD.group))
        in_world = "" if there == ordered else f" ({name_ranks(there)} of the world)"
        return f"{name_ranks(ordered)}{in_world} did not come"
