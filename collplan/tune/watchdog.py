"""End a run in which a candidate's call does not end: a later one leaves it out."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from collplan.executors.mpi.host.waiting import Wait
from collplan.executors.mpi.together import FORWARDING_S
from collplan.tune.crash_log import Attempts, Failure

EXIT_STATUS: Final = 3
"""Of a rank that gives up; the launcher then ends all others."""
_LOOK_S: Final = 1.0
_LONGEST_STEP_S: Final = 2.0
"""What the time between two looks counts at most: a process may be stopped."""


class Guard:
    """Watches one rank's calls of candidates from a thread.

    Parameters
    ----------
    attempts : Attempts, optional
        Where to say what is tried, and who failed; without, nothing is watched.
    sweep : str
        The goal, in words.
    n_bytes : int
        The point.
    limit_s : float
        How long a call may take.
    """

    def __init__(
        self,
        attempts: Attempts | None = None,
        sweep: str = "",
        n_bytes: int = 0,
        limit_s: float = 0,
    ) -> None:
        self.limit_s = limit_s
        self._attempts, self._sweep, self._n_bytes = attempts, sweep, n_bytes
        self._running: list[str] | None = None
        self._is_over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        if self._attempts is None:
            yield
            return
        thread = threading.Thread(target=self._watch, name="guard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
            self._attempts.clear()

    def announce(self, candidate: str | None) -> None:
        """Say whose turn is next, before ranks meet for it; None for native."""
        if self._attempts is None:
            return
        if candidate is None:
            self._attempts.clear()
        else:
            self._attempts.note(self._sweep, self._n_bytes, candidate)

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
        assert self._attempts is not None
        reason = f"did not end within {self.limit_s:.3g} s"
        failure = Failure(self._sweep, self._n_bytes, candidate, reason)
        if self._attempts.blame(failure):
            text = f"collplan: {failure}; the run ends here, the same command goes on without it\n"
            os.write(2, text.encode())
            time.sleep(FORWARDING_S)
        # Not by MPI: whoever waits in it may hold its locks.
        os._exit(EXIT_STATUS)
