"""Messages of a program as rows of the task table: place, count and datatype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.program.datatypes import LARGEST_COUNT, MessageTypes
from collplan.executors.mpi.program.views import extent_views
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collplan.executors.mpi.program.program import Program
    from collplan.planner.arrays import Ints
    from collplan.planner.plan.plan import Extents

Array = npt.NDArray[Any]
Table = npt.NDArray[Any]
Index = npt.NDArray[np.int64]

ABSOLUTE: Final = 4
"""The buffer number of a message that spans buffers: its offset is an address."""


def handle_of(handle: MPI.Comm | MPI.Datatype) -> int:
    """Return a handle as a sign-extended integer of 64 bits."""
    value: int = MPI._handleof(handle)
    return value - 2**64 if value >= 2**63 else value


class Messages:
    """The messages of a program, and which of them depend on where buffers lie.

    Parameters
    ----------
    program : Program
        The rank's tasks.
    patterns : ndarray of int64, shape (n_patterns, 4)
        The plan's.
    itemsize : int
        Bytes an element.
    largest_count : int
        The most elements handed to MPI in one number.
    """

    def __init__(
        self,
        program: Program,
        patterns: Ints,
        itemsize: int,
        largest_count: int = LARGEST_COUNT,
    ) -> None:
        self._program, self._patterns = program, patterns
        self._types, self._spanning_types = (
            MessageTypes(itemsize, largest_count) for _ in range(2)
        )
        self._spanning: list[int] = []

    @property
    def any_spans(self) -> bool:
        """Return whether a message spans buffers, and has to be made anew for others."""
        return bool(self._spanning)

    def describe(self, rows: Table, buffers: Sequence[Array]) -> None:
        """Fill in buffer, offset, count and datatype of all messages."""
        program = self._program
        rows["peer"][:-1], rows["tag"][:-1] = program.peer, program.tag
        for op, extents in ((Op.SEND, program.reads), (Op.RECV, program.writes)):
            tasks = np.flatnonzero(program.op == op)
            is_plain = self._describe_plain(rows, tasks, extents, buffers[0].itemsize)
            for task in tasks[~is_plain]:
                self._describe_one(rows, int(task), extents, buffers)

    def redescribe(self, rows: Table, buffers: Sequence[Array]) -> None:
        """Make those messages anew that span buffers, for buffers that lie elsewhere."""
        spanning, self._spanning = self._spanning, []
        self._spanning_types.reset()
        for task in spanning:
            is_send = self._program.op[task] == Op.SEND
            extents = self._program.reads if is_send else self._program.writes
            self._describe_one(rows, task, extents, buffers)

    def free(self) -> None:
        """Free all datatypes."""
        self._spanning_types.free()
        self._types.free()

    def _describe_plain(
        self, rows: Table, tasks: Index, extents: Extents, itemsize: int
    ) -> npt.NDArray[np.bool_]:
        """Fill in messages of one contiguous extent; return which tasks those are."""
        first = extents.indptr[tasks].astype(np.int64)
        n_extents = extents.indptr[tasks + 1] - first
        first = np.minimum(first, max(len(extents) - 1, 0))
        if len(extents) == 0:
            return np.zeros(len(tasks), dtype=np.bool_)
        repeats = self._patterns[extents.pattern[first]][:, (1, 3)]
        is_plain = (n_extents == 1) & (repeats == 1).all(axis=1)
        is_plain &= extents.count[first] <= self._types.largest_count
        plain, first = tasks[is_plain], first[is_plain]
        rows["buffer"][plain] = extents.buffer[first]
        rows["offset"][plain] = extents.offset[first] * itemsize
        rows["count"][plain] = extents.count[first]
        rows["datatype"][plain] = handle_of(self._types.element)
        return np.asarray(is_plain)

    def _describe_one(
        self, rows: Table, task: int, extents: Extents, buffers: Sequence[Array]
    ) -> None:
        views = extent_views(buffers, self._patterns, extents, task)
        first, last = extents.indptr[task], extents.indptr[task + 1]
        counted = extents.count[first:last] > 0
        used = extents.buffer[first:last][counted]
        spans = bool((used != used[:1]).any())
        types = self._spanning_types if spans else self._types
        _, count, datatype = types.message(views)
        rows["count"][task], rows["datatype"][task] = count, handle_of(datatype)
        if spans:
            rows["buffer"][task] = ABSOLUTE
            rows["offset"][task] = views[0].__array_interface__["data"][0]
            self._spanning.append(task)
        elif views:
            rows["buffer"][task] = used[0]
            rows["offset"][task] = extents.offset[first:last][counted][0] * buffers[0].itemsize
