"""Reduction operations: MPI's own by name, and the user's by registration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.specs.errors import CollplanError

Array = npt.NDArray[Any]
Combine = Callable[[Array, Array, Array], object]


class UnknownOperationError(CollplanError):
    """An operation that is neither MPI's nor registered."""


@dataclass(frozen=True, slots=True)
class ReductionOperation:
    """An associative operation on arrays, elementwise.

    Parameters
    ----------
    name : str
        Its name in specs.
    commutative : bool
        Whether operands may be exchanged; if not, plans keep rank order.
    combine : callable
        ``combine(left, right, out)`` writes ``left op right``; `out` may be
        `left` or `right` itself.
    """

    name: str
    commutative: bool
    combine: Combine

    def apply(self, left: Array, right: Array, out: Array) -> None:
        """Write ``left op right`` into `out`."""
        self.combine(left, right, out)


def _logical(ufunc: np.ufunc) -> Combine:
    def combine(left: Array, right: Array, out: Array) -> None:
        np.copyto(out, ufunc(left, right).astype(out.dtype))

    return combine


def _elementwise(ufunc: np.ufunc) -> Combine:
    def combine(left: Array, right: Array, out: Array) -> None:
        ufunc(left, right, out=out)

    return combine


def _locating(extreme: np.ufunc) -> Combine:
    def combine(left: Array, right: Array, out: Array) -> None:
        value = extreme(left["value"], right["value"])
        # As with min and max, a NaN on either side is the result, in whatever order they meet.
        in_left, in_right = ((x == value) | (x != x) for x in (left["value"], right["value"]))
        index = np.where(in_left, left["index"], right["index"])
        lower = np.minimum(left["index"], right["index"])
        out["index"] = np.where(in_left & in_right, lower, index)
        out["value"] = value

    return combine


_OPERATIONS = {
    name: ReductionOperation(name, True, combine)
    for name, combine in (
        ("sum", _elementwise(np.add)),
        ("prod", _elementwise(np.multiply)),
        ("max", _elementwise(np.maximum)),
        ("min", _elementwise(np.minimum)),
        ("land", _logical(np.logical_and)),
        ("lor", _logical(np.logical_or)),
        ("lxor", _logical(np.logical_xor)),
        ("band", _elementwise(np.bitwise_and)),
        ("bor", _elementwise(np.bitwise_or)),
        ("bxor", _elementwise(np.bitwise_xor)),
        ("minloc", _locating(np.minimum)),
        ("maxloc", _locating(np.maximum)),
    )
}
BUILTIN_OPERATIONS = tuple(_OPERATIONS)
"""Names of MPI's own operations."""


def get_operation(name: str) -> ReductionOperation:
    """Return the operation called `name`.

    Raises
    ------
    UnknownOperationError
        Naming the operations there are.

    Examples
    --------
    >>> get_operation("max").commutative
    True
    """
    if name not in _OPERATIONS:
        raise UnknownOperationError(
            f"operation {name!r} is not registered; use one of {', '.join(_OPERATIONS)} "
            "or collplan.planner.collective.operations.register_operation"
        )
    return _OPERATIONS[name]


def register_operation(name: str, combine: Combine, *, commutative: bool) -> ReductionOperation:
    """Register an associative operation under a new name and return it.

    Parameters
    ----------
    name : str
        A name no operation of MPI has; registering it again replaces it.
    combine : callable
        ``combine(left, right, out)`` on arrays of equal shape.
    commutative : bool
        Whether plans may exchange its operands.

    Raises
    ------
    UnknownOperationError
        If `name` is one of MPI's own.
    """
    if name in BUILTIN_OPERATIONS:
        raise UnknownOperationError(f"operation {name!r} is MPI's own; choose another name")
    _OPERATIONS[name] = ReductionOperation(name, commutative, combine)
    return _OPERATIONS[name]
