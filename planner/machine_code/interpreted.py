"""Kernels as Python functions, for calls that take less time than it takes to compile them.

Compiling takes about half a millisecond per byte of a kernel's bytecode, and the import of numba
some tenths of a second. Where no machine code is cached, small plans are therefore created,
verified and simulated in Python, which is some hundred times slower but starts at once. The
functions work on copies of the arrays of a call, with 64-bit numbers as in numba. If a number does
not fit in 64 bits, the copies are discarded, and machine code is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from time import perf_counter
from types import CodeType, FunctionType
from typing import Any, Final

import numpy as np

COMPILE_S: Final = 5e-4
"""Approximate time to compile one byte of bytecode, in seconds."""
INTERPRET_S: Final = 4e-10
"""Approximate time to interpret a call, per element of its arrays and byte of bytecode, in seconds.

The more code a kernel has, the more of it runs for each element.
"""
SHARE: Final = 0.5
"""Share of the time to compile a kernel that may be spent on interpretation.

All processes with the same cache spend it together: the process that would exceed it compiles the
kernel.
"""
_WIDE: Final = {"i": np.int64, "u": np.int64, "f": np.float64}
"""Types that numba computes with, by the kinds of numpy's narrower types."""

Function = Callable[..., Any]


class Interpreted:
    """A kernel in Python, with the kernels that it calls, and a limit of the time that it takes.

    Parameters
    ----------
    function : function
        Function that the kernel compiles.

    Attributes
    ----------
    element_s : float
        Approximate time to interpret a call, per element of its arrays, in seconds.
    """

    def __init__(self, function: Any) -> None:
        twins: dict[FunctionType, FunctionType] = {}
        self._function = _twin(function, twins)
        n_bytes = sum(len(one.__code__.co_code) for one in twins)
        self._compile_s, self.element_s = COMPILE_S * n_bytes, INTERPRET_S * n_bytes
        self._spent_s = 0.0

    def has_time_for(
        self, arguments: tuple[Any, ...], spent_s: float, n_steps: int | None = None
    ) -> bool:
        """Return whether this call and the earlier ones fit in a share of the compile time.

        Parameters
        ----------
        arguments : tuple
            Arguments of the call.
        spent_s : float
            Time that all processes with the same cache have spent on earlier calls, in seconds.
        n_steps : int, optional
            Number of steps of the call; by default, that of the elements of its arrays.
        """
        n_steps = _n_elements(arguments) if n_steps is None else n_steps
        return max(self._spent_s, spent_s) + self.element_s * n_steps < SHARE * self._compile_s

    def __call__(self, *arguments: Any, note: Callable[[float], None] | None = None) -> Any:
        """Call the function with the results that numba would return.

        Parameters
        ----------
        *arguments
        note : callable, optional
            Function that gets the time of the call, in seconds.

        Raises
        ------
        ArithmeticError
            If the call cannot be interpreted. No argument has changed.
        """
        begin = perf_counter()
        copies = _Copies()
        with np.errstate(over="raise", divide="ignore", invalid="ignore"):
            found = self._function(*copies.of(arguments))
        copies.give_back()
        spent_s = perf_counter() - begin
        self._spent_s += spent_s
        if note is not None:
            note(spent_s)
        return copies.result(found)


def _twin(function: FunctionType, twins: dict[FunctionType, FunctionType]) -> FunctionType:
    """Return a copy of a function that calls Python functions instead of kernels."""
    if function in twins:
        return twins[function]
    known = dict(function.__globals__)
    twin = twins[function] = FunctionType(
        function.__code__, known, function.__name__, function.__defaults__, function.__closure__
    )
    for name in _names(function.__code__):
        value = known.get(name)
        function_of_kernel = getattr(value, "py_func", None)
        if function_of_kernel is not None:
            known[name] = _twin(function_of_kernel, twins)
    return twin


