"""The watcher of a node: it reads what ranks do, and reports calls that do not complete."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from collplan.watch.area import Area, WatchedRank
from collplan.watch.diagnosis import Hang, first_difference, hangs_of
from collplan.watch.options import WatchOptions
from collplan.watch.sentences import Reporter
from collplan.watch.sites import Sites

SAMPLE_S: Final = 0.5
"""Time for which the use of processors is observed, in seconds."""
_GET_DESCRIPTOR: Final = 438
"""Number of the system call ``pidfd_getfd``, the same on all processors."""
_STANDARD_ERROR: Final = 2
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if platform.system() == "Linux" else None


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State of a process.

    Parameters
    ----------
    letter : str
        State in the words of ``/proc/<pid>/stat``: ``R`` runs, ``S`` and ``D`` sleep, ``T`` is
        stopped, ``Z`` has ended; empty if there is no such process.
    busy_s : float
        Processor time of all threads so far in seconds.
    killed_by : str
        Name of the signal that killed the process; empty if it is unknown.
    """

    letter: str
    busy_s: float = 0.0
    killed_by: str = ""

    @property
    def has_ended(self) -> bool:
        """True if the process has ended."""
        return self.letter in ("", "Z", "X")


def state_of(pid: int) -> ProcessState:
    """Return the state of a process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name in parentheses may contain any characters.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ProcessState("")
    busy = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    killed_by = ""
    if fields[0] == "Z" and len(fields) > 49:
        number = int(fields[49]) & 0x7F
        with suppress(ValueError):
            killed_by = signal.Signals(number).name if number else ""
    return ProcessState(fields[0], busy, killed_by)


def doing_of(pids: Iterable[int]) -> dict[int, str]:
    """Return what processes do, as the end of a sentence; it takes `SAMPLE_S` seconds.

    Parameters
    ----------
    pids : iterable of int
        Processes.
    """
    before = {pid: state_of(pid) for pid in pids}
    if not before:
        return {}
    time.sleep(SAMPLE_S)
    return {pid: _doing(one, state_of(pid)) for pid, one in before.items()}


def _doing(before: ProcessState, after: ProcessState) -> str:
    if after.killed_by:
        return f"was killed by {after.killed_by}"
    if after.has_ended:
        return "has ended without MPI_Finalize, or was killed"
    if after.letter in "Tt":
        return "is stopped by a signal or a debugger"
    if after.busy_s - before.busy_s > SAMPLE_S / 10 or after.letter == "R":
        return "computes, or is in calls that collplan does not see"
    return "sleeps, or waits for input or output"


def write_to_errors_of(pids: Iterable[int], text: str) -> bool:
    """Write to the standard error of the first process that has one; return whether that worked.

    Parameters
    ----------
    pids : iterable of int
        Processes in the order in which they are tried.
    text : str
        Lines to write.
    """
    for pid in pids:
        with suppress(OSError):
            descriptor = _error_stream_of(pid)
            try:
                left = text.encode()
                while left:
                    left = left[os.write(descriptor, left) :]
                return True
            finally:
                os.close(descriptor)
    return False


def _error_stream_of(pid: int) -> int:
    """Return a descriptor of another process's standard error.

    A copy of the descriptor writes behind what the process has written to a file. Where the system
    does not allow the copy, the file is opened again.

    Raises
    ------
    OSError
        If there is none.
    """
    if _LIBC is not None:
        process = os.pidfd_open(pid)
        try:
            found = int(_LIBC.syscall(_GET_DESCRIPTOR, process, _STANDARD_ERROR, 0))
        finally:
            os.close(process)
        if found >= 0:
            return found
    return os.open(f"/proc/{pid}/fd/{_STANDARD_ERROR}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


MOST_REPORTS: Final = 20
"""Largest number of reports of a program."""
LONGEST_PAUSE_S: Final = 1.0
CHECKING_PAUSE_S: Final = 0.02
"""Pauses between two looks at the ranks in seconds, the latter if calls are compared."""
CROSSED_S: Final = 1.0
"""Time in seconds after which calls in different orders are reported if calls are compared."""
ANSWER_S: Final = 1.5
"""Longest time for the answers of Python programs in seconds; C code may keep them from it."""
_ANSWER_PAUSE_S: Final = 0.05


class Watcher:
    """Reader of the states of a node's ranks.

    Parameters
    ----------
    area : Area
        Memory in which the ranks write what they do.
    options : WatchOptions
        Choice of what is reported.
    write : callable
        Function that writes lines, given the processes on whose standard error they may appear.
    """

    def __init__(
        self,
        area: Area,
        options: WatchOptions,
        write: Callable[[Sequence[int], str], object] = write_to_errors_of,
    ) -> None:
        self._area = area
        self._patience_s, self._is_checking = options
        self._write = write
        self._sites = Sites()
        self._reporter = Reporter(self._sites.name)
        self._since: dict[int, tuple[tuple[int, ...], float]] = {}
        """Progress of each process, and the time at which it was first seen."""
        self._reported: dict[tuple[int, int], float] = {}
        """Calls that were reported and have not completed: since when ranks have waited in them."""
        self._crossings: set[int] = set()
        self._differences: set[tuple[int, int]] = set()
        """Calls that were reported because ranks differ, by communicator and number."""
        self._n_reports = 0
        self._before_s: float | None = None

    @property
    def pause_s(self) -> float:
        """Time between two looks at the ranks in seconds."""
        if self._is_checking:
            return CHECKING_PAUSE_S
        return min(LONGEST_PAUSE_S, max(self._patience_s / 20, 0.05))

    def start(self) -> None:
        """Watch in a thread of this process until it ends."""
        self._learn_sites()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        """Look at the ranks until all of them have ended."""
        self._learn_sites()
        while True:
            ranks = self._area.ranks()
            if ranks and all(state_of(one.pid).has_ended for one in ranks):
                return
            self.look(ranks, time.monotonic())
            time.sleep(self.pause_s)

    def look(self, ranks: Sequence[WatchedRank], now_s: float) -> None:
        """Compare the states of ranks with the earlier ones, and report what is to be said.

        Parameters
        ----------
        ranks : sequence of WatchedRank
            All ranks of the node.
        now_s : float
            Time in seconds.
        """
        self._note_progress(ranks, now_s)
        if self._is_checking:
            self._answer_ranks(ranks)
            self._report_crossings(ranks, now_s)
        self._note_completed(ranks, now_s)
        if self._patience_s <= 0 or self._n_reports >= MOST_REPORTS:
            return
        stuck = self._idle_for(ranks, self._patience_s, now_s)
        if stuck:
            self._report(ranks, hangs_of(ranks, stuck), now_s)

    def _learn_sites(self) -> None:
        """Read where programs and libraries lie, for ranks that are killed later."""
        for one in self._area.ranks():
            self._sites.learn(one.pid)

    def _note_progress(self, ranks: Sequence[WatchedRank], now_s: float) -> None:
        gap_s = 0.0 if self._before_s is None else now_s - self._before_s
        self._before_s = now_s
        if gap_s > self.pause_s + LONGEST_PAUSE_S * 5:
            # This process was stopped, and so were the ranks, perhaps.
            self._since = {pid: (one, at_s + gap_s) for pid, (one, at_s) in self._since.items()}
        for rank in ranks:
            known = self._since.get(rank.pid)
            if known is None or known[0] != rank.progress:
                self._since[rank.pid] = rank.progress, now_s

    def _idle_for(
        self, ranks: Sequence[WatchedRank], seconds: float, now_s: float
    ) -> list[WatchedRank]:
        return [
            one
            for one in ranks
            if not one.is_finalized
            and (one.inside or one.wait.is_inside)
            and now_s - self._since[one.pid][1] >= seconds
        ]

    def _report(self, ranks: Sequence[WatchedRank], hangs: list[Hang], now_s: float) -> None:
        new = [one for one in hangs if (one.comm.key, one.order) not in self._reported]
        # Ranks that have ended inside a call do not wait.
        if not new or all(state_of(one.rank.pid).has_ended for hang in new for one in hang.inside):
            return
        inside = {one.rank.pid for hang in new for one in hang.inside}
        doing = doing_of(one.pid for one in ranks if one.pid not in inside)
        idle_s = {pid: now_s - at_s for pid, (_, at_s) in self._since.items()}
        text, now = "", self._places_now(ranks)
        for hang in new:
            since_s = max(self._since[one.rank.pid][1] for one in hang.inside)
            self._reported[hang.comm.key, hang.order] = since_s
            self._n_reports += 1
            text += self._reporter.report(hang, now_s - since_s, doing, idle_s, now)
        self._say(ranks, text)

    def _places_now(self, ranks: Sequence[WatchedRank]) -> dict[int, str]:
        """Ask the processes of a Python program where they are, and return what they answer."""
        asked = {one.pid: one.told + 1 for one in ranks if one.can_tell}
        for one in ranks:
            if one.can_tell:
                self._area.ask(one)
        found: dict[int, str] = {}
        end_s = time.monotonic() + ANSWER_S
        while len(found) < len(asked) and time.monotonic() < end_s:
            time.sleep(_ANSWER_PAUSE_S)
            found = {
                one.pid: one.now
                for one in self._area.ranks()
                if one.pid in asked and one.told >= asked[one.pid]
            }
        return {pid: place for pid, place in found.items() if place}

    def _note_completed(self, ranks: Sequence[WatchedRank], now_s: float) -> None:
        """Say that calls have completed after their report, and be more patient from now on."""
        for (key, order), since_s in [*self._reported.items()]:
            inside = {
                rank.rank
                for rank in ranks
                for call in rank.inside
                if (comm := rank.comm_of(call)) and (comm.key, call.order) == (key, order)
            }
            members = [member for rank in ranks if (member := rank.member(key)) is not None]
            if inside or any(one.n_calls < order for one in members):
                continue
            del self._reported[key, order]
            waited_s = now_s - since_s
            if not all(state_of(one.pid).has_ended for one in ranks):
                self._say(
                    ranks,
                    f"collplan: call {order}, which was reported, has completed after "
                    f"{waited_s:.0f} s: the program goes on\n",
                )
            self._patience_s = max(self._patience_s, 2 * waited_s)

    def _answer_ranks(self, ranks: Sequence[WatchedRank]) -> None:
        """Report the calls that differ, for the ranks that wait for that."""
        for one in ranks:
            if one.mismatch <= one.answered:
                continue
            call = next((call for call in one.calls if call.number == one.mismatch), None)
            comm = None if call is None else one.comm_of(call)
            if call is not None and comm is not None:
                found = first_difference(ranks, comm.key, call.order)
                if found is not None and (comm.key, found.order) not in self._differences:
                    self._differences.add((comm.key, found.order))
                    self._say(ranks, f"collplan: {self._reporter.mismatch(found, comm)}\n")
            self._area.answer(one)

    def _report_crossings(self, ranks: Sequence[WatchedRank], now_s: float) -> None:
        """Report calls in different orders on two communicators, which never complete."""
        stuck = self._idle_for(ranks, CROSSED_S, now_s)
        crossed = [one for one in hangs_of(ranks, stuck) if one.crossed]
        new = [one for one in crossed if one.comm.key not in self._crossings]
        if new:
            self._crossings |= {one.comm.key for one in crossed}
            self._report(ranks, new, now_s)

    def _say(self, ranks: Sequence[WatchedRank], text: str) -> None:
        self._write([one.pid for one in ranks], text)
