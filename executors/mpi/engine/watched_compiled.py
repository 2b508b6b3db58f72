"""The compiled engine under a watch: between turns of its loop the watch looks."""

from __future__ import annotations

from ctypes import c_int32
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collplan.executors.mpi.engine.compiled import CompiledEngine
from collplan.executors.mpi.loop.state import PENDING
from collplan.executors.mpi.stall.stall_report import Standstill

if TYPE_CHECKING:
    from collplan.executors.mpi.stall.watchdog import Watch


class WatchedCompiledEngine(CompiledEngine):
    """Run a program as `CompiledEngine` does; between turns of its loop the watch looks.

    Attributes
    ----------
    watch : Watch
        What is told that this rank waits; set after the engine is made.
    """

    watch: Watch

    @property
    def progress(self) -> int:
        """Return a number that grows whenever a task ends."""
        return self._memory.get("progress")

    def standstill(self) -> Standstill:
        """Return what is under way."""
        before = self._numbers("before", self._memory.get("n_tasks"))
        is_ending = bool(self._memory.get("is_ending"))
        # To wait for others, and to take the start back from a thread, count as tasks.
        n_left = self._memory.get("n_left") - is_ending - self._memory.get("is_handed")
        return Standstill(
            active=self._numbers("active", self._memory.get("n_active")).tolist(),
            blocked=np.flatnonzero(before > 0).tolist(),
            gated=self._numbers("waiting", self._memory.get("n_waiting")).tolist(),
            n_left=n_left,
            is_ending=is_ending and n_left == 0,
            is_computing=self._memory.get("computing") >= 0
            or self._memory.get("beside_left_ns") > 0,
        )

    def test(self) -> bool:
        """Advance without blocking; return whether everything is done."""
        is_done = super().test()
        if not is_done:
            self.watch.look(self)
        return is_done

    def _go_on(self, found: int, what: int) -> None:
        while found == PENDING:
            self.watch.look(self)
            found = self._take_turn(what)
        super()._go_on(found, what)

    def _numbers(self, name: str, n: int) -> npt.NDArray[np.int32]:
        """Return a copy of the first numbers of an array of the loop."""
        if n == 0:
            return np.zeros(0, dtype=np.int32)
        return np.array((c_int32 * n).from_address(self._memory.get(name)))
