"""End a job whose plan stands still, after every rank has said what it waits for.

A rank that is told to end says so, too. That another rank has died Open MPI's launcher tells
ranks by SIGTERM, and the guardian of `host/processes.py` by SIGUSR1. A rank may then be inside
of MPI, where Python handles no signals; so a thread waits for them.
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

from collplan.executors.mpi.errors import StallError
from collplan.executors.mpi.host.cores import Peers, name_ranks
from collplan.executors.mpi.host.waiting import Wait
from collplan.executors.mpi.launch.launcher import launcher_rank
from collplan.executors.mpi.program.program import Program
from collplan.executors.mpi.together import abort
from collplan.planner.plan.plan import Op, Plan

MOST_MESSAGES: Final = 3
"""Maximum number of messages that a rank names; it counts the others."""
BETWEEN_CHECKS_S: Final = 0.05
"""Time between two looks of a rank that waits for notices of others, in seconds."""
BETWEEN_COUNTS_S: Final = 1.0
"""Time between two looks whether the processes that it waits for are alive, in seconds."""
GRACE_S: Final = 1.0
"""Time for other ranks to speak before a rank ends the job, in seconds."""
VERDICT_S: Final = 0.5
"""Additional time for the rank that knows what all others said, in seconds."""


WHEN: Final = {
    signal.SIGTERM: "was told to end",
    signal.SIGUSR1: "was told that another rank has died",
}
LINGER_S: Final = 0.5
"""Time for other ranks to speak, too, in seconds."""


class Notices:
    """Ranks of a communicator that have said that they wait.

    Parameters
    ----------
    comm : MPI.Intracomm
        Where; its largest tag must be free, at least once it is clear that
        what it was made for has failed.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._tag = largest_tag(comm)
        self._sent: list[MPI.Request] = []
        self.heard: set[int] = set()

    def send(self, ranks: Iterable[int]) -> None:
        """Notify ranks; messages may be lost, because the job is about to end."""
        for rank in ranks:
            try:
                self._sent.append(self._comm.Isend([None, 0, MPI.BYTE], rank, self._tag))
            except MPI.Exception:
                # Some libraries know that the other process is gone.
                continue

    def collect(self) -> bool:
        """Take what has come; return whether anything has."""
        status = MPI.Status()
        n_before = len(self.heard)
        while self._comm.Iprobe(MPI.ANY_SOURCE, self._tag, status):
            source = status.Get_source()
            self._comm.Recv([None, 0, MPI.BYTE], source, self._tag)
            self.heard.add(source)
        return len(self.heard) > n_before

    def collect_for(self, seconds: float, *, enough: int) -> None:
        """Take what comes within some seconds, or until `enough` ranks have been heard."""
        wait = Wait()
        while len(self.heard) < enough and wait.waited_s < seconds:
            self.collect()
            wait.pause()


def largest_tag(comm: MPI.Intracomm) -> int:
    """Return the largest tag of this MPI; the standard promises 32767."""
    limit = comm.Get_attr(MPI.TAG_UB)
    return 32767 if limit is None else int(limit)


def spread(rank: int, size: int) -> set[int]:
    """Return ranks at distances of powers of two: by them, all hear of a thing in log2 steps."""
    distances = [1 << k for k in range(max(1, (size - 1).bit_length()))]
    around = {(rank + step) % size for step in distances}
    return (around | {(rank - step) % size for step in distances}) - {rank}


@dataclass(frozen=True, slots=True)
class Standstill:
    """Position of a running program; tasks are numbered as in the program.

    Parameters
    ----------
    active : sequence of int
        Tasks whose messages are under way.
    blocked : sequence of int
        Tasks that wait for others of this rank.
    gated : sequence of int
        Tasks that wait for nothing but other ranks' progress in shared memory.
    n_left : int
        Tasks that are not over.
    is_ending : bool
        Whether all is over here, and others of the node have to complete the start.
    is_computing : bool
        Whether a task is at work, so that nothing stands still.
    """

    active: Sequence[int]
    blocked: Sequence[int]
    gated: Sequence[int]
    n_left: int
    is_ending: bool = False
    is_computing: bool = False


class Waits:
    """Say which tasks of a program wait for whom.

    Parameters
    ----------
    plan : Plan
        The whole plan or this rank's program.
    program : Program
        What the rank runs.
    """

    def __init__(self, plan: Plan, program: Program) -> None:
        self._plan, self._program = plan, program

    @property
    def peers(self) -> set[int]:
        """Return the ranks this one exchanges messages with, or calls MPI's collectives with."""
        program = self._program
        found = {int(peer) for peer in np.unique(program.peer[program.op <= Op.RECV])}
        for task in np.flatnonzero(program.op == Op.CALL).tolist():
            found.update(self._callers(task))
        return found

    def awaited(self, at: Standstill) -> set[int]:
        """Return the ranks that messages under way come from or go to, or that gates are of."""
        sharing = self._program.sharing
        found = set[int]()
        for task in at.active:
            is_call = self._program.op[task] == Op.CALL
            found.update(self._callers(task) if is_call else [int(self._program.peer[task])])
        for task in at.gated:
            found.update(sharing.rank[sharing.indptr[task] : sharing.indptr[task + 1]].tolist())
        return found

    def lines(self, at: Standstill) -> list[str]:
        """Return what the program waits for, one line per kind of wait."""
        n = self._program.n_tasks
        found = [f"{n - at.n_left} of {n} tasks are done"]
        # What comes in first: that others do not take what is sent often follows from it.
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
        calls = self._plan.phases[int(self._plan.phase[row])].calls
        return next(call.members for call in calls if call.tag == self._program.tag[task])

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
        """Return what the program waits for, if it is running."""
        engine = None if self._engine is None else self._engine()
        if engine is None or not engine.is_running:
            return []
        return self._waits.lines(engine.standstill())

    def ended(self) -> list[int]:
        """Return the ranks whose processes are known to be over."""
        return self._peers.ended()

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


def speak_when_ended() -> None:
    """Let this process speak before a signal ends it, from now on.

    For processes that are ranks of ours only: signals belong to the owner of the
    process. Where somebody handles these signals already, nothing changes.
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
    # Written to by the signal handler itself, whatever the main thread does.
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(reading,), name="last words", daemon=True).start()


def _leave_to_thread(number: int, frame: FrameType | None) -> None:
    """Python needs a handler; the thread has been told already."""


def _listen(reading: int) -> None:
    while True:
        for number in os.read(reading, 64):
            if number in WHEN:
                _speak(WHEN[signal.Signals(number)])
                sys.stdout.flush()
                # Launchers end all others when the first one is gone.
                time.sleep(LINGER_S)
                # Without farewell: what MPI would still want from a dead rank could take for ever.
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
