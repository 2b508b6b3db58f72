"""Abort of a job whose plan makes no progress, after every rank has reported what it waits for.

A rank that is terminated also reports. If another rank has died, Open MPI's launcher sends SIGTERM,
and the guardian of `host/processes.py` sends SIGUSR1. As Python cannot handle signals inside calls
of MPI, a thread waits for them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final, Protocol

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.errors import StallError, name_ranks
from collplan.executors.mpi.host.cores import Peers
from collplan.executors.mpi.host.waiting import Wait
from collplan.executors.mpi.launch.environment import launcher_rank
from collplan.executors.mpi.program.program import Program
from collplan.executors.mpi.together import abort
from collplan.planner.plan.plan import Op, Plan

MOST_MESSAGES: Final = 3
"""Maximum number of messages that a rank lists; further messages are only counted."""
BETWEEN_CHECKS_S: Final = 0.05
"""Time between two checks for notices of other ranks, in seconds."""
BETWEEN_COUNTS_S: Final = 1.0
"""Time between two checks whether awaited processes are alive, in seconds."""
GRACE_S: Final = 1.0
"""Time for reports of other ranks before a rank aborts the job, in seconds."""
VERDICT_S: Final = 0.5
"""Additional time for the rank that receives all reports, in seconds."""


WHEN: Final = {
    signal.SIGTERM: "was told to end",
    signal.SIGUSR1: "was told that another rank has died",
}
LINGER_S: Final = 0.5
"""Time for reports of other ranks, in seconds."""


class Notices:
    """Notices with which ranks of a communicator tell each other that they have waited too long.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator whose largest tag is free, at least after a failure.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._tag = largest_tag(comm)
        self._sent: list[MPI.Request] = []
        self.heard: set[int] = set()

    def send(self, ranks: Iterable[int]) -> None:
        """Notify ranks. Messages may be lost, because the job is being aborted."""
        for rank in ranks:
            try:
                self._sent.append(self._comm.Isend([None, 0, MPI.BYTE], rank, self._tag))
            except MPI.Exception:
                # Some libraries report that the other process has ended.
                continue

    def collect(self) -> bool:
        """Receive notices; return whether there were any."""
        status = MPI.Status()
        n_before = len(self.heard)
        while self._comm.Iprobe(MPI.ANY_SOURCE, self._tag, status):
            source = status.Get_source()
            self._comm.Recv([None, 0, MPI.BYTE], source, self._tag)
            self.heard.add(source)
        return len(self.heard) > n_before

    def collect_for(self, seconds: float, *, enough: int) -> None:
        """Receive notices for some seconds, or until `enough` ranks have sent one."""
        wait = Wait()
        while len(self.heard) < enough and wait.waited_s < seconds:
            self.collect()
            wait.pause()


def largest_tag(comm: MPI.Intracomm) -> int:
    """Return the largest tag of this MPI, which is at least 32767 by the standard."""
    limit = comm.Get_attr(MPI.TAG_UB)
    return 32767 if limit is None else int(limit)


def spread(rank: int, size: int) -> set[int]:
    """Return the ranks at distances of powers of two, which reach all ranks in log2 steps."""
    distances = [1 << k for k in range(max(1, (size - 1).bit_length()))]
    around = {(rank + step) % size for step in distances}
    return (around | {(rank - step) % size for step in distances}) - {rank}


@dataclass(frozen=True, slots=True)
class Standstill:
    """State of a running program. Tasks have the numbers of the program.

    Parameters
    ----------
    active : sequence of int
        Tasks whose messages are in progress.
    blocked : sequence of int
        Tasks that wait for other tasks of this rank.
    gated : sequence of int
        Tasks that wait only for the progress of other ranks in shared memory.
    n_left : int
        Number of incomplete tasks.
    is_ending : bool
        Whether this rank is done, but other ranks of the node must complete the start.
    is_computing : bool
        Whether a task is being executed, so that there is progress.
    """

    active: Sequence[int]
    blocked: Sequence[int]
    gated: Sequence[int]
    n_left: int
    is_ending: bool = False
    is_computing: bool = False


