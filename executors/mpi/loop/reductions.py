"""Machine code of the loop and of reductions, compiled on first use and loaded once per process."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numba import types

from collplan.executors.mpi.loop.calls import array_at
from collplan.executors.mpi.loop.elementwise import BY_KIND, HALF, ON_PAIRS, Combine
from collplan.executors.mpi.loop.loop import run_loop
from collplan.executors.mpi.loop.state import RUN, STATE
from collplan.planner.arrays.jit import compile_callback
from collplan.planner.collective.operations import BUILTIN_OPERATIONS, get_operation

if TYPE_CHECKING:
    from collections.abc import Callable

    Predefined = tuple[str, np.dtype[Any]]

_SIGNATURE: Final = types.int32(*(types.int64,) * 8)
_SIGN_MATTERS: Final = ("min", "max")


def is_compiled(operation: object, dtype: np.dtype[Any]) -> bool:
    """Return whether there is compiled code for an operation on a dtype."""
    name = str(getattr(operation, "name", ""))
    is_builtin = name in BUILTIN_OPERATIONS and operation is get_operation(name)
    return is_builtin and _combine(name, dtype) is not None


def reduction_address(name: str, dtype: np.dtype[Any]) -> int:
    """Return the address of the C function for a predefined operation on a dtype.

    It gets the addresses of left, right and result, the elements in a row, the
    number of rows, and how far rows of left, right and result are apart in
    bytes. The result may be left or right itself, row by row.
    """
    combine = _combine(name, dtype)
    assert combine is not None
    return compile_combine(combine, _stored(name, dtype))


@cache
def compile_combine(combine: Combine, dtype: np.dtype[Any]) -> int:
    """Return the address of the C function that combines elements of `dtype`.

    Parameters
    ----------
    combine : callable
        A plain function of two elements, known to numba by ``register_jitable``.
    dtype : dtype
        As compiled code sees the elements.
    """
    function = _make(combine, dtype) if dtype.names is None else _make_on_structs(combine, dtype)
    # One file of the cache for each.
    fields = [dtype] if dtype.names is None else [dtype[name] for name in dtype.names]
    name = "_".join([combine.__name__, *(field.name for field in fields)])
    function.__qualname__ = f"reduce_{name}"
    return compile_callback(function, _SIGNATURE, _nrt=False)


def _combine(name: str, dtype: np.dtype[Any]) -> Combine | None:
    if dtype.names == ("value", "index"):
        is_plain = dtype["value"].kind in "iuf" and dtype["value"] != np.float16
        return ON_PAIRS.get(name) if is_plain and _is_known(dtype["value"]) else None
    if not _is_known(dtype):
        return None
    functions = HALF if dtype == np.float16 else BY_KIND.get(dtype.kind, {})
    return functions.get(name)


def _is_known(dtype: np.dtype[Any]) -> bool:
    """Return whether numba has the dtype: no foreign order of bytes, no long double."""
    return dtype.isnative and dtype.char not in "gG"


def _stored(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return how compiled code sees the elements: where signs make no difference, as unsigned.

    Booleans are bytes that are 0 or 1, and halves are their bits.
    """
    if dtype.kind in "ub" or dtype == np.float16:
        return np.dtype(f"u{dtype.itemsize}")
    if dtype.kind == "i" and name not in _SIGN_MATTERS:
        return np.dtype(f"u{dtype.itemsize}")
    return dtype


def _make(combine: Combine, dtype: np.dtype[Any]) -> Callable[..., int]:
    """Return the function for one pair; its loops differ in what may be the same memory.

    That two addresses are equal defeats the checks before a vectorised loop, so
    such operands are one array.
    """

    def reduce(
        left: int,
        right: int,
        out: int,
        n: int,
        n_rows: int,
        left_stride: int,
        right_stride: int,
        out_stride: int,
    ) -> int:
        if n == 1:
            for row in range(n_rows):
                a = array_at(left + row * left_stride, 1, dtype)
                b = array_at(right + row * right_stride, 1, dtype)
                c = array_at(out + row * out_stride, 1, dtype)
                c[0] = combine(a[0], b[0])
            return 0
        for row in range(n_rows):
            a = array_at(left + row * left_stride, n, dtype)
            b = array_at(right + row * right_stride, n, dtype)
            c = array_at(out + row * out_stride, n, dtype)
            if left == out and left_stride == out_stride:
                for i in range(n):
                    c[i] = combine(c[i], b[i])
            elif right == out and right_stride == out_stride:
                for i in range(n):
                    c[i] = combine(a[i], c[i])
            else:
                for i in range(n):
                    c[i] = combine(a[i], b[i])
        return 0

    return reduce


def _make_on_structs(combine: Combine, dtype: np.dtype[Any]) -> Callable[..., int]:
    """Return the function for structs, which `combine` reads before it writes."""

    def reduce(
        left: int,
        right: int,
        out: int,
        n: int,
        n_rows: int,
        left_stride: int,
        right_stride: int,
        out_stride: int,
    ) -> int:
        for row in range(n_rows):
            a = array_at(left + row * left_stride, n, dtype)
            b = array_at(right + row * right_stride, n, dtype)
            c = array_at(out + row * out_stride, n, dtype)
            for i in range(n):
                combine(a[i], b[i], c[i])
        return 0

    return reduce


_loaded: dict[Predefined | None, int] = {}


def is_loaded(reduction: Predefined | None) -> bool:
    """Return whether `load` takes no time."""
    return reduction in _loaded


def load(reduction: Predefined | None) -> int:
    """Compile the loop and a reduction, or take them from the cache.

    Parameters
    ----------
    reduction : (str, dtype) or None
        A predefined operation and what it works on.

    Returns
    -------
    int
        The reduction's address; 0 if there is none.
    """
    if reduction not in _loaded:
        nothing = np.zeros(1, dtype=STATE)
        run_loop(nothing.ctypes.data, RUN)
        _loaded[reduction] = 0 if reduction is None else reduction_address(*reduction)
    return _loaded[reduction]
