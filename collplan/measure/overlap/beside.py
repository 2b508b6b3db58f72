"""Collectives that overlap with computation: start the collective, compute, then wait."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.engine.in_flight import board
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.host.cores import ranks_per_core
from collplan.executors.mpi.together import first_alone, own_communicator
from collplan.measure.native import NativeCollective
from collplan.measure.overlap.computation import Computation
from collplan.measure.timing import Call, nothing
from collplan.planner.plan.plan import Plan
from collplan.programs.progress_places import ProgressPlaces, policy_of
from collplan.programs.splitting import program_of
from collplan.specs import PlanSpec

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Overlapped:
    """A collective, ready to run together with a computation.

    Parameters
    ----------
    begin, finish : callable
        Functions that start the collective and wait for it. If the collective is blocking,
        `begin` does nothing, and `finish` runs all of it.
    compute : callable
        Computation that runs between `begin` and `finish`.
    free : callable
        Function that frees the collective.
    """

    begin: Call
    finish: Call
    compute: Call
    free: Call = nothing

    def __call__(self) -> None:
        """Start, compute, and wait."""
        self.begin()
        self.compute()
        self.finish()

    def alone(self) -> None:
        """Run the collective alone."""
        self.begin()
        self.finish()


def overlapped_native(native: NativeCollective, compute: Call) -> Overlapped:
    """Return a call that overlaps MPI's own nonblocking collective with a computation."""
    requests: list[MPI.Request] = []
    return Overlapped(
        lambda: requests.append(native.start()), lambda: requests.pop().Wait(), compute
    )


class Beside:
    """A computation on this rank, and collectives that overlap with it.

    Construction is collective over `comm`.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    seconds : float
        Duration of the computation of each rank in s, if the rank has a core of its own.
    places : ProgressPlaces
        Processors for this rank's progress thread.

    Raises
    ------
    BindError
        If MPI was not initialized with ``MPI_THREAD_MULTIPLE``.
    """

    def __init__(self, comm: Any, seconds: float, places: ProgressPlaces) -> None:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise BindError(
                "--computation: plans beside computation need MPI initialized with "
                "MPI_THREAD_MULTIPLE"
            )
        self._seconds, self._places = seconds, places
        self._compute = first_alone(comm, lambda: Computation(seconds))
        self._comm = own_communicator(comm)
        ranks_per_core(self._comm)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._comm.Free()

    def natively(self, native: NativeCollective) -> Overlapped:
        """Return a call that overlaps MPI's own collective with the computation."""
        return overlapped_native(native, self._compute)

    def start_of(
        self, plan: Plan, spec: PlanSpec, sendbuf: Array | None, recvbuf: Array | None
    ) -> Overlapped:
        """Return a call that runs a plan's program and the computation at the same time.

        Raises
        ------
        UnsupportedPlanError
            If all ranks would have to set up the program together.
        """
        program = program_of(plan, spec, self._comm, self._seconds)
        place = self._places.of(policy_of(spec))
        buffers = [np.empty(0) if one is None else one for one in (sendbuf, recvbuf)]
        copy = program.take(*(one.ctypes.data for one in buffers))
        requests: list[MPI.Request] = []

        def begin() -> None:
            board().stay_on(place)
            requests.append(copy.start(0))

        def finish() -> None:
            board().wait(copy.flight)
            requests.pop().Wait()

        def free() -> None:
            copy.give_back()
            program.close()
            buffers.clear()  # their memory must exist until now

        return Overlapped(begin, finish, self._compute, free)
