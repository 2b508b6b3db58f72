"""Routes of calls: mpi4py's method, a bound plan, or a program that calls start."""

from __future__ import annotations

from ctypes import memmove
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.arguments import IN_PLACE_AT, is_rejection
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.statistics import Row
from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.executors.mpi.binding.instances import LocalProgram, SharedProgram
from collplan.tune.table import Decision

Bytes = npt.NDArray[np.uint8]

_NOWHERE: Final = -2
_ALIGNMENT: Final = 64
"""Alignment in bytes of memory for plans, which is sufficient for elements of any type."""


@dataclass(slots=True, eq=False)
class Route:
    """Route of equal calls, which run by a bound plan, a program, or mpi4py's method.

    Parameters
    ----------
    call : CollectiveCall
        Signature of the calls.
    row : Row
        Row of the statistics in which calls are counted.
    bound : BoundPlan, optional
        Plan that runs blocking calls.
    program : LocalProgram or SharedProgram, optional
        Program that non-blocking calls start.
    itemsize : int
        Size of the plan's elements in bytes.
    sent_bytes, received_bytes : int
        Sizes of the send and receive buffers of this rank's program in bytes.
    skip : int
        Offset of this rank's input in the receive buffer in bytes, for MPI_IN_PLACE.
    native : callable, optional
        mpi4py's method, for calls that run natively.
    wanted : Decision, optional
        Decision for which a plan is made after `n_left` further native calls; None if no plan
        will be made.
    n_left : int
        Number of native calls until the plan is made.
    pending : Waiting or TriedRoutes, optional
        Current or future trial that may replace this route.
    rivals : list of Route
        Routes of all plans of the current trial; empty if this route takes part in no trial.
    place : int, optional
        Processor of the thread that advances the program.

    Attributes
    ----------
    sent_at, received_at : int
        Addresses of the buffers to which the plan is bound.
    number : int
        Unique number of the route.
    keys : set
        Keys under which `PlanCache.ready` stores this route.
    """

    call: CollectiveCall
    row: Row
    bound: BoundPlan | None = None
    program: LocalProgram | SharedProgram | None = None
    itemsize: int = 1
    sent_bytes: int = 0
    received_bytes: int = 0
    skip: int = 0
    native: Any = None
    wanted: Decision | None = None
    n_left: int = 0
    pending: Any = None
    rivals: list[Route] = field(default_factory=list)
    place: int | None = None
    sent_at: int = field(default=_NOWHERE, init=False)
    received_at: int = field(default=_NOWHERE, init=False)
    number: int = field(default_factory=count().__next__, init=False)
    keys: set[Any] = field(default_factory=set, init=False)
    _stage: tuple[Bytes, int] | None = field(default=None, init=False)

    @property
    def is_temporary(self) -> bool:
        """True if the next equal call may take another route."""
        return self.wanted is not None or bool(self.rivals)

    def takes(self, sent_at: int, received_at: int) -> bool:
        """Return whether a plan can use buffers at two addresses directly.

        The addresses must be aligned to the size of elements, and the buffers must not overlap.
        """
        itemsize = self.itemsize
        overlap = -self.sent_bytes < sent_at - received_at < self.received_bytes
        return not (sent_at % itemsize or received_at % itemsize or overlap)

    def use(self, sent_at: int, received_at: int) -> bool:
        """Bind the plan to buffers at two addresses; return whether it can use them directly.

        For an address `IN_PLACE_AT`, the plan uses memory of the route instead. If the input is
        in the receive buffer, it is copied to this memory. Programs have no such memory.
        """
        if self.bound is None:
            return sent_at >= 0 and received_at >= 0 and self.takes(sent_at, received_at)
        if sent_at == IN_PLACE_AT or received_at == IN_PLACE_AT:
            if self._stage is None:
                # The route keeps this memory, as the plan stays bound to it.
                self._stage = _aligned_memory(max(self.sent_bytes, self.received_bytes))
            stage_at = self._stage[1]
            if received_at == IN_PLACE_AT:
                received_at = stage_at
            else:
                memmove(stage_at, received_at + self.skip, self.sent_bytes)
                sent_at = stage_at
        if not self.takes(sent_at, received_at):
            return False
        if sent_at != self.sent_at or received_at != self.received_at:
            # If binding fails, the next call binds again.
            self.sent_at = self.received_at = _NOWHERE
            self.bound.rebind_addresses(sent_at, received_at)
            self.sent_at, self.received_at = sent_at, received_at
        return True

    def take_back(self, error: Exception) -> None:
        """Forget a native call that ended in an error, if other ranks still wait for the call."""
        if not is_rejection(error):
            return
        if self.wanted is not None:
            self.n_left += 1
        elif self.rivals:
            self.pending.repeat()

    def free(self) -> None:
        """Free the plan or the program; collective for a bound plan."""
        if self.bound is not None:
            self.bound.free()
        if self.program is not None:
            self.program.close()


def _aligned_memory(n_bytes: int) -> tuple[Bytes, int]:
    """Return memory, and an aligned address in it, followed by at least `n_bytes` bytes."""
    memory = np.empty(n_bytes + _ALIGNMENT, np.uint8)
    first = MPI.Get_address(memory)
    return memory, first + -first % _ALIGNMENT


def buffer_memory(sent_bytes: int, received_bytes: int) -> tuple[Bytes, int, int]:
    """Return memory for a send and a receive buffer, and the aligned addresses of both."""
    memory, sent_at = _aligned_memory(sent_bytes + received_bytes + _ALIGNMENT)
    return memory, sent_at, sent_at + sent_bytes + -sent_bytes % _ALIGNMENT
