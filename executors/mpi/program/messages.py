"""Messages of a program as rows of the task table: buffer, offset, count and MPI datatype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.program.program import Program
from collplan.planner.arrays import Array, Bools, Longs
from collplan.planner.plan.plan import Op
from collplan.planner.plan.ragged import Extents

Shape = tuple[int, int, int]
"""Outer repeats, inner repeats and contiguous elements of an extent."""
Layout = tuple[tuple[int, Shape, tuple[int, int]], ...]
"""Displacement, shape, and outer and inner stride of each extent of a message, in bytes."""

LARGEST_COUNT: Final = 2**31 - 1
"""Largest count of MPI functions with int counts. Larger messages use a derived datatype."""
_BY_SIZE = {1: MPI.BYTE, 2: MPI.INT16_T, 4: MPI.INT32_T, 8: MPI.INT64_T}
"""MPI datatypes by size in bytes. Messages only move bytes, so the dtype does not matter."""
ABSOLUTE: Final = 4
"""Buffer number of a message that spans several buffers. Its offset is an absolute address."""
HANDLE_BYTES: Final = MPI._sizeof(MPI.Request)
"""Size of a handle in bytes: an int in MPICH, a pointer in Open MPI and MPI's standard ABI."""
STATUS_BYTES: Final = MPI._sizeof(MPI.Status)


