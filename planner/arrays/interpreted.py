"""Kernels as Python functions, for calls that take less time than getting machine code does.

Numba itself is imported in some tenths of a second, loads a kernel that it has compiled before
in some hundredths, and compiles one in about a millisecond per byte of its bytecode. A small
plan is made, proved and priced in Python: some hundred times slower, but at once. The
functions work on copies of a call's arrays, with numbers of 64 bits as numba computes with.
Where a number does not fit in 64 bits, nothing has happened, and machine code is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from time import perf_counter
from types import CodeType, FunctionType
from typing import Any, ClassVar, Final

import numpy as np

IMPORT_S: Final = 0.4
"""Time to import numba, and to prepare it for its first kernel, in seconds, about."""
LOAD_S: Final = 0.03
"""Time to load machine code that is kept, in seconds, about."""
COMPILE_S: Final = 1e-3
"""Time to compile a byte of bytecode, in seconds, about."""
ELEMENT_S: Final = 2e-6
"""Time to interpret a call per element of its arrays, in seconds, about."""
SHARE: Final = 0.5
"""Part of the time to get machine code that a process spends on interpreting."""
_MACHINE_CODE: Final = "collplan.planner.arrays.machine_code"
_WIDE: Final = {"i": np.int64, "u": np.int64, "f": np.float64}
"""Types that numba computes with, by kinds of numpy's narrower ones."""

Function = Callable[..., Any]


class Interpreted:
    """A kernel in Python, with the kernels that it calls, and the time it may take.

    Parameters
    ----------
    function : function
        What the kernel is compiled from.
    """

    all_s: ClassVar = 0.0
    """Time that this process has spent on interpreting kernels, in seconds."""

    def __init__(self, function: Any) -> None:
        twins: dict[FunctionType, FunctionType] = {}
        self._function = _twin(function, twins)
        self._compile_s = COMPILE_S * sum(len(one.__code__.co_code) for one in twins)
        self._own_s = 0.0
        self._get_s: float | None = None

    def has_time_for(self, arguments: tuple[Any, ...], kernel: Any) -> bool:
        """Return whether a call and the earlier ones take less time than machine code does."""
        about_s = ELEMENT_S * _n_elements(arguments)
        if _MACHINE_CODE not in sys.modules:
            return Interpreted.all_s + about_s < SHARE * IMPORT_S
        self._get_s = self._get_s or (LOAD_S if kernel.has_code else self._compile_s)
        return self._own_s + about_s < SHARE * self._get_s

    def __call__(self, *arguments: Any) -> Any:
        """Call the function as numba would.

        Raises
        ------
        ArithmeticError
            If it cannot be interpreted. No argument has changed.
        """
        begin = perf_counter()
        copies = _Copies()
        with np.errstate(over="raise", divide="ignore", invalid="ignore"):
            found = self._function(*copies.of(arguments))
        copies.give_back()
        spent_s = perf_counter() - begin
        self._own_s += spent_s
        Interpreted.all_s += spent_s
        return copies.result(found)


def _twin(function: FunctionType, twins: dict[FunctionType, FunctionType]) -> FunctionType:
    """Return a function that calls Python functions where the given one calls kernels."""
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
    """Yield the global names that code uses, and the code of functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _n_elements(value: Any) -> int:
    """Return how many elements arrays in arguments have."""
    if isinstance(value, tuple):
        return sum(map(_n_elements, value))
    return value.size if isinstance(value, np.ndarray) else 0


class _Copies:
    """Copies of a call's arrays, as the function sees them."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any) -> Any:
        """Return arguments with copies of arrays, and with numbers of Python.

        Integers are widened to 64 bits; structured arrays have fields as attributes.
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
        """Write what has changed into the call's own arrays."""
        for own, copy in self._made.values():
            if own.flags.writeable:
                np.copyto(own, _array(copy), casting="unsafe")

    def result(self, found: Any) -> Any:
        """Return what numba returns: arrays of the types it knows, and numbers of Python."""
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
    """Return a tuple, or a named one, of what a function returns."""
    found = map(function, values)
    return type(values)(*found) if hasattr(values, "_fields") else tuple(found)


class _Rows:
    """A structured array; numpy's own records have attributes, too, but are five times slower."""

    row_type: type
    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array
        for name in array.dtype.names:
            setattr(self, name, array[name])

    def __getitem__(self, place: Any) -> Any:
        """Return a row, which refers to the array, or some of them."""
        if isinstance(place, slice):
            return type(self)(self.array[place])
        return self.row_type(self, place)

    def __setitem__(self, place: Any, value: Any) -> None:
        """Copy a row."""
        self.array[place] = value.rows.array[value.place]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.array)

    def __getattr__(self, name: str) -> Any:
        """Return what else arrays have."""
        return getattr(self.array, name)


@cache
def _rows_type(dtype: np.dtype[Any]) -> type[_Rows]:
    """Return the class for arrays of a structured type."""
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
    """Return functions that get and set a field of a row."""
    names: dict[str, Any] = {}
    exec(  # a property by name costs half of one that looks the name up
        f"def get(row): return row.rows.{name}.item(row.place)\n"
        f"def put(row, value): row.rows.{name}[row.place] = value\n",
        names,
    )
    return names["get"], names["put"]