class Waits:
    """Description of the tasks of a program that wait, and of the ranks they wait for.

    Parameters
    ----------
    plan : Plan
        The plan of all ranks, or this rank's program.
    program : Program
        The program of this rank.
    """

    def __init__(self, plan: Plan, program: Program) -> None:
        self._plan, self._program = plan, program

    @property
    def peers(self) -> set[int]:
        """Return the ranks with which this one exchanges messages or calls MPI's collectives."""
        program = self._program
        found = {int(peer) for peer in np.unique(program.peer[program.op <= Op.RECV])}
        for task in np.flatnonzero(program.op == Op.CALL).tolist():
            found.update(self._callers(task))
        return found

    def awaited(self, at: Standstill) -> set[int]:
        """Return the ranks for which messages in progress and gated tasks wait."""
        sharing = self._program.sharing
        found = set[int]()
        for task in at.active:
            is_call = self._program.op[task] == Op.CALL
            found.update(self._callers(task) if is_call else [int(self._program.peer[task])])
        for task in at.gated:
            found.update(sharing.rank[sharing.indptr[task] : sharing.indptr[task + 1]].tolist())
        return found

    def lines(self, at: Standstill) -> list[str]:
        """Return the reasons why the program waits, one line per kind."""
        n = self._program.n_tasks
        found = [f"{n - at.n_left} of {n} tasks are done"]
        # Receives come first, as they are often the reason for unreceived sends.
        active = sorted(at.active, key=lambda task: (self._program.op[task] != Op.RECV, task))
        found += [self._message(task) for task in active[:MOST_MESSAGES]]
        found += [self._gate(task) for task in at.gated[:MOST_MESSAGES]]
        left = len(active[MOST_MESSAGES:]) + len(at.gated[MOST_MESSAGES:])
        if left:
            found[-1] += f"; {left} more"
        if at.is_ending:
            found.append("other ranks of the node have not completed this start")
        if at.blocked:
            first = min(at.blocked)
            others = f" and {len(at.blocked) - 1} more tasks" if len(at.blocked) > 1 else ""
            verb = "wait" if others else "waits"
            found.append(f"{self._name(first)}{others} {verb} for tasks of this rank")
        return found

    def _message(self, task: int) -> str:
        program = self._program
        peer, tag = program.peer[task], program.tag[task]
        if program.op[task] == Op.CALL:
            callers = name_ranks(self._callers(task))
            return f"call by {callers} ({self._where(task)}) has not ended"
        if program.op[task] == Op.SEND:
            return f"send to {peer} tag {tag} ({self._where(task)}) has not been taken"
        return f"recv from {peer} tag {tag} ({self._where(task)}) has not arrived"

    def _callers(self, task: int) -> tuple[int, ...]:
        """Return the ranks that take part in a call."""
        row = int(self._program.row[task])
        phase = self._plan.phases[int(self._plan.phase[row])]
        return phase.call_of(int(self._plan.rank[row]), int(self._plan.tag[row])).members

    def _gate(self, task: int) -> str:
        sharing = self._program.sharing
        waits = range(int(sharing.indptr[task]), int(sharing.indptr[task + 1]))
        for_whom = ", ".join(f"task #{sharing.row[i]} of rank {sharing.rank[i]}" for i in waits)
        return (
            f"{self._name(task)} ({self._where(task)}) waits in shared memory for "
            f"{for_whom or 'all ranks of the node to complete the start before'}"
        )

    def _name(self, task: int) -> str:
        return Op(int(self._program.op[task])).name.lower() + f" #{self._program.row[task]}"

    def _where(self, task: int) -> str:
        row = int(self._program.row[task])
        phase = self._plan.phases[int(self._plan.phase[row])].name
        return f"task #{row}, phase {phase}" if phase else f"task #{row}"


class Watched(Protocol):
    """Interface of an engine for the watchdog."""

    @property
    def is_running(self) -> bool:
        """Return whether a start is still incomplete."""

    @property
    def progress(self) -> int:
        """Return a number that increases whenever a task ends."""

    def standstill(self) -> Standstill:
        """Return the tasks that are in progress."""


