"""Ragged columns of a plan in CSR form: reads, writes and dependencies of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints, csr

ON_START: Final = 1
"""Dependency flag: wait for the predecessor's start, not its completion."""
INTENT: Final = 2
"""Dependency flag: scheduling intent stated by an algorithm or pass, not a derived hazard."""

Int8s = Annotated[Ints, np.int8]
Int16s = Annotated[Ints, np.int16]
Int32s = Annotated[Ints, np.int32]
Int64s = Annotated[Ints, np.int64]
"""Columns, with the types in which a plan stores them."""


def blocks_of(offset: int, count: int, pattern: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first element of every contiguous block of an extent, and the one past its last.

    Examples
    --------
    >>> list(blocks_of(3, 2, (10, 2, 0, 1)))
    [(3, 5), (13, 15)]
    """
    stride, repeat, stride2, repeat2 = pattern
    for outer in range(repeat2):
        for inner in range(repeat):
            low = offset + outer * stride2 + inner * stride
            yield low, low + count


class Stored:
    """Columns of numbers that a plan keeps and writes to files."""

    __slots__ = ()
    TYPES: ClassVar[dict[str, np.dtype[Any]]]
    """Types of the columns, by name."""

    def __init_subclass__(cls) -> None:
        cls.TYPES = {
            name: np.dtype(hint.__metadata__[0])
            for name, hint in get_type_hints(cls, include_extras=True).items()
            if get_origin(hint) is Annotated
        }


@dataclass(frozen=True, eq=False, slots=True)
class Ragged(Stored):
    """Entries of tasks in CSR: task i owns rows ``indptr[i]:indptr[i+1]``, in order."""

    indptr: Int32s

    def __len__(self) -> int:
        return len(getattr(self, tuple(self.TYPES)[1]))

    def owner(self) -> Ints:
        """Return the task of each entry."""
        return csr.row_numbers(self.indptr)


@dataclass(frozen=True, eq=False, slots=True)
class Extents(Ragged):
    """Intervals of buffers that tasks read or write, in CSR.

    Task i owns rows ``indptr[i]:indptr[i+1]``. Its elements are the concatenation of these rows.
    An extent has `count` contiguous elements from `offset`, repeated according to its row of the
    plan's pattern table (``stride, repeat, stride, repeat``, inner pair first, in elements). So a
    strided message is one task. Pattern 0 does not repeat.

    A REDUCE reads the extents of its left operand and then those of its right operand, each with
    as many elements as it writes.
    """

    buffer: Int8s
    offset: Int64s
    count: Int64s
    pattern: Int32s

    def elements(self, patterns: Ints) -> npt.NDArray[np.int64]:
        """Return the elements of every extent, repeats included."""
        repeats = patterns[:, 1] * patterns[:, 3]
        return np.asarray(self.count * repeats[self.pattern], dtype=np.int64)

    def take(self, rows: Ints) -> Extents:
        """Return the extents of some tasks, in the given order."""
        indptr, entries = csr.take_rows(self.indptr, rows)
        columns = (self.buffer, self.offset, self.count, self.pattern)
        return Extents(indptr, *(column[entries] for column in columns))


@dataclass(frozen=True, eq=False, slots=True)
class Dependencies(Ragged):
    """Dependencies in CSR form: entries ``indptr[i]:indptr[i+1]`` belong to task i.

    `task` is the row of the predecessor. `kind` is 0 for a derived hazard on its completion, or
    contains the flags `ON_START` and `INTENT`.
    """

    task: Int32s
    kind: Int8s

    def for_kernels(self) -> tuple[Ints, Ints, Ints]:
        """Return the columns for compiled kernels."""
        indptr, task, kind = map(np.ascontiguousarray, (self.indptr, self.task, self.kind))
        return indptr, task, kind


@dataclass(frozen=True, eq=False, slots=True)
class CrossRankWaits(Ragged):
    """Tasks of other ranks of the node that one rank's program waits for, in CSR.

    Rows ``indptr[i]:indptr[i+1]`` belong to task i of the program, and wait for completion. A plan
    of all ranks has these edges in `deps`.

    Parameters
    ----------
    indptr : ndarray of int32, shape (n_tasks + 1,)
    rank : ndarray of int32, shape (n_edges,)
        The rank of the awaited task.
    task : ndarray of int32, shape (n_edges,)
        Its row in that rank's own program.
    flag : ndarray of int32, shape (n_edges,)
        Its number among the awaited tasks of that rank.
    awaited : ndarray of int32, shape (n_awaited,)
        Rows of this program that other ranks of the node wait for, ascending. Entry k has flag k.
    """

    rank: Int32s
    task: Int32s
    flag: Int32s
    awaited: Int32s

    @classmethod
    def none(cls, n_tasks: int) -> CrossRankWaits:
        """Return the waits of a program that does not wait for other ranks."""
        nothing, start = np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int32)
        return cls(csr.repeated(start, n_tasks + 1), nothing, nothing, nothing, nothing)
