"""Machine code of reductions, compiled on first use and loaded once per process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.executors.mpi.loop.entries import address_of_code, entry, kept_code
from collplan.planner.collective.operations import BUILTIN_OPERATIONS, get_operation
from collplan.specs.collectives.predefined import ARITHMETIC, BITWISE, LOCATING, LOGICAL

Predefined = tuple[str, np.dtype[Any]]

COMPILED: Final = {
    **dict.fromkeys("iub", frozenset(ARITHMETIC + LOGICAL + BITWISE)),
    **dict.fromkeys("fc", frozenset(ARITHMETIC + LOGICAL)),
}
"""Operations that have machine code, by the kind of numpy dtype."""
SIGNATURE: Final = f"int32({', '.join(['int64'] * 8)})"
"""Numba signature of reductions, see `reduction_address`."""
_SIGN_MATTERS: Final = ("min", "max")


def is_compiled(operation: object, dtype: np.dtype[Any]) -> bool:
    """Return whether an operation on a dtype has machine code.

    Parameters
    ----------
    operation : object
        Only predefined operations have machine code.
    dtype : dtype
    """
    name = str(getattr(operation, "name", ""))
    if name not in BUILTIN_OPERATIONS or operation is not get_operation(name):
        return False
    if dtype.names == ("value", "index"):
        value = dtype["value"]
        is_plain = value.kind in "iuf" and value != np.float16 and _is_known(value)
        return is_plain and name in LOCATING
    return _is_known(dtype) and name in COMPILED.get(dtype.kind, ())


def _is_known(dtype: np.dtype[Any]) -> bool:
    """Return whether numba supports the dtype: native byte order, and no long double."""
    return dtype.isnative and dtype.char not in "gG"


@cache
def reduction_address(name: str, dtype: np.dtype[Any]) -> int:
    """Return the address of the C function for a predefined operation on a dtype.

    Its arguments are the addresses of left operand, right operand and result, the number of
    elements per row, the number of rows, and the distances in bytes between rows of left operand,
    right operand and result. The result may have the same rows as an operand.
    """
    return address_of_code(*_code(name, dtype))


@cache
def reduction_library(name: str, dtype: np.dtype[Any]) -> tuple[Path, str]:
    """Return a shared library with the function of `reduction_address`, and its name in C.

    Raises
    ------
    CollplanError
        If it cannot be created, because there is no C compiler or no writable folder.
    """
    kept = kept_code(*_code(name, dtype))
    return kept.link(), kept.symbol


def _code(name: str, dtype: np.dtype[Any]) -> tuple[str, Callable[[], Any], str]:
    """Return name, function to compile and signature, as arguments of `address_of_code`."""
    stored = _stored(name, dtype)
    fields = [stored] if stored.names is None else [stored[field] for field in stored.names]
    # Types that are stored as the same integers need different names.
    kind = [dtype.name] if dtype.kind == "b" or dtype == np.float16 else []
    parts = ["reduce", name, *kind, *(field.name for field in fields)]

    def function() -> Any:
        from collplan.executors.mpi.loop.combine import combine_of, reduction_of

        return reduction_of(combine_of(name, dtype), stored)

    return "_".join(parts), function, SIGNATURE


def _stored(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of elements in compiled code.

    Integers are unsigned if the sign does not affect the operation. Booleans are bytes that are 0
    or 1, and float16 numbers are 16-bit integers with the same bits.
    """
    has_no_sign = dtype.kind in "ub" or dtype == np.float16
    if has_no_sign or (dtype.kind == "i" and name not in _SIGN_MATTERS):
        return np.dtype(f"u{dtype.itemsize}")
    return dtype


_loaded: dict[Predefined | None, int] = {}


def is_loaded(reduction: Predefined | None) -> bool:
    """Return whether `load` returns immediately."""
    return reduction in _loaded


def load(reduction: Predefined | None) -> int:
    """Load the loop and a reduction, or compile those that are not in the cache.

    Parameters
    ----------
    reduction : (str, dtype) or None
        A predefined operation and the type of its operands.

    Returns
    -------
    int
        Address of the reduction, 0 if there is none.
    """
    if reduction not in _loaded:
        # Load the reduction first, because another process may be compiling the loop.
        address = 0 if reduction is None else reduction_address(*reduction)
        entry("run_loop")
        _loaded[reduction] = address
    return _loaded[reduction]
