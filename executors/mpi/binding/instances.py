"""Start a plan's program without blocking, as often at once as one likes.

All ranks compile the same plan, so each takes its own program out of it without asking the
others. Messages of programs in flight on one communicator are kept apart by tags.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.binding.buffers import Buffers
from collplan.executors.mpi.binding.prepared import Prepared, Wish
from collplan.executors.mpi.engine.engine import Engine
from collplan.executors.mpi.engine.in_flight import Flight, board
from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.program.program import shares_memory
from collplan.executors.mpi.stall.watchdog import largest_tag
from collplan.planner.plan.plan import Plan, Stage
from collplan.planner.plan.tags import MAX_TAGS

Array = npt.NDArray[Any]

TURN_NS: Final = 2_000_000
"""Longest time for which one program's local tasks keep others in flight waiting, in ns."""
MOST_IDLE: Final = 4
"""Copies of a program that are kept for later starts."""


def n_tag_spaces(comm: MPI.Intracomm) -> int:
    """Return how many programs' messages a communicator's tags can keep apart."""
    return largest_tag(comm) // MAX_TAGS


class LocalProgram:
    """A rank's program of a plan that passes messages, and its copies in flight.

    Parameters
    ----------
    plan : Plan
        This rank's program; the same plan on all ranks.
    comm : MPI.Intracomm
        For such programs' messages alone; `ranks_per_core` was called for it before.
    head_s : float
        How long a start may take for the tasks that belong inside it, and goes on without them
        then: a start waits for nobody. 0 leaves them to the background.
    hold_s : float
        How long the tasks that belong inside a wait are held for one. Then they go on without
        it: other ranks need them. 0 leaves them to the background.

    Raises
    ------
    UnsupportedPlanError
        If ranks share memory, which they would have to make together, or this rank's tasks
        have no compiled form.
    BindError
        If this rank has no memory for it.
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
        stage = program.stage.copy()
        for name, time_ns in ((Stage.START, self.head_ns), (Stage.WAIT, self.hold_ns)):
            if not time_ns:
                stage[stage == name] = Stage.BACKGROUND
        self.program = replace(program, stage=stage)
        self.reduction = reduction
        reduction.load()
        self._idle: list[Copy] = []
        self._most_idle = MOST_IDLE

    def take(self, sent_at: int, received_at: int) -> Copy:
        """Return a copy that is not in flight, on memory as `BoundPlan.rebind_addresses` takes."""
        if not self._idle:
            return Copy(self, sent_at, received_at)
        copy = self._idle.pop()
        copy.move(sent_at, received_at)
        return copy

    def give_back(self, copy: Copy) -> None:
        """Take back a copy that is in flight no more."""
        if len(self._idle) < self._most_idle:
            self._idle.append(copy)
        else:
            copy.free()

    def close(self) -> None:
        """Free all copies, those in flight when they are given back."""
        self._most_idle = 0
        while self._idle:
            self._idle.pop().free()


class Copy:
    """A program with scratch and tags of its own.

    Parameters
    ----------
    of : LocalProgram
        What it runs.
    sent_at, received_at : int
        Memory that outlives the next start.

    Attributes
    ----------
    flight : Flight
        What the last start is to MPI.
    """

    def __init__(self, of: LocalProgram, sent_at: int, received_at: int) -> None:
        self.of, self._buffers = of, Buffers(of.plan, of.comm.rank)
        buffers = self._buffers_at(sent_at, received_at)
        self._engine = Engine(of.program, buffers, of.comm, of.reduction)
        memory = self._engine._memory
        self._tags = memory.tasks["tag"][:-1]
        self.flight = Flight(memory.address)

    def move(self, sent_at: int, received_at: int) -> None:
        """Use other memory from the next start on."""
        if not self._engine.move(sent_at, received_at):
            self._engine.rebind(self._buffers_at(sent_at, received_at))

    def start(self, tag_space: int, finish: Callable[[], None] | None = None) -> MPI.Request:
        """Start the program; return a request of MPI's.

        Parameters
        ----------
        tag_space : int
            Below `n_tag_spaces`, the same on all ranks, and of no other start in flight.
        finish : callable, optional
            Called when the program is over and before the request is complete.
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
        """Leave it to later starts, once it is in flight no more."""
        self.of.give_back(self)

    def free(self) -> None:
        """Free what MPI has of it."""
        self._engine.free()