class MessageTypes:
    """Datatypes of messages with one element size, each of which is created once.

    Parameters
    ----------
    itemsize : int
        Bytes per element.
    largest_count : int
        Largest number of elements or repeats that is passed to MPI as one count.

    Attributes
    ----------
    element : MPI.Datatype
        Datatype of an element.
    """

    def __init__(self, itemsize: int, largest_count: int = LARGEST_COUNT) -> None:
        self._owned: list[MPI.Datatype] = []
        self._strided: dict[Layout, MPI.Datatype] = {}
        self._itemsize = itemsize
        self.largest_count = largest_count
        self.element: MPI.Datatype
        self.reset()

    def describe(self, layout: Layout) -> tuple[int, MPI.Datatype]:
        """Return the count and the datatype of a message, from the address of its first extent.

        A single contiguous extent is sent as a number of elements. Any other message is one element
        of a derived datatype, so that no data is copied.
        """
        if not layout:
            return 0, self.element
        (_, shape, _), *more = layout
        if not more and _is_contiguous(shape) and shape[2] <= self.largest_count:
            return shape[2], self.element
        if layout not in self._strided:
            self._strided[layout] = self._make(layout)
        return 1, self._strided[layout]

    def reset(self) -> None:
        """Free all datatypes except that of an element."""
        self.free()
        known = _BY_SIZE.get(self._itemsize)
        self.element = known or self._own(MPI.BYTE.Create_contiguous(self._itemsize))

    def free(self) -> None:
        """Free all datatypes. Requests that use them must have been freed."""
        for datatype in reversed(self._owned):
            datatype.Free()
        self._owned.clear()
        self._strided.clear()

    def _own(self, datatype: MPI.Datatype) -> MPI.Datatype:
        self._owned.append(datatype.Commit())
        return datatype

    def _make(self, layout: Layout) -> MPI.Datatype:
        displs = [displ for displ, _, _ in layout]
        lengths = [shape[2] for _, shape, _ in layout if _is_contiguous(shape)]
        if len(lengths) == len(layout) and max(lengths) <= self.largest_count:
            return self._own(self.element.Create_hindexed(lengths, displs))
        parts = [self._pattern(shape, strides) for _, shape, strides in layout]
        whole = MPI.Datatype.Create_struct([1] * len(parts), displs, parts)
        _free(parts)
        return self._own(whole)

    def _pattern(self, shape: Shape, strides: tuple[int, int]) -> MPI.Datatype:
        if max(shape) <= self.largest_count:
            inner = self.element.Create_hvector(shape[1], shape[2], strides[1])
            outer = inner.Create_hvector(shape[0], 1, strides[0])
            inner.Free()
            return outer
        run = self._repeated(self.element, shape[2], self._itemsize)
        inner = self._repeated(run, shape[1], strides[1])
        outer = self._repeated(inner, shape[0], strides[0])
        _free([run, inner])
        return outer

    def _repeated(self, part: MPI.Datatype, n: int, stride: int) -> MPI.Datatype:
        """Return a datatype of `n` times `part` at distances of `stride` bytes, for any `n`."""
        most = self.largest_count
        if n <= most:
            return part.Create_hvector(n, 1, stride)
        block = part.Create_hvector(most, 1, stride)
        # Nested blocks keep all counts within the limit for any n.
        blocks = self._repeated(block, n // most, most * stride)
        rest = part.Create_hvector(n % most, 1, stride)
        whole = MPI.Datatype.Create_struct([1, 1], [0, n // most * most * stride], [blocks, rest])
        _free([block, blocks, rest])
        return whole


def _free(datatypes: list[MPI.Datatype]) -> None:
    for datatype in datatypes:
        datatype.Free()


def _is_contiguous(shape: Shape) -> bool:
    return shape[:2] == (1, 1)


def handle_of(handle: MPI.Comm | MPI.Datatype | MPI.Op) -> int:
    """Return a handle as a sign-extended 64-bit integer."""
    value: int = MPI._handleof(handle)
    return value - 2**64 if value >= 2**63 else value


class Messages:
    """Messages of a program, some of which may depend on the addresses of buffers.

    Parameters
    ----------
    program : Program
        Tasks of the rank.
    largest_count : int
        Largest number of elements that is passed to MPI as one count.
    """

    def __init__(self, program: Program, largest_count: int = LARGEST_COUNT) -> None:
        self._program, itemsize = program, program.itemsize
        self._types = MessageTypes(itemsize, largest_count)
        self._spanning_types = MessageTypes(itemsize, largest_count)
        self._spanning: list[int] = []

    def describe(self, rows: Array, buffers: Sequence[Array]) -> None:
        """Fill in peer, tag, buffer, offset, count and datatype of all messages.

        Parameters
        ----------
        rows : ndarray of TASK, shape (n_tasks + 1,)
            Task table of the loop, which is modified.
        buffers : sequence of ndarray
            Send, receive, scratch and shared buffer.
        """
        program = self._program
        rows["peer"][:-1], rows["tag"][:-1] = program.peer, program.tag
        for op, extents in ((Op.SEND, program.reads), (Op.RECV, program.writes)):
            tasks = np.flatnonzero(program.op == op)
            is_plain = self._describe_plain(rows, tasks, extents)
            for task in tasks[~is_plain]:
                self._describe_one(rows, int(task), extents, buffers)

    def redescribe(self, rows: Array, buffers: Sequence[Array]) -> None:
        """Update the messages that span several buffers, for buffers at other addresses."""
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

    def _describe_plain(self, rows: Array, tasks: Longs, extents: Extents) -> Bools:
        """Fill in the messages with one contiguous extent; return a mask of them among `tasks`."""
        first = extents.indptr[tasks].astype(np.int64)
        n_extents = extents.indptr[tasks + 1] - first
        first = np.minimum(first, max(len(extents) - 1, 0))
        if len(extents) == 0:
            return np.zeros(len(tasks), dtype=np.bool_)
        repeats = self._program.patterns[extents.pattern[first]][:, (1, 3)]
        is_plain = (n_extents == 1) & (repeats == 1).all(axis=1)
        is_plain &= extents.count[first] <= self._types.largest_count
        plain, first = tasks[is_plain], first[is_plain]
        rows["buffer"][plain] = extents.buffer[first]
        rows["offset"][plain] = extents.offset[first] * self._program.itemsize
        rows["count"][plain] = extents.count[first]
        rows["datatype"][plain] = handle_of(self._types.element)
        return np.asarray(is_plain)

    def _describe_one(
        self, rows: Array, task: int, extents: Extents, buffers: Sequence[Array]
    ) -> None:
        entries = range(extents.indptr[task], extents.indptr[task + 1])
        filled = [i for i in entries if extents.count[i] > 0]
        spans = len({int(extents.buffer[i]) for i in filled}) > 1
        itemsize = self._program.itemsize
        places, forms = [], []
        for i in filled:
            stride0, repeat0, stride1, repeat1 = (
                int(x) for x in self._program.patterns[extents.pattern[i]]
            )
            base = buffers[extents.buffer[i]].ctypes.data if spans else 0
            places.append(base + int(extents.offset[i]) * itemsize)
            shape = repeat1, repeat0, int(extents.count[i])
            forms.append((shape, (stride1 * itemsize, stride0 * itemsize)))
        # Displacements of the datatype are relative to the first element.
        layout = tuple(
            (place - places[0], *form) for place, form in zip(places, forms, strict=True)
        )
        types = self._spanning_types if spans else self._types
        count, datatype = types.describe(layout)
        rows["count"][task], rows["datatype"][task] = count, handle_of(datatype)
        if filled:
            rows["buffer"][task] = ABSOLUTE if spans else extents.buffer[filled[0]]
            rows["offset"][task] = places[0]
        if spans:
            self._spanning.append(task)
