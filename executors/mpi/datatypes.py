"""Messages as MPI sees them: a buffer, a count and a datatype."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from mpi4py import MPI

View = npt.NDArray[Any]
Message = list[Any]

_BY_SIZE = {1: MPI.BYTE, 2: MPI.INT16_T, 4: MPI.INT32_T, 8: MPI.INT64_T}
"""Messages only move bytes, so an element is an integer of its size whatever its dtype."""


class MessageTypes:
    """Datatypes of messages of one element size, built once each and freed together.

    Parameters
    ----------
    itemsize : int
        Bytes an element.
    """

    def __init__(self, itemsize: int) -> None:
        self._owned: list[MPI.Datatype] = []
        self._strided: dict[tuple[Any, ...], MPI.Datatype] = {}
        self._element = _BY_SIZE.get(itemsize) or self._own(MPI.BYTE.Create_contiguous(itemsize))

    def message(self, views: list[View]) -> Message:
        """Return the buffer argument for a message of `views`, in their order.

        One contiguous view is sent as it is; anything else through a derived
        datatype, so that nothing is copied.
        """
        if not views:
            return [None, 0, self._element]
        first = views[0]
        if len(views) == 1 and first.ndim == 1:
            return [first, first.size, self._element]
        address = _address(first)
        layout = tuple((_address(view) - address, view.shape, view.strides) for view in views)
        if layout not in self._strided:
            self._strided[layout] = self._layout(layout)
        # The datatype counts from the first element, whose own view keeps the buffer alive.
        start = first if first.ndim == 1 else first[0, 0]
        return [start, 1, self._strided[layout]]

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
        if all(len(shape) == 1 for _, shape, _ in layout):
            blocklengths = [shape[0] for _, shape, _ in layout]
            return self._own(self._element.Create_hindexed(blocklengths, displs))
        parts = [self._pattern(shape, strides) for _, shape, strides in layout]
        whole = MPI.Datatype.Create_struct([1] * len(parts), displs, parts)
        for part in parts:
            part.Free()
        return self._own(whole)

    def _pattern(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> MPI.Datatype:
        if len(shape) == 1:
            return self._element.Create_contiguous(shape[0])
        inner = self._element.Create_hvector(shape[1], shape[2], strides[1])
        outer = inner.Create_hvector(shape[0], 1, strides[0])
        inner.Free()
        return outer


def _address(view: View) -> int:
    return int(view.__array_interface__["data"][0])
