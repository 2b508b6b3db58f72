"""Collectives that overlap with computation: start the collective, compute, then wait."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.instances import LocalProgram
from collplan.executors.mpi.engine.in_flight import board
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.host.cores import ranks_per_core
from collplan.executors.mpi.together import first_alone, own_communicator
from collplan.measure.native import NativeCollective
from collplan.measure.overlap.computation import Computation
from collplan.planner.plan.plan import Plan
from collplan.programs.progress_places import ProgressPlaces, policy_of
from collplan.programs.splitting import program_of
from collplan.specs import PlanSpec

Array = npt.NDArray[Any]


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

    def natively(self, native: NativeCollective) -> None:
        """Start MPI's own collective, compute, and wait for it."""
        request = native.start()
        self._compute()
        request.Wait()

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
        return Overlapped(program, self._compute, place, (sendbuf, recvbuf))


class Overlapped:
    """A call that starts a program, computes, and waits for the program.

    Parameters
    ----------
    program : LocalProgram
        Program of this rank.
    compute : callable
        Computation to run after the start.
    place : int or None
        Processor of the thread that advances the program.
    buffers : tuple of ndarray or None
        Send and receive buffer.
    """

    def __init__(
        self,
        program: LocalProgram,
        compute: Computation,
        place: int | None,
        buffers: tuple[Array | None, Array | None],
    ) -> None:
        self._program, self._compute, self._place = program, compute, place
        nothing = np.empty(0)
        self._kept = [nothing if one is None else one for one in buffers]
        self._copy = program.take(*(one.ctypes.data for one in self._kept))

    def __call__(self) -> None:
        """Start, compute, and wait."""
        board().stay_on(self._place)
        request = self._copy.start(0)
        self._compute()
        board().wait(self._copy.flight)
        request.Wait()

    def free(self) -> None:
        """Free the program."""
        self._program.give_back(self._copy)
        self._program.close()
