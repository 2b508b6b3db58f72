"""States of ranks' processes, as the system describes them, and lines on their standard error."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

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
