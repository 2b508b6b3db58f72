"""Non-blocking starts of a plan's program, any number of which may be in flight.

All ranks compile the same plan, so a rank can extract its own program without communication.
Programs in flight on one communicator use different tags.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.buffers import Buffers
from collplan.executors.mpi.binding.prepared import Prepared, Wish
from collplan.executors.mpi.engine.engine import Engine
from collplan.executors.mpi.engine.in_flight import Flight, board
from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.program.program import shares_memory
from collplan.planner.plan.plan import Plan, Stage
from collplan.planner.plan.tags import MAX_TAGS

Array = npt.NDArray[Any]

TURN_NS: Final = 2_000_000
"""Maximum time in ns for which local tasks of one program delay other programs in flight."""
MOST_IDLE: Final = 4
"""Maximum number of idle copies of a program that are kept for later starts."""


def stages_within(stage: Array, head_ns: int, hold_ns: int) -> Array:
    """Return the stages of tasks, of which those without any time are background tasks.

    Parameters
    ----------
    stage : ndarray of int
        Stage of each task.
    head_ns, hold_ns : int
        Times in ns for tasks of the START and of the WAIT stage, see `LocalProgram`.
    """
    found = stage.copy()
    for name, time_ns in ((Stage.START, head_ns), (Stage.WAIT, hold_ns)):
        if not time_ns:
            found[found == name] = Stage.BACKGROUND
    return found


class LocalProgram:
    """A rank's program of a plan without shared memory, and its copies; not collective.

    Parameters
    ----------
    plan : Plan
        The plan of all ranks, or this rank's program. All ranks must have the same plan.
    comm : MPI.Intracomm
        Communicator for messages of such programs only, for which `ranks_per_core` has been
        called.
    head_s : float, default 0
        Time limit in seconds for the tasks of the START stage inside a start. After this time, the
        start returns, and they continue in the background, so that a start does not wait for other
        ranks. If it is 0, they are background tasks.
    hold_s : float, default 0
        Time in seconds after a start for which the tasks of the WAIT stage are held until a wait.
        After this time, they run without a wait, because other ranks may need them. If it is 0,
        they are background tasks.

    Raises
    ------
    UnsupportedPlanError
        If ranks share memory or a phase calls collectives of MPI (`phase.is_native`), which all
        ranks would have to set up together; or if a reduction of this rank has no machine code.
    BindError
        If the plan does not fit the communicator, or uses larger tags than this MPI has.
    PlanFormatError
        If the plan is malformed.
    """

    def __init__(
        self, plan: Plan, comm: MPI.Intracomm, head_s: float = 0.0, hold_s: float = 0.0
    ) -> None:
        if shares_memory(plan):
            raise UnsupportedPlanError(
                "ranks share memory, which they have to make together; bind the plan"
            )
        if any(phase.is_native for phase in plan.phases):
            raise UnsupportedPlanError(
                "calls of MPI's collectives need communicators, which all ranks have to make "
                "together; bind the plan"
            )
        prepared = Prepared(plan, comm, (None, None), Wish("caller"))
        reduction = prepared.reduction
        if reduction.why_callback is not None:
            raise UnsupportedPlanError(
                f"{reduction.why_callback}, and a thread does not run Python; bind the plan"
            )
        self.plan, self.comm = plan, comm
        self.head_ns, self.hold_ns = round(head_s * 1e9), round(hold_s * 1e9)
        program = prepared.program
        stage = stages_within(program.stage, self.head_ns, self.hold_ns)
        self.program = replace(program, stage=stage)
        self.reduction = reduction
        reduction.load()
        self._idle: list[ProgramInstance] = []
        self._most_idle = MOST_IDLE

    def take(self, sent_at: int, received_at: int) -> ProgramInstance:
        """Return a copy that is not in flight, for buffers at the given addresses.

        Parameters
        ----------
        sent_at, received_at : int
            Aligned addresses of as many elements as this rank's program uses of its send and
            receive buffer; any number for a buffer that it does not use.

        Raises
        ------
        BindError
            If this rank has too little memory for scratch.
        """
        if not self._idle:
            return ProgramInstance(self, sent_at, received_at)
        copy = self._idle.pop()
        copy.move(sent_at, received_at)
        return copy

    def give_back(self, copy: ProgramInstance) -> None:
        """Keep a copy that is no longer in flight for later starts, or free it."""
        if len(self._idle) < self._most_idle:
            self._idle.append(copy)
        else:
            copy.free()

    def close(self) -> None:
        """Free all idle copies. Copies in flight are freed when they are given back."""
        self._most_idle = 0
        while self._idle:
            self._idle.pop().free()


class ProgramInstance:
    """A copy of a program, with its own scratch and tags.

    Parameters
    ----------
    of : LocalProgram
        The program.
    sent_at, received_at : int
        Addresses of buffers, as in `LocalProgram.take`. The memory must exist until the next
        start has completed.

    Attributes
    ----------
    flight : Flight
        The last start and its request.
    """

    def __init__(self, of: LocalProgram, sent_at: int, received_at: int) -> None:
        self.of, self._buffers = of, Buffers(of.plan, of.comm.rank)
        buffers = self._buffers_at(sent_at, received_at)
        self._engine = Engine(of.program, buffers, of.comm, of.reduction)
        memory = self._engine._memory
        self._tags = memory.tasks["tag"][:-1]
        self.flight = Flight(memory.address)

    def move(self, sent_at: int, received_at: int) -> None:
        """Use buffers at other addresses from the next start on."""
        if not self._engine.move(sent_at, received_at):
            self._engine.rebind(self._buffers_at(sent_at, received_at))

    def start(self, tag_space: int, finish: Callable[[], None] | None = None) -> MPI.Request:
        """Start the program, and return a generalized request of MPI.

        If MPI reports an error in the start, this method does not raise it. The request then
        completes with this error, and `finish` is not called.

        Parameters
        ----------
        tag_space : int
            Number below `n_tag_spaces`. It must be the same on all ranks, and no other start in
            flight may have it.
        finish : callable, optional
            Function to call when the program has ended, before the request completes.

        Returns
        -------
        MPI.Request

        Raises
        ------
        MPI.Exception
            If MPI cannot create the request.
        """
        memory, flight = self._engine._memory, self.flight
        np.add(self.of.program.tag, tag_space * MAX_TAGS, out=self._tags)
        request = MPI.Request.fromhandle(flight.prepare(board().address, finish))
        program = self.of
        hold_until_ns = program.hold_ns and time.monotonic_ns() + program.hold_ns
        memory.set(turn_ns=program.head_ns or TURN_NS, hold_until_ns=hold_until_ns)
        found = entry("run_loop")(memory.address, codes.START)
        memory.set(turn_ns=TURN_NS)
        if found > codes.PENDING:
            flight.abandon(memory.get("code"))
        else:
            board().add(flight)
        return request

    def _buffers_at(self, sent_at: int, received_at: int) -> list[Array]:
        buffers = self._buffers.at(sent_at, received_at)
        return [*buffers, np.empty(0, buffers[0].dtype)]

    def give_back(self) -> None:
        """Return this copy, which must not be in flight, to its program for later starts."""
        self.of.give_back(self)

    def free(self) -> None:
        """Free the datatypes of this copy."""
        self._engine.free()
