"""The routes that calls take: MPI's own call, a bound plan, or copies of a program."""

from __future__ import annotations

from ctypes import memmove
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.arguments import IN_PLACE_AT
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.statistics import Row
from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.executors.mpi.binding.instances import LocalProgram, SharedProgram
from collplan.tune.table import Decision

Bytes = npt.NDArray[np.uint8]

_NOWHERE: Final = -2
ALIGNMENT: Final = 64
"""Alignment in bytes of memory that plans use, enough for any element."""


@dataclass(slots=True, eq=False)
class Route:
    """Target of a call: a bound plan, a program, or mpi4py's method.

    Parameters
    ----------
    call : CollectiveCall
    row : Row
        Where calls are counted.
    bound : BoundPlan, optional
        What runs blocking calls.
    program : LocalProgram or SharedProgram, optional
        What starts non-blocking calls.
    itemsize : int
        Bytes of the plan's elements.
    sent_bytes, received_bytes : int
        What this rank's program uses of its buffers.
    skip : int
        Bytes before this rank's input where it lies in the receive buffer.
    native : callable, optional
        mpi4py's method, for calls that run natively.
    wanted : Decision, optional
        What to make a plan of after `n_left` native calls; None if this route stays.
    n_left : int
    pending : Waiting or Trial, optional
        What may change later what equal calls run.
    rivals : list of Route
        The plans of a trial under way, for native MPI's route and for each of theirs.
    place : int, optional
        The processor of the thread that advances the program.
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
    def is_passing(self) -> bool:
        """Return whether the next equal call may take another route."""
        return self.wanted is not None or bool(self.rivals)

    def takes(self, sent_at: int, received_at: int) -> bool:
        """Return whether a plan can use the memory at two addresses as it is."""
        itemsize = self.itemsize
        overlap = -self.sent_bytes < sent_at - received_at < self.received_bytes
        return not (sent_at % itemsize or received_at % itemsize or overlap)

    def use(self, sent_at: int, received_at: int) -> bool:
        """Bind the memory at two addresses; return whether a plan can use it as it is.

        `IN_PLACE_AT` stands for memory of the route's own, into which input in the receive
        buffer is copied; programs have none.
        """
        if self.bound is None:
            return sent_at >= 0 and received_at >= 0 and self.takes(sent_at, received_at)
        if sent_at == IN_PLACE_AT or received_at == IN_PLACE_AT:
            if self._stage is None:
                # It lives as long as the route.
                self._stage = aligned_memory(max(self.sent_bytes, self.received_bytes))
            stage_at = self._stage[1]
            if received_at == IN_PLACE_AT:
                received_at = stage_at
            else:
                memmove(stage_at, received_at + self.skip, self.sent_bytes)
                sent_at = stage_at
        if not self.takes(sent_at, received_at):
            return False
        if sent_at != self.sent_at or received_at != self.received_at:
            # Should that fail, the next call tries again.
            self.sent_at = self.received_at = _NOWHERE
            self.bound.rebind_addresses(sent_at, received_at)
            self.sent_at, self.received_at = sent_at, received_at
        return True

    def free(self) -> None:
        """Free the plan or the program; of a plan, collective."""
        if self.bound is not None:
            self.bound.free()
        if self.program is not None:
            self.program.close()


def aligned_memory(n_bytes: int) -> tuple[Bytes, int]:
    """Return memory that holds the bytes behind the address, aligned for any element."""
    memory = np.empty(n_bytes + ALIGNMENT, np.uint8)
    first = MPI.Get_address(memory)
    return memory, first + -first % ALIGNMENT
