"""The routes that calls take: MPI's own call, a bound plan, or copies of a program."""

from __future__ import annotations

from ctypes import memmove
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.call_keys import IN_PLACE_AT
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.statistics import Row
from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.executors.mpi.binding.instances import LocalProgram

Array = npt.NDArray[Any]

_NOWHERE: Final = -2
ALIGNMENT: Final = 64
"""Alignment in bytes of memory that plans use, enough for any element."""


class Route:
    """What is known of a request: native, or a plan that is bound.

    Parameters
    ----------
    row : Row
        Where calls are counted.
    bound : BoundPlan, optional
        None for native.
    itemsize : int
        Bytes of the plan's elements.
    sent_bytes, received_bytes : int
        What this rank's program uses of its buffers.
    skip : int
        Bytes before this rank's input where it lies in the receive buffer.
    """

    __slots__ = (
        "_stage", "_stage_at", "bound", "is_native", "is_settled", "itemsize", "keys", "number",
        "received_at", "received_bytes", "request", "row", "sent_at", "sent_bytes", "skip",
    )  # fmt: skip

    def __init__(
        self,
        request: CollectiveCall,
        row: Row,
        bound: BoundPlan | None = None,
        itemsize: int = 1,
        sent_bytes: int = 0,
        received_bytes: int = 0,
        skip: int = 0,
    ) -> None:
        self.request, self.row, self.bound = request, row, bound
        self.is_native = bound is None
        self.is_settled = True
        """Whether all equal requests will run the same, as long as it is kept."""
        self.itemsize, self.skip = itemsize, skip
        self.sent_bytes, self.received_bytes = sent_bytes, received_bytes
        self.sent_at = self.received_at = _NOWHERE
        self.number = -1
        self.keys: set[tuple[Any, ...]] = set()
        self._stage: Array | None = None
        self._stage_at = 0

    def use(self, sent_at: int, received_at: int) -> bool:
        """Bind the memory at two addresses; return whether a plan can use it as it is.

        `IN_PLACE_AT` stands for memory of the entry's own, into which input in the receive
        buffer is copied.
        """
        if sent_at == IN_PLACE_AT or received_at == IN_PLACE_AT:
            stage_at = self._stage_at or self._make_stage()
            if received_at == IN_PLACE_AT:
                received_at = stage_at
            else:
                memmove(stage_at, received_at + self.skip, self.sent_bytes)
                sent_at = stage_at
        elif -self.sent_bytes < sent_at - received_at < self.received_bytes:
            return False  # they overlap
        itemsize = self.itemsize
        if sent_at % itemsize or received_at % itemsize:
            return False
        if sent_at != self.sent_at or received_at != self.received_at:
            # Should that fail, the next call tries again.
            self.sent_at = self.received_at = _NOWHERE
            self.bound.rebind_addresses(sent_at, received_at)  # type: ignore[union-attr]
            self.sent_at, self.received_at = sent_at, received_at
        return True

    def _make_stage(self) -> int:
        """Return where memory is that lives as long as the entry, aligned for any element."""
        n_bytes = max(self.sent_bytes, self.received_bytes)
        self._stage = np.empty(n_bytes + ALIGNMENT, np.uint8)
        first = MPI.Get_address(self._stage)
        self._stage_at = first + -first % ALIGNMENT
        return self._stage_at


@dataclass(slots=True, eq=False)
class ProgramRoute:
    """How a request runs: natively, or by copies of a program.

    Parameters
    ----------
    row : Row
        Where calls are counted.
    request : CollectiveCall
    program : LocalProgram or None
        None for native.
    itemsize, sent_bytes, received_bytes : int
        Of the program's elements, and what it uses of this rank's buffers.
    is_settled : bool
        Whether all equal requests run so, as long as it is kept.
    """

    row: Row
    request: CollectiveCall
    program: LocalProgram | None = None
    itemsize: int = 1
    sent_bytes: int = 0
    received_bytes: int = 0
    is_settled: bool = True
