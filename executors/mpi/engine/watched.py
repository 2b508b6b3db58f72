"""Engines in Python under a watch; those without a time limit know nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collplan.executors.mpi.engine.interpreted import Engine
from collplan.executors.mpi.engine.recording import RecordingEngine
from collplan.executors.mpi.stall.stall_report import Standstill

if TYPE_CHECKING:
    from collplan.executors.mpi.stall.watchdog import Watch


class _Watching(Engine):
    """What both engines in Python have in common under a watch, which is set after they are made.

    Attributes
    ----------
    watch : Watch
        What is told that this rank waits.
    """

    watch: Watch
    _n_finished = 0
    _is_awaited = True

    @property
    def progress(self) -> int:
        """Return a number that grows whenever a task ends."""
        return self._n_finished

    def standstill(self) -> Standstill:
        """Return what is under way."""
        blocked = [task for task, n in enumerate(self._before) if n > 0]
        return Standstill(
            active=list(self._active_task),
            blocked=blocked,
            gated=list(self._waiting),
            n_left=self._n_left,
            is_ending=self._is_ending and not self._n_left,
        )

    def _complete(self, task: int) -> None:
        self._n_finished += 1
        super()._complete(task)

    def test(self) -> bool:
        """Advance without blocking; return whether everything is done."""
        is_done = super().test()
        if not is_done:
            self.watch.look(self)
        return is_done

    def advance(self) -> bool:
        """Do the same for another plan's wait, which is no wait for this one."""
        self._is_awaited = False
        try:
            return super().advance()
        finally:
            self._is_awaited = True

    def _poll(self) -> bool:
        has_come = super()._poll()
        if not has_come and self._is_awaited:
            self.watch.look(self)
        return has_come


class WatchedEngine(_Watching):
    """Run a program as `Engine` does, under a watch."""


class WatchedRecordingEngine(_Watching, RecordingEngine):
    """Run a program as `RecordingEngine` does, under a watch."""