def _names(code: CodeType) -> Iterator[str]:
    """Generate the global names in code and in the functions that it contains."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _n_elements(value: Any) -> int:
    """Return the number of elements of all arrays in arguments."""
    if isinstance(value, tuple):
        return sum(map(_n_elements, value))
    return value.size if isinstance(value, np.ndarray) else 0


class _Copies:
    """Copies of the arrays of a call, on which the Python function works."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any) -> Any:
        """Return arguments with copies of arrays, and with Python numbers.

        Integers and floats are widened to 64 bits. Structured arrays get fields as attributes.
        """
        if isinstance(value, tuple):
            return _mapped(self.of, value)
        if not isinstance(value, np.ndarray):
            return value.item() if isinstance(value, np.generic) else value
        if id(value) not in self._made:
            for other, _ in self._made.values():
                is_written = value.flags.writeable or other.flags.writeable
                if is_written and np.may_share_memory(value, other):
                    raise ArithmeticError("arrays that overlap cannot be copied apart")
            self._made[id(value)] = value, _copy(value)
        return self._made[id(value)][1]

    def give_back(self) -> None:
        """Copy changes back to the arrays of the call."""
        for own, copy in self._made.values():
            if own.flags.writeable:
                np.copyto(own, _array(copy), casting="unsafe")

    def result(self, found: Any) -> Any:
        """Return the result as numba does: arrays of the original types, and Python numbers."""
        if isinstance(found, tuple):
            return _mapped(self.result, found)
        if isinstance(found, np.generic):
            return found.item()
        for own, copy in self._made.values():
            if found is copy:
                return own
            if isinstance(found, np.ndarray) and found.base is copy:
                return found.astype(own.dtype)
        return _array(found)


def _copy(array: Any) -> Any:
    if array.dtype.names:
        return _rows_type(array.dtype)(array.copy())
    is_narrow = array.dtype.kind in _WIDE and array.itemsize < 8
    return array.astype(_WIDE[array.dtype.kind], order="K") if is_narrow else array.copy("K")


def _array(copy: Any) -> Any:
    return copy.array if isinstance(copy, _Rows) else copy


def _mapped(function: Function, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Apply a function to the items of a tuple; a named tuple keeps its type."""
    found = map(function, values)
    return type(values)(*found) if hasattr(values, "_fields") else tuple(found)


class _Rows:
    """A structured array with fields as attributes, five times faster than numpy's records."""

    row_type: type
    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array
        for name in array.dtype.names:
            setattr(self, name, array[name])

    def __getitem__(self, place: Any) -> Any:
        """Return a view of one row, or a part of the array for a slice."""
        if isinstance(place, slice):
            return type(self)(self.array[place])
        return self.row_type(self, place)

    def __setitem__(self, place: Any, value: Any) -> None:
        """Copy a row of another array into this one."""
        self.array[place] = value.rows.array[value.place]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.array)

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of the array."""
        return getattr(self.array, name)


@cache
def _rows_type(dtype: np.dtype[Any]) -> type[_Rows]:
    """Return the class for arrays of a structured dtype."""
    assert dtype.names is not None
    row_type = type(
        "_Row",
        (_Row,),
        {"__slots__": ()} | {name: property(*_accessors(name)) for name in dtype.names},
    )
    return type("_Rows", (_Rows,), {"__slots__": dtype.names, "row_type": row_type})


class _Row:
    """A row of a structured array."""

    __slots__ = ("place", "rows")

    def __init__(self, rows: _Rows, place: int) -> None:
        self.rows, self.place = rows, place


def _accessors(name: str) -> tuple[Function, Function]:
    """Return the functions that get and set a field of a row."""
    names: dict[str, Any] = {}
    exec(  # a property with the name in its code takes half the time of a lookup by name
        f"def get(row): return row.rows.{name}.item(row.place)\n"
        f"def put(row, value): row.rows.{name}[row.place] = value\n",
        names,
    )
    return names["get"], names["put"]
