"""Messages as MPI sees them: a buffer, a count and a datatype."""

from __future__ import annotations

from typing import Any, Final

import numpy.typing as npt
from mpi4py import MPI

View = npt.NDArray[Any]
Message = list[Any]

LARGEST_COUNT: Final = 2**31 - 1
"""The most elements a call of MPI takes whose counts are ints; more become a datatype."""
_BY_SIZE = {1: MPI.BYTE, 2: MPI.INT16_T, 4: MPI.INT32_T, 8: MPI.INT64_T}
"""Messages only move bytes, so an element is an integer of its size whatever its dtype."""


class MessageTypes:
    """Datatypes of messages of one element size, built once each and freed together.

    Parameters
    ----------
    itemsize : int
        Bytes an element.
    largest_count : int
        The most elements or repeats handed to MPI in one number.
    """

    def __init__(self, itemsize: int, largest_count: int = LARGEST_COUNT) -> None:
        self._owned: list[MPI.Datatype] = []
        self._strided: dict[tuple[Any, ...], MPI.Datatype] = {}
        self._itemsize = itemsize
        self.largest_count = largest_count
        self.element: MPI.Datatype
        self.reset()

    def message(self, views: list[View]) -> Message:
        """Return the buffer argument for a message of `views`, in their order.

        One contiguous view is sent as it is; anything else through a derived
        datatype, so that nothing is copied.
        """
        if not views:
            return [None, 0, self.element]
        first = views[0]
        if len(views) == 1 and first.ndim == 1 and first.size <= self.largest_count:
            return [first, first.size, self.element]
        address = _address(first)
        layout = tuple((_address(view) - address, view.shape, view.strides) for view in views)
        if layout not in self._strided:
            self._strided[layout] = self._layout(layout)
        # The datatype counts from the first element, whose own view keeps the buffer alive.
        start = first if first.ndim == 1 else first[0, 0]
        return [start, 1, self._strided[layout]]

    def reset(self) -> None:
        """Forget all datatypes but that of an element."""
        self.free()
        known = _BY_SIZE.get(self._itemsize)
        self.element = known or self._own(MPI.BYTE.Create_contiguous(self._itemsize))

    def free(self) -> None:
        """Free every datatype; requests that use them must be freed before."""
        for datatype in reversed(self._owned):
            datatype.Free()
        self._owned.clear()
        self._strided.clear()

    def _own(self, datatype: MPI.Datatype) -> MPI.Datatype:
        self._owned.append(datatype.Commit())
        return datatype

    def _layout(
        self, layout: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    ) -> MPI.Datatype:
        displs = [displ for displ, _, _ in layout]
        lengths = [shape[0] for _, shape, _ in layout if len(shape) == 1]
        if len(lengths) == len(layout) and max(lengths) <= self.largest_count:
            return self._own(self.element.Create_hindexed(lengths, displs))
        parts = [self._pattern(shape, strides) for _, shape, strides in layout]
        whole = MPI.Datatype.Create_struct([1] * len(parts), displs, parts)
        _free(parts)
        return self._own(whole)

    def _pattern(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> MPI.Datatype:
        if len(shape) == 1:
            return self._repeated(self.element, shape[0], self._itemsize)
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
        """Return `n` times a datatype, however many, `stride` bytes from one to the next."""
        most = self.largest_count
        if n <= most:
            return part.Create_hvector(n, 1, stride)
        block = part.Create_hvector(most, 1, stride)
        # Blocks of blocks, so that numbers stay small whatever n is.
        blocks = self._repeated(block, n // most, most * stride)
        rest = part.Create_hvector(n % most, 1, stride)
        whole = MPI.Datatype.Create_struct([1, 1], [0, n // most * most * stride], [blocks, rest])
        _free([block, blocks, rest])
        return whole


def _free(datatypes: list[MPI.Datatype]) -> None:
    for datatype in datatypes:
        datatype.Free()


def _address(view: View) -> int:
    return int(view.__array_interface__["data"][0])
