"""Reduction operations: those of MPI, and those that users register."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.specs.errors import CollplanError, show_value
from collplan.specs.syntax.calling import explains_calls

Array = npt.NDArray[Any]
Combine = Callable[[Array, Array, Array], object]


class UnknownOperationError(CollplanError):
    """Error for the name of an operation that is unknown or that cannot be registered."""


@dataclass(frozen=True, slots=True)
class ReductionOperation:
    """An associative elementwise operation on arrays.

    Parameters
    ----------
    name : str
        Name of the operation in specs.
    commutative : bool
        Whether operands may be exchanged. If not, plans combine operands in rank order.
    combine : callable
        Function ``combine(left, right, out)`` that writes ``left op right`` into `out`, which may
        be `left` or `right` itself.
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
        # As for min and max, the result is NaN if either operand is NaN, in any order.
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
"""Names of the operations of MPI."""


def get_operation(name: str) -> ReductionOperation:
    """Return the operation with the given name.

    Raises
    ------
    UnknownOperationError
        If there is no such operation. The message names the existing ones.

    Examples
    --------
    >>> get_operation("max").commutative
    True
    """
    if name not in _OPERATIONS:
        raise UnknownOperationError(
            f"operation {show_value(name)} is not registered; use one of {', '.join(_OPERATIONS)} "
            "or collplan.planner.collective.operations.register_operation"
        )
    return _OPERATIONS[name]


@explains_calls("register_operation")
def register_operation(name: str, combine: Combine, *, commutative: bool) -> ReductionOperation:
    """Register an associative operation and return it.

    Parameters
    ----------
    name : str
        Name that no operation of MPI has. An operation that was registered under this name
        before is replaced.
    combine : callable
        Function ``combine(left, right, out)`` on arrays of equal shape, as for
        `ReductionOperation`.
    commutative : bool
        Whether plans may exchange the operands.

    Raises
    ------
    UnknownOperationError
        If `name` is the name of an operation of MPI.
    """
    if name in BUILTIN_OPERATIONS:
        raise UnknownOperationError(
            f"operation {show_value(name)} is MPI's own; choose another name"
        )
    _OPERATIONS[name] = ReductionOperation(name, commutative, combine)
    return _OPERATIONS[name]
