"""Failures of candidates that end a run: a file that outlives the processes, and a watchdog."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from collplan.executors.mpi.host.waiting import Wait
from collplan.executors.mpi.together import FORWARDING_S
from collplan.specs.errors import CollplanError

NOTE_BYTES: Final = 1024
"""The note, written over and over; behind it is what went wrong, as ranks append it."""
MOST_ENDS: Final = 3
"""Number of runs that may end in a candidate without a known reason before it has failed."""
_SAID: Final = "collplan: "
_FAULT: Final = "Fatal Python error: "
_ABORTED: Final = "Aborted"
"""No fault of who is aborted: libraries end so when another rank is gone."""
EXIT_STATUS: Final = 3
"""Of a rank that gives up; the launcher then ends all others."""
_LOOK_S: Final = 1.0
_LONGEST_STEP_S: Final = 2.0
"""Longest time between two checks that counts; the process may have been stopped in between."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate at a point.

    Parameters
    ----------
    sweep : str
        The goal, in words.
    bytes : int
    candidate : str
    n_ended : int
        How many runs ended while it ran, for no known reason.
    """

    sweep: str
    bytes: int
    candidate: str
    n_ended: int = 0

    def failed(self, reason: str) -> Failure:
        """Return the failure of this candidate for a reason in words."""
        return Failure(self.sweep, self.bytes, self.candidate, reason)


@dataclass(frozen=True, slots=True)
class Failure:
    """A candidate that made a run end, or did not end itself; it is left out of its sweep.

    Parameters
    ----------
    sweep : str
        The goal, in words.
    bytes : int
        At which size it was.
    candidate : str
    reason : str
        In words.
    """

    sweep: str
    bytes: int
    candidate: str
    reason: str

    def __str__(self) -> str:
        """Say in one line what failed, and how."""
        return f"{self.sweep}, {self.bytes} bytes: {self.candidate}: {self.reason}"


Noted = TypeVar("Noted", Attempt, Failure)


class CrashLog:
    """The file beside an output that says what is being tried.

    Rank 0 notes it; whatever rank finds a fault appends it, or the handler of fatal signals.
    The kernel keeps what was written when processes are killed.

    Parameters
    ----------
    output : Path
        The table.
    """

    def __init__(self, output: Path) -> None:
        self.path = output.with_name(f".{output.name}.trying")
        self._suspect: Attempt | None = None
        self._note: int | None = None
        self._faults: int | None = None

    def find(self) -> Failure | Attempt | None:
        """Return who made the last run end: for sure, or maybe; None where nobody did."""
        try:
            content = self.path.read_bytes()
        except OSError:
            return None
        attempt = _read(content[:NOTE_BYTES], Attempt)
        for line in content[NOTE_BYTES:].decode(errors="replace").splitlines():
            if line.startswith(_SAID):
                return _read(line.removeprefix(_SAID), Failure)
            what = line.removeprefix(_FAULT)
            if attempt is not None and what != line and what != _ABORTED:
                return attempt.failed(f"crashed: {what}")
        if attempt is None:
            return None
        ended = replace(attempt, n_ended=attempt.n_ended + 1)
        if ended.n_ended < MOST_ENDS:
            return ended
        return ended.failed(f"{MOST_ENDS} runs ended while it ran")

    def begin(self, suspect: Attempt | None = None) -> None:
        """Make the file again; on rank 0.

        Parameters
        ----------
        suspect : Attempt, optional
            In which earlier runs ended.

        Raises
        ------
        CollplanError
            If it can't be written.
        """
        self._suspect = suspect
        flags = os.O_CREAT | os.O_RDWR | os.O_TRUNC
        try:
            self._note = os.open(self.path, flags, 0o666)
            self.clear()
        except OSError as error:
            raise CollplanError(
                f"{self.path}: cannot be written: {error.strerror}; give another --output"
            ) from None

    @contextmanager
    def noting_faults(self) -> Iterator[None]:
        """Append to the file what fatal signals say meanwhile; on every rank that has the file."""
        was_enabled = faulthandler.is_enabled()
        try:
            self._faults = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        except OSError:  # another machine's file system
            yield
            return
        faulthandler.enable(self._faults, all_threads=False)
        try:
            yield
        finally:
            faulthandler.disable()
            if was_enabled:
                faulthandler.enable(sys.__stderr__ or 2)
            os.close(self._faults)
            self._faults = None

    def note(self, sweep: str, n_bytes: int, candidate: str) -> None:
        """Say what is tried from now on; nothing where this is not rank 0."""
        if self._note is None:
            return
        attempt = Attempt(sweep, n_bytes, candidate)
        if self._suspect is not None and attempt == replace(self._suspect, n_ended=0):
            attempt = self._suspect
        text = json.dumps(asdict(attempt)).encode()[:NOTE_BYTES]
        os.pwrite(self._note, text.ljust(NOTE_BYTES), 0)

    def clear(self) -> None:
        """Say that nothing is being tried."""
        if self._note is not None:
            os.pwrite(self._note, b" " * NOTE_BYTES, 0)

    def blame(self, failure: Failure) -> bool:
        """Append who failed; return whether nobody was blamed before."""
        if self._faults is None:
            return True
        line = f"{_SAID}{json.dumps(asdict(failure))}\n".encode()
        os.write(self._faults, line)
        # The end of this rank's own line, even where others have written behind it.
        return os.lseek(self._faults, 0, os.SEEK_CUR) == NOTE_BYTES + len(line)

    def remove(self) -> None:
        """Forget all: no run is under way; nothing where this is not rank 0."""
        if self._note is not None:
            os.close(self._note)
            self._note = None
            self.path.unlink(missing_ok=True)


def _read(text: bytes | str, form: type[Noted]) -> Noted | None:
    try:
        return form(**json.loads(text))
    except (ValueError, TypeError):
        return None


class Watchdog:
    """Watches one rank's calls of candidates from a thread.

    Parameters
    ----------
    crash_log : CrashLog
        Where to say what is tried, and who failed.
    sweep : str
        The goal, in words.
    n_bytes : int
        The point.
    limit_s : float
        How long a call may take.
    """

    def __init__(self, crash_log: CrashLog, sweep: str, n_bytes: int, limit_s: float) -> None:
        self.limit_s = limit_s
        self._crash_log, self._sweep, self._n_bytes = crash_log, sweep, n_bytes
        self._running: list[str] | None = None
        self._is_over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
            self._crash_log.clear()

    def announce(self, candidate: str | None) -> None:
        """Say whose turn is next, before ranks meet for it; None for native."""
        if candidate is None:
            self._crash_log.clear()
        else:
            self._crash_log.note(self._sweep, self._n_bytes, candidate)

    def begin(self, candidate: str) -> None:
        """Count from now on how long a call takes; this is quick."""
        self._running = [candidate]

    def end(self) -> None:
        """Count no longer."""
        self._running = None

    def _watch(self) -> None:
        seen: list[str] | None = None
        wait = Wait(longest_step_s=_LONGEST_STEP_S)
        while not self._is_over.wait(_LOOK_S):
            running = self._running
            if running is None or running is not seen:
                seen = running
                wait.begin()
                continue
            wait.look()
            if wait.waited_s >= self.limit_s:
                self._give_up(running[0])

    def _give_up(self, candidate: str) -> None:
        reason = f"did not end within {self.limit_s:.3g} s"
        failure = Failure(self._sweep, self._n_bytes, candidate, reason)
        if self._crash_log.blame(failure):
            text = f"collplan: {failure}; the run ends here, the same command goes on without it\n"
            os.write(2, text.encode())
        # The launcher ends the rank that writes as soon as another one has ended.
        time.sleep(FORWARDING_S)
        # Not by MPI: a thread that waits in it may hold its locks.
        os._exit(EXIT_STATUS)
