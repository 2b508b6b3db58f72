"""An engine that notes when every task starts and ends; `Engine` itself knows nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.engine.interpreted import Engine

if TYPE_CHECKING:
    from collplan.executors.mpi.engine.progress import NodeProgress
    from collplan.executors.mpi.program.program import Program
    from collplan.executors.mpi.program.views import Action

Longs = npt.NDArray[np.int64]


class Recorder:
    """When the tasks of one rank started and ended at the last start; hand it to `bind`."""

    def __init__(self) -> None:
        self.start_ns: list[int] = []
        self.end_ns: list[int] = []
        self._by_row: Longs = np.empty(0, dtype=np.int64)

    def prepare(self, program: Program) -> None:
        """Make room for a program's tasks."""
        self.start_ns = [0] * program.n_tasks
        self.end_ns = [0] * program.n_tasks
        self._by_row = np.argsort(program.row)

    def times(self) -> Longs:
        """Return starts and ends in ns of this process's monotonic clock.

        Returns
        -------
        ndarray of int64, shape (2, n_tasks)
            In the order of the tasks' rows in the plan.
        """
        return np.array((self.start_ns, self.end_ns), dtype=np.int64)[:, self._by_row]


class RecordingEngine(Engine):
    """Run a program as `Engine` does and keep each task's times.

    A message starts right before it is handed to MPI and ends when its completion
    is seen; a local task starts right before its call and ends right after.

    Parameters
    ----------
    program, requests, actions, ranks_per_core, progress
        As for `Engine`.
    recorder : Recorder
        Where times go; every start overwrites the last one's.
    """

    def __init__(
        self,
        program: Program,
        requests: Sequence[MPI.Prequest | None],
        actions: Sequence[Action | None],
        ranks_per_core: float,
        progress: NodeProgress | None,
        recorder: Recorder,
    ) -> None:
        recorder.prepare(program)
        started, self._ended = recorder.start_ns, recorder.end_ns
        stamped = [
            None if request is None else _StampedRequest(request, started, task)
            for task, request in enumerate(requests)
        ]
        acting = [_stamped(action, started, task) for task, action in enumerate(actions)]
        super().__init__(program, stamped, acting, ranks_per_core, progress)

    def _complete(self, task: int) -> None:
        self._ended[task] = monotonic_ns()
        super()._complete(task)


class _StampedRequest(MPI.Prequest):
    """Another handle of a persistent request, which notes when it is started."""

    _started: list[int]
    _task: int

    def __new__(cls, request: MPI.Prequest, started: list[int], task: int) -> Self:
        self = super().__new__(cls, request)
        self._started = started
        self._task = task
        return self

    def Start(self) -> None:
        self._started[self._task] = monotonic_ns()
        super().Start()


def _stamped(action: Action | None, started: list[int], task: int) -> Action:
    def act() -> None:
        started[task] = monotonic_ns()
        if action is not None:
            action()

    return act
