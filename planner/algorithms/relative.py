"""Symbolic positions of a group, by which the rounds of all positions are stated once.

In a ring, every position sends to the next one, and the numbers of its chunks are relative to
the position, too. An algorithm that gets a `Relative` number as its positions computes only with
the first `step` positions, and yields rounds that are valid for all positions: every number at
position ``i + k * step`` is the number at position i, moved by ``k * step``. If a number depends
on the position in another way, as in a comparison with a root, `NotRelativeError` is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.arrays.motion import Motion


class NotRelativeError(Exception):
    """An algorithm depends on positions in a way that a motion does not preserve."""


class Relative:
    """A number per position: `values` of the first `step` positions, moved, plus `offset`.

    It has no size and no shape, because an algorithm that uses them expects all positions.

    Parameters
    ----------
    motion : Motion
    values : int or ndarray of int64, shape (step,)
        Numbers of the first block, less than the size of the group; one int if `step` is 1.
    offset : int or ndarray of int64, shape (step,)
        Numbers that are added after moving, the same in every block.
    """

    __slots__ = ("motion", "offset", "values")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, motion: Motion, values: Any, offset: Any = 0) -> None:
        for side in (values, offset):
            if not isinstance(side, int):
                _require_one_per_place(side, motion.step)
        self.motion = motion
        self.values = values
        self.offset = offset

    def copy(self) -> Relative:
        """Return the same numbers, as another object."""
        return Relative(self.motion, self.values, self.offset)

    def _become(self, other: Any) -> Relative:
        """Change in place, as arrays do, which other names of the same numbers see."""
        if not isinstance(other, Relative):
            raise NotRelativeError
        self.values, self.offset = other.values, other.offset
        return self

    @classmethod
    def positions(cls, motion: Motion) -> Relative:
        """Return the numbers of all positions."""
        return cls(motion, np.arange(motion.step) if motion.step > 1 else 0)

    @property
    def has_offset(self) -> bool:
        """Return whether an offset other than 0 is added after moving."""
        return bool(self.offset) if isinstance(self.offset, int) else bool(np.any(self.offset))

    def __add__(self, other: Any) -> Relative:
        return Relative(self.motion, self.values, self.offset + _fixed(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Relative:
        return Relative(self.motion, self.values, self.offset - _fixed(other))

    def __mod__(self, divisor: Any) -> Any:
        motion = self.motion
        if not isinstance(divisor, int):
            raise NotRelativeError
        if divisor == motion.size and motion.kind == "shift":
            return Relative(motion, (self.values + self.offset) % divisor)
        if divisor == motion.size and np.all(self.offset % divisor == 0):
            return Relative(motion, self.values)
        if motion.step % divisor == 0 and motion.kind == "shift":
            return (self.values + self.offset) % divisor
        raise NotRelativeError

    def __xor__(self, other: Any) -> Relative:
        motion, mask = self.motion, _fixed(other)
        if self.has_offset or np.any(mask >= motion.size):
            raise NotRelativeError
        # A shift by multiples of `step` keeps the bits below the lowest bit of `step`.
        free = motion.size if motion.kind == "xor" else _lowest_bit(motion.size | motion.step)
        if np.any(mask >= free):
            raise NotRelativeError
        return Relative(motion, self.values ^ mask)

    __rxor__ = __xor__

    def __iadd__(self, other: Any) -> Relative:
        return self._become(self + other)

    def __isub__(self, other: Any) -> Relative:
        return self._become(self - other)

    def __imod__(self, divisor: Any) -> Relative:
        return self._become(self % divisor)

    def __ixor__(self, other: Any) -> Relative:
        return self._become(self ^ other)

    def __getitem__(self, position: Any) -> Relative:
        """Return the numbers at the positions `position`."""
        motion = self.motion
        if not isinstance(position, Relative) or position.has_offset:
            raise NotRelativeError
        block, place = np.divmod(position.values, motion.step)
        values, offset = (
            side if np.ndim(side) == 0 else side[place] for side in (self.values, self.offset)
        )
        return Relative(motion, motion.move(values, block), offset)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        if function is not np.where or len(args) != 3:
            raise NotRelativeError
        condition, *sides = args
        if np.shape(condition) not in ((), (self.motion.step,)):
            raise NotRelativeError
        if not all(isinstance(side, Relative) for side in sides):
            raise NotRelativeError
        values, offset = (
            np.where(condition, *(getattr(side, name) for side in sides))
            for name in ("values", "offset")
        )
        return Relative(self.motion, values, offset)

    def _refuse(self, *_: Any) -> Any:
        raise NotRelativeError

    __pow__ = __truediv__ = __divmod__ = __abs__ = __float__ = _refuse
    __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __rmod__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __rshift__ = __lshift__ = __neg__ = __invert__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __len__ = __iter__ = __int__ = __index__ = __array__ = _refuse


def _fixed(value: Any) -> Any:
    """Return a number that is the same in every block; raise `NotRelativeError` for others."""
    if isinstance(value, Relative):
        raise NotRelativeError
    return value


def _require_one_per_place(side: Any, step: int) -> None:
    """Raise `NotRelativeError` unless an array has an integer for each position of a block."""
    array = np.asarray(side)
    if array.dtype.kind not in "iu" or array.shape not in ((), (step,)):
        raise NotRelativeError


def _lowest_bit(number: int) -> int:
    return number & -number


@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """A column of numbers, each fixed or relative, with a row per step and position of a block.

    Parameters
    ----------
    values, offset : ndarray of int64, shape (n_rows,)
        As in `Relative`; the offset of a fixed number is 0.
    is_relative : ndarray of bool, shape (n_rows,)
        Whether the number is relative.
    """

    values: Ints
    offset: Ints
    is_relative: Ints

    def at(self, motion: Motion, rows: Ints, blocks: Ints) -> Ints:
        """Return the numbers of rows `rows` in the respective `blocks`."""
        values = self.values[rows]
        moved = motion.move(values, blocks)
        return np.where(self.is_relative[rows], moved, values) + self.offset[rows]