class Watch:
    """Monitor of the progress of a program.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator for the messages of this plan only. The watch uses the largest tag.
    plan : Plan
        The plan of all ranks, or this rank's program.
    program : Program
        The program of this rank.
    timeout_s : float
        Longest time without a completed task, in seconds.
    peers : Peers
        Processes of the ranks of `comm`.
    """

    def __init__(
        self, comm: MPI.Intracomm, plan: Plan, program: Program, timeout_s: float, peers: Peers
    ) -> None:
        self._comm, self._timeout_s = comm, timeout_s
        self._waits = Waits(plan, program)
        self._peers = peers
        self._notices = Notices(comm)
        self._engine: weakref.ref[Watched] | None = None
        self._progress = -1
        self._wait = Wait()
        self._checked_s = self._counted_s = 0.0
        _living.add(self)

    def over(self, engine: Watched) -> None:
        """Monitor an engine, which notifies this object when it waits."""
        # The engine refers to its watch, so a reference back would keep buffers after it is freed.
        self._engine = weakref.ref(engine)

    def look(self, engine: Watched) -> None:
        """Record that this rank waits; abort the job if it has waited for too long.

        Raises
        ------
        StallError
            If the process continues after the job was aborted.
        """
        if engine.progress != self._progress:
            self._progress = engine.progress
            self._checked_s = self._counted_s = self._wait.begin()
            return
        now = self._wait.look()
        if now - self._checked_s < BETWEEN_CHECKS_S:
            return
        self._checked_s = now
        if self._wait.waited_s >= self._timeout_s or self._is_alarmed(engine, now):
            at = engine.standstill()
            if not at.is_computing:
                self._end_job(at)
            self._wait.begin()

    def last_words(self) -> list[str]:
        """Return the reasons why the program waits, if it is running."""
        engine = None if self._engine is None else self._engine()
        if engine is None or not engine.is_running:
            return []
        return self._waits.lines(engine.standstill())

    def ended(self) -> list[int]:
        """Return the ranks whose processes are known to have ended."""
        return self._peers.ended()

    def _is_alarmed(self, engine: Watched, now: float) -> bool:
        """Return whether another rank waits too long, or an awaited rank has ended."""
        if self._notices.collect():
            return True
        if now - self._counted_s < BETWEEN_COUNTS_S:
            return False
        self._counted_s = now
        awaited = self._waits.awaited(engine.standstill())
        return bool(self._peers.ended(awaited))

    def _end_job(self, at: Standstill) -> None:
        rank, size = self._comm.rank, self._comm.size
        stood = f"has stood still for {self._wait.waited_s:.3g} s"
        first, *more = self._waits.lines(at)
        say(rank, [f"the plan {stood}; {first}", *more])
        ended = self._peers.ended()
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
_installed: list[int] = []


def say(rank: int, lines: list[str]) -> None:
    """Write lines to standard error in one call, so that lines of several ranks do not mix."""
    global _has_spoken
    _has_spoken = True
    text = "".join(f"collplan: rank {rank}: {line}\n" for line in lines)
    sys.stderr.flush()
    os.write(2, text.encode())


def end_job(comm: MPI.Intracomm, reason: str) -> StallError:
    """Abort the job; return the error that is raised if the abort returns."""
    abort(comm, 1)
    return StallError(f"{reason}; the job was aborted")


def speak_when_ended() -> None:
    """Make this process report before a signal terminates it.

    This function is only for processes that collplan has started, as other processes handle
    signals themselves. It does nothing if there are signal handlers already.
    """
    if _installed or threading.current_thread() is not threading.main_thread():
        return
    if any(signal.getsignal(number) is not signal.SIG_DFL for number in WHEN):
        return
    others = signal.set_wakeup_fd(-1)
    if others != -1:
        signal.set_wakeup_fd(others)
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _installed.extend((reading, writing))
    for number in WHEN:
        signal.signal(number, _leave_to_thread)
    # The signal handler writes to this descriptor, independent of the main thread.
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(reading,), name="last words", daemon=True).start()


def _leave_to_thread(number: int, frame: FrameType | None) -> None:
    """Do nothing, as the thread handles the signal."""


def _listen(reading: int) -> None:
    while True:
        for number in os.read(reading, 64):
            if number in WHEN:
                _speak(WHEN[signal.Signals(number)])
                sys.stdout.flush()
                # Launchers terminate all ranks when the first one has ended.
                time.sleep(LINGER_S)
                # Exit at once, as MPI_Finalize could wait for the dead rank forever.
                os._exit(1)


def _speak(why: str) -> None:
    if _has_spoken:
        return
    watches = list(_living)
    ended = sorted({rank for watch in watches for rank in watch.ended()})
    gone = f"; {name_ranks(ended)} ended" if ended else ""
    lines = [line for watch in watches for line in watch.last_words()]
    if lines:
        lines[0] = f"in a plan, {lines[0]}"
    say(launcher_rank(), [f"{why}{gone}", *lines])
