"""A crash log that outlives a tuning run, and a watchdog for calls that do not end.

The log tells the next run which candidate ended the last run, so that it can be left out.
"""

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
"""Size of the note on the current candidate, at the start of the file.

Rank 0 overwrites the note. Each rank appends the failures that it detects after the note.
"""
MOST_ENDS: Final = 3
"""Number of runs that must end in a candidate for no known reason before it counts as failed."""
_BLAMED: Final = "collplan: "
_FAULT: Final = "Fatal Python error: "
_ABORTED: Final = "Aborted"
"""Fault that is not blamed on a candidate: MPI libraries abort when another rank has ended."""
EXIT_STATUS: Final = 3
"""Exit status of a rank that gives up; the launcher then ends all other ranks."""
_POLL_S: Final = 1.0
_LONGEST_STEP_S: Final = 2.0
"""Longest time in seconds counted between two checks, as the process may have been stopped."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate that is being tried.

    Parameters
    ----------
    sweep : str
        Name of the sweep, as in the text of a `Goal`.
    bytes : int
        Message size in bytes.
    candidate : str
        Name of the candidate.
    n_ended : int
        Number of runs that ended for no known reason while this candidate ran.
    """

    sweep: str
    bytes: int
    candidate: str
    n_ended: int = 0

    def failed(self, reason: str) -> Failure:
        """Return the failure of this candidate for the given reason."""
        return Failure(self.sweep, self.bytes, self.candidate, reason)


@dataclass(frozen=True, slots=True)
class Failure:
    """A candidate that crashed or did not end; the rest of its sweep is measured without it.

    Parameters
    ----------
    sweep : str
        Name of the sweep, as in the text of a `Goal`.
    bytes : int
        Message size in bytes at which it failed.
    candidate : str
        Name of the candidate.
    reason : str
        Reason, as shown to users.
    """

    sweep: str
    bytes: int
    candidate: str
    reason: str

    def __str__(self) -> str:
        """Return one line that names the candidate and the reason of its failure."""
        return f"{self.sweep}, {self.bytes} bytes: {self.candidate}: {self.reason}"


Noted = TypeVar("Noted", Attempt, Failure)


class CrashLog:
    """A file beside the table that names the candidate that is being tried.

    Rank 0 writes a note with the candidate. Each rank, or its handler of fatal signals, appends
    the failures that it detects. The file remains if processes end.

    Parameters
    ----------
    output : Path
        Path of the table.
    """

    def __init__(self, output: Path) -> None:
        self.path = output.with_name(f".{output.name}.trying")
        self._suspect: Attempt | None = None
        self._note: int | None = None
        self._faults: int | None = None

    def find(self) -> Failure | Attempt | None:
        """Return the candidate that ended the last run.

        Returns
        -------
        Failure or Attempt or None
            A failure if the reason is known or too many runs have ended in the candidate;
            an attempt if the run ended while the candidate ran, for an unknown reason;
            None if no candidate ended the run.
        """
        try:
            content = self.path.read_bytes()
        except OSError:
            return None
        attempt = _read(content[:NOTE_BYTES], Attempt)
        for line in content[NOTE_BYTES:].decode(errors="replace").splitlines():
            if line.startswith(_BLAMED):
                return _read(line.removeprefix(_BLAMED), Failure)
            fault = line.removeprefix(_FAULT)
            if attempt is not None and fault != line and fault != _ABORTED:
                return attempt.failed(f"crashed: {fault}")
        if attempt is None:
            return None
        ended = replace(attempt, n_ended=attempt.n_ended + 1)
        if ended.n_ended < MOST_ENDS:
            return ended
        return ended.failed(f"{MOST_ENDS} runs ended while it ran")

    def begin(self, suspect: Attempt | None = None) -> None:
        """Create an empty file; rank 0 calls this.

        Parameters
        ----------
        suspect : Attempt, optional
            Candidate in which earlier runs ended.

        Raises
        ------
        CollplanError
            If the file can't be written.
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
        """Append the reports of fatal signals in this context to the file.

        Does nothing on ranks that do not see the file.
        """
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
        """Record the candidate that is tried next; only rank 0 writes."""
        if self._note is None:
            return
        attempt = Attempt(sweep, n_bytes, candidate)
        if self._suspect is not None and attempt == replace(self._suspect, n_ended=0):
            attempt = self._suspect
        text = json.dumps(asdict(attempt)).encode()[:NOTE_BYTES]
        os.pwrite(self._note, text.ljust(NOTE_BYTES), 0)

    def clear(self) -> None:
        """Record that no candidate is being tried; only rank 0 writes."""
        if self._note is not None:
            os.pwrite(self._note, b" " * NOTE_BYTES, 0)

    def blame(self, failure: Failure) -> bool:
        """Append a failure; return whether it is the first one in the file."""
        if self._faults is None:
            return True
        line = f"{_BLAMED}{json.dumps(asdict(failure))}\n".encode()
        os.write(self._faults, line)
        # The offset is the end of this rank's line, even if other ranks have appended theirs.
        return os.lseek(self._faults, 0, os.SEEK_CUR) == NOTE_BYTES + len(line)

    def remove(self) -> None:
        """Close and delete the file at the end of a run; only rank 0 does."""
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
    """A thread that ends this rank if a call of a candidate exceeds its time limit.

    Parameters
    ----------
    crash_log : CrashLog
        Log of the current candidate and of failures.
    sweep : str
        Name of the sweep, as in the text of a `Goal`.
    n_bytes : int
        Message size in bytes.
    limit_s : float
        Time limit of a call in seconds.
    """

    def __init__(self, crash_log: CrashLog, sweep: str, n_bytes: int, limit_s: float) -> None:
        self.limit_s = limit_s
        self._crash_log, self._sweep, self._n_bytes = crash_log, sweep, n_bytes
        self._running: list[str] | None = None
        self._is_over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Run the thread in this context."""
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
            self._crash_log.clear()

    def announce(self, candidate: str | None) -> None:
        """Record the candidate of the next call before ranks synchronize; None for native."""
        if candidate is None:
            self._crash_log.clear()
        else:
            self._crash_log.note(self._sweep, self._n_bytes, candidate)

    def begin(self, candidate: str) -> None:
        """Start the clock of a call; this takes almost no time itself."""
        self._running = [candidate]

    def end(self) -> None:
        """Stop the clock of the call."""
        self._running = None

    def _watch(self) -> None:
        seen: list[str] | None = None
        wait = Wait(longest_step_s=_LONGEST_STEP_S)
        while not self._is_over.wait(_POLL_S):
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
        # As soon as another rank exits, the launcher kills the one that writes the message.
        time.sleep(FORWARDING_S)
        # MPI_Abort could hang: the thread that waits in MPI may hold its locks.
        os._exit(EXIT_STATUS)
