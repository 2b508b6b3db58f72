"""Programs that are bound to a communicator, with the memory of their buffers."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.executors.mpi.binding.bound_plan import bind as bind_plan
from collplan.planner.plan.plan import Plan
from collplan.planner.programs.reference import allocate_buffers, buffers_in


class BoundProgram:
    """A program that can be started any number of times, and must be freed.

    Parameters
    ----------
    plan : Plan
        Plan of a program, or this rank's tasks of it.
    comm : mpi4py.MPI.Intracomm
        Communicator of its ranks.
    memory : ndarray or None
        Memory of all buffers of this rank, as `allocate_buffers` returns it; None to allocate it.
    **options : object
        As for `collplan.bind`.

    Attributes
    ----------
    buffers : dict of str to ndarray, shape (count,)
        The buffers of this rank, by name. Read and write them while the program does not run.
    bound : BoundPlan
        The bound plan.

    Raises
    ------
    CollplanError
        As for `collplan.bind`.
    """

    def __init__(
        self, plan: Plan, comm: Any, memory: npt.NDArray[Any] | None = None, **options: Any
    ) -> None:
        assert plan.program is not None
        held = allocate_buffers(plan.program) if memory is None else memory
        self.bound: BoundPlan = bind_plan(plan, comm, None, held, **options)
        self.buffers: dict[str, npt.NDArray[Any]] = buffers_in(plan.program, np.asarray(held))

    def __call__(self) -> None:
        """Run all steps, and wait for them."""
        self.bound()

    def start(self) -> None:
        """Start all steps; computations and messages run in `test` and `wait`."""
        self.bound.start()

    def test(self) -> bool:
        """Advance the program, and return whether all steps have ended on this rank."""
        return self.bound.test()

    def wait(self) -> None:
        """Wait until all steps have ended on this rank."""
        self.bound.wait()

    def free(self) -> None:
        """Release what the program holds; the buffers remain."""
        self.bound.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bound.__exit__(kind, error, trace)