class SharedProgram:
    """A rank's program of a plan through memory that ranks share; collective to make.

    Its starts follow each other, as the memory is that of one start: a start while another is
    in flight begins when that is over, so that no start waits. All ranks start it in the same
    order, so the oldest start in flight has begun on all ranks that have come to it.

    Parameters
    ----------
    plan : Plan
        This rank's program; the same plan on all ranks.
    comm : MPI.Intracomm
        The ranks.

    Raises
    ------
    Exception
        On all ranks, if one cannot.
    """

    def __init__(self, plan: Plan, comm: MPI.Intracomm) -> None:
        # All is the background's: nothing belongs inside the start or the wait.
        stage = np.full_like(plan.stage, Stage.BACKGROUND)
        self.bound: BoundPlan = bind(replace(plan, stage=stage), comm, progress="caller")
        self._state = 0
        self._queue: deque[tuple[Flight, int, int]] = deque()
        self._queueing = threading.Lock()
        self._is_busy = False
        self._idle: list[SharedStart] = []

    def load(self, sent_at: int, received_at: int) -> None:
        """Make the engine, with memory as `BoundPlan.rebind_addresses` takes; not collective."""
        self.bound.rebind_addresses(sent_at, received_at)
        memory = self.bound.engine_memory
        memory.set(turn_ns=TURN_NS)
        self._state = memory.address

    def take(self, sent_at: int, received_at: int) -> SharedStart:
        """Return what stands for the next start, on memory at two addresses."""
        start = self._idle.pop() if self._idle else SharedStart(self, Flight(self._state))
        start.places = sent_at, received_at
        return start

    def give_back(self, start: SharedStart) -> None:
        """Take back what stood for a start that is in flight no more."""
        if len(self._idle) < MOST_IDLE:
            self._idle.append(start)

    def begin(self, start: SharedStart) -> None:
        """Begin a start, or let it follow those before it."""
        with self._queueing:
            self._queue.append((start.flight, *start.places))
            self._begin_next()

    def end(self, finish: Callable[[], None] | None) -> None:
        """End a start, and begin the next one; in whatever thread notices that it is over."""
        try:
            if finish is not None:
                finish()
        finally:
            with self._queueing:
                self._is_busy = False
                self._begin_next()

    def _begin_next(self) -> None:
        """Begin the oldest start of the queue; those that cannot begin complete with an error."""
        while self._queue and not self._is_busy:
            flight, *places = self._queue.popleft()
            try:
                self.bound.rebind_addresses(*places)
            except MPI.Exception as error:
                flight.abandon(error.Get_error_code())
                continue
            except Exception:  # the request has the error, as no call of its own can raise it
                flight.abandon(MPI.ERR_OTHER)
                continue
            if entry("run_loop")(self._state, codes.START) > codes.PENDING:
                flight.abandon(self.bound.engine_memory.get("code"))
                continue
            self._is_busy = True
            board().add(flight)

    def close(self) -> None:
        """Do nothing: ranks free the memory together, by `free`."""

    def free(self) -> None:
        """Free the plan, of which no start is in flight; collective."""
        self.bound.free()


@dataclass(slots=True, eq=False)
class SharedStart:
    """A start of a `SharedProgram`, as `Copy` is one of a `LocalProgram`."""

    of: SharedProgram
    flight: Flight
    places: tuple[int, int] = (0, 0)

    def start(self, _tag_space: int, finish: Callable[[], None] | None = None) -> MPI.Request:
        """Start the program; return a request of MPI's. Parameters are those of `Copy.start`."""
        end = partial(self.of.end, finish)
        request = MPI.Request.fromhandle(self.flight.prepare(board().address, end))
        self.of.begin(self)
        return request

    def give_back(self) -> None:
        """Leave it to later starts, once it is in flight no more."""
        self.of.give_back(self)

    def free(self) -> None:
        """Do nothing: the program is that of all starts."""
