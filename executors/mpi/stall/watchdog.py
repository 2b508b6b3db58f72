"""End a job whose plan stands still, after every rank has said what it waits for."""

from __future__ import annotations

import os
import sys
import time
import weakref
from typing import TYPE_CHECKING, Final, Protocol

from mpi4py import MPI

from collplan.executors.mpi.errors import StallError
from collplan.executors.mpi.host.aborting import abort
from collplan.executors.mpi.host.peers import name_ranks
from collplan.executors.mpi.stall.notices import Notices, spread
from collplan.executors.mpi.stall.stall_report import Waits

if TYPE_CHECKING:
    from collplan.executors.mpi.host.peers import Peers
    from collplan.executors.mpi.program.program import Program
    from collplan.executors.mpi.stall.stall_report import Standstill
    from collplan.planner.plan.plan import Plan

LONGEST_STEP_S: Final = 1.0
"""What the time between two looks counts at most: a process may be stopped, or compute."""
BETWEEN_CHECKS_S: Final = 0.05
"""How often a rank that waits listens to others'."""
BETWEEN_COUNTS_S: Final = 1.0
"""How often it sees whether those it waits for are alive."""
GRACE_S: Final = 1.0
"""How long a rank lets others speak before it ends the job."""
VERDICT_S: Final = 0.5
"""How much longer it lets the one speak who knows all that others said."""


class Watched(Protocol):
    """An engine as the watchdog sees it."""

    @property
    def is_running(self) -> bool:
        """Return whether a start has not completed yet."""

    @property
    def progress(self) -> int:
        """Return a number that grows whenever a task ends."""

    def standstill(self) -> Standstill:
        """Return what is under way."""


class Watch:
    """Sees whether a program gets on.

    Parameters
    ----------
    comm : MPI.Intracomm
        Of the plan's messages alone; the largest tag is the watch's.
    plan : Plan
        The whole plan or this rank's program.
    program : Program
        What the rank runs.
    timeout_s : float
        How long nothing may end.
    peers : Peers
        The processes of `comm`.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        plan: Plan,
        program: Program,
        timeout_s: float,
        peers: Peers,
    ) -> None:
        self._comm, self._timeout_s = comm, timeout_s
        self._waits = Waits(plan, program)
        self._peers = peers
        self._notices = Notices(comm)
        self._engine: weakref.ref[Watched] | None = None
        self._progress = -1
        self._waited_s = 0.0
        self._seen_s = self._checked_s = self._counted_s = 0.0
        _living.add(self)

    def over(self, engine: Watched) -> None:
        """Watch over an engine from now on, which tells it when it waits."""
        # The engine holds its watch and the buffers: a circle would keep them after it is freed.
        self._engine = weakref.ref(engine)

    def look(self, engine: Watched) -> None:
        """Note that a rank waits; end the job if it has waited for too long.

        Raises
        ------
        StallError
            After the job was told to end, if it lets this process go on.
        """
        now = time.monotonic()
        if engine.progress != self._progress:
            self._progress = engine.progress
            self._waited_s, self._seen_s = 0.0, now
            self._checked_s = self._counted_s = now
            return
        self._waited_s += min(now - self._seen_s, LONGEST_STEP_S)
        self._seen_s = now
        if now - self._checked_s < BETWEEN_CHECKS_S:
            return
        self._checked_s = now
        if self._waited_s >= self._timeout_s or self._is_alarmed(engine, now):
            at = engine.standstill()
            if not at.is_computing:
                self._end_job(at)
            self._waited_s = 0.0

    def last_words(self) -> list[str]:
        """Return what the program waits for, if it is running."""
        engine = None if self._engine is None else self._engine()
        if engine is None or not engine.is_running:
            return []
        return self._waits.lines(engine.standstill())

    def ended(self) -> list[int]:
        """Return the ranks whose processes are known to be over."""
        return self._peers.all_ended()

    @property
    def rank(self) -> int:
        """Return this rank."""
        return self._comm.rank

    def _is_alarmed(self, engine: Watched, now: float) -> bool:
        """Return whether another rank waits too long, or one that this one waits for has ended."""
        if self._notices.collect():
            return True
        if now - self._counted_s < BETWEEN_COUNTS_S:
            return False
        self._counted_s = now
        awaited = self._waits.awaited(engine.standstill())
        return bool(self._peers.ended(awaited))

    def _end_job(self, at: Standstill) -> None:
        rank, size = self._comm.rank, self._comm.size
        stood = f"has stood still for {self._waited_s:.3g} s"
        first, *more = self._waits.lines(at)
        say(rank, [f"the plan {stood}; {first}", *more])
        ended = self._peers.all_ended()
        self._notices.send((self._waits.peers | spread(rank, size)) - {rank, *ended})
        self._notices.collect_for(GRACE_S, enough=size - 1 - len(ended))
        waiting = self._notices.heard | {rank}
        if rank == min(waiting):
            say(rank, [self._verdict(waiting, ended)])
        else:
            time.sleep(VERDICT_S)
        raise end_job(self._comm, f"the plan {stood}")

    def _verdict(self, waiting: set[int], ended: list[int]) -> str:
        found = [f"{name_ranks(waiting)} in the plan"]
        silent = set(range(self._comm.size)) - waiting - set(ended)
        if ended:
            pids = ", ".join(str(self._peers.pid(rank)) for rank in ended[:6])
            found.append(f"{name_ranks(ended)} ended (process {pids})")
        if silent:
            found.append(
                f"{name_ranks(silent)} elsewhere: not started, computing, stopped or unreachable"
            )
        return f"{'; '.join(found)}; the job is aborted"


_living: weakref.WeakSet[Watch] = weakref.WeakSet()
_has_spoken = False


def living() -> list[Watch]:
    """Return the watches of this process."""
    return list(_living)


def has_spoken() -> bool:
    """Return whether this process has said why it ends."""
    return _has_spoken


def say(rank: int, lines: list[str]) -> None:
    """Write lines to standard error at once, so that those of several ranks don't mix."""
    global _has_spoken
    _has_spoken = True
    text = "".join(f"collplan: rank {rank}: {line}\n" for line in lines)
    sys.stderr.flush()
    os.write(2, text.encode())


def end_job(comm: MPI.Intracomm, reason: str) -> StallError:
    """Abort the job; return the error to raise where that returns."""
    abort(comm, 1)
    return StallError(f"{reason}; the job was aborted")
