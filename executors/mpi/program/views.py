"""Extents as numpy views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

if TYPE_CHECKING:
    from collplan.planner.arrays import Ints
    from collplan.planner.plan.plan import Extents

View = npt.NDArray[Any]


def extent_views(
    buffers: Sequence[View], patterns: Ints, extents: Extents, task: int
) -> list[View]:
    """Return one view per non-empty extent of a task.

    A contiguous extent is a 1-D view; a strided one has shape
    ``(repeat1, repeat0, count)``, so that its elements are in C order.
    """
    views = []
    for i in range(extents.indptr[task], extents.indptr[task + 1]):
        count, offset = int(extents.count[i]), int(extents.offset[i])
        if count == 0:
            continue
        flat = buffers[extents.buffer[i]]
        stride0, repeat0, stride1, repeat1 = (int(x) for x in patterns[extents.pattern[i]])
        if repeat0 == repeat1 == 1:
            views.append(flat[offset : offset + count])
            continue
        strides = (stride1 * flat.itemsize, stride0 * flat.itemsize, flat.itemsize)
        # The program checked every extent against its buffer.
        views.append(as_strided(flat[offset:], (repeat1, repeat0, count), strides))
    return views
