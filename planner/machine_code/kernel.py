"""Kernels: functions with loops over arrays, of which numba makes machine code.

Machine code is loaded from a cache, without numba (see `object_files`). Where the cache has none,
small calls run in Python (see `interpreted`) until it pays to compile the kernel (see
`compiling`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from hashlib import sha256
from importlib import import_module
from inspect import getfile
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.planner.machine_code.interpreted import Interpreted
from collplan.planner.machine_code.object_files import ObjectFile, is_kept
from collplan.planner.memory import raise_for_memory

NUMBA_BYTES: Final = 1 << 29
"""Address space that numba reserves when it is loaded, in bytes."""


class Kernel:
    """A function of arrays, numbers and tuples of these, which runs as machine code.

    Parameters
    ----------
    function : function
        Function in plain Python and numpy, which may call other kernels.
    options : dict
        Options of numba's ``njit``.
    is_inner : bool
        Whether only other kernels call the function. It is then compiled as a part of these.
    work : callable, optional
        Number of steps of a call, from its arguments; by default, it is the number of elements of
        their arrays.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: dict[str, Any],
        is_inner: bool,
        work: Callable[..., int] | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._options, self.is_inner, self._work = options, is_inner, work
        self._codes: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Call the function, as machine code or in Python, with the same result."""
        kinds = tuple(map(_kind, arguments))
        if kinds not in self._codes:
            if self.is_inner:
                raise TypeError(
                    f"only kernels can call {self.py_func.__name__}, which is part of them"
                )
            file = ObjectFile(self._name(kinds), self._sources)
            n_steps = None if self._work is None else self._work(*arguments)
            if not file.read() and self._interpreted.has_time_for(arguments, file.spent_s, n_steps):
                try:
                    return self._interpreted(*arguments, note=file.spend)
                except ArithmeticError:
                    pass  # a number does not fit in 64 bits; no argument has changed
            self._load(file, kinds, arguments)
        return made(self._codes[kinds](*arguments))

    def call_compiled(self, *arguments: Any) -> Any:
        """Call the function as machine code, which is compiled even for a small call."""
        kinds = tuple(map(_kind, arguments))
        if kinds not in self._codes:
            self._load(ObjectFile(self._name(kinds), self._sources), kinds, arguments)
        return made(self._codes[kinds](*arguments))

    def _load(self, file: ObjectFile, kinds: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
        file.get(lambda: self._compile(file.symbol, arguments))
        self._codes[kinds] = file.load_for_python()

    def _compile(self, symbol: str, arguments: tuple[Any, ...]) -> bytes:
        try:
            from collplan.planner.machine_code.boxing import type_of
            from collplan.planner.machine_code.compiling import compile_for_python
        except (ImportError, OSError, MemoryError) as error:
            raise_for_memory(NUMBA_BYTES, "numba", error)
            raise
        kinds = [*map(type_of, arguments)]
        releases_lock = self._options.get("nogil", False)
        code: bytes = compile_for_python(
            symbol, self.dispatcher, kinds, releases_lock=releases_lock
        )
        return code

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's dispatcher, with which other kernels call this one."""
        from collplan.planner.machine_code.compiling import dispatcher_of

        return dispatcher_of(self.py_func, self._options)

    @property
    def has_code(self) -> bool:
        """Return whether machine code exists, in this process or in a cache of earlier ones."""
        return bool(self._codes) or is_kept(f"{self._stem}_*", self._sources)

    @property
    def _numba_type_(self) -> Any:
        """Type of the function in numba, for calls by other kernels."""
        return self.dispatcher._numba_type_

    @cached_property
    def _interpreted(self) -> Interpreted:
        return Interpreted(self.py_func)

    @cached_property
    def _sources(self) -> Path:
        return Path(getfile(self.py_func)).parent

    @cached_property
    def _stem(self) -> str:
        module = self.py_func.__module__.rpartition(".")[2]
        return re.sub(r"\W", "_", f"{module}_{self.py_func.__name__}")

    def _name(self, kinds: tuple[Any, ...]) -> str:
        """Return the name of the machine code for arguments of these kinds."""
        function = self.py_func
        known = [cell.cell_contents for cell in function.__closure__ or ()]
        words = f"{function.__qualname__} {function.__defaults__} {known} {kinds}"
        return f"{self._stem}_{sha256(words.encode()).hexdigest()[:12]}"


def _kind(value: Any) -> Any:
    """Return what decides on the machine code for an argument."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        return value.dtype, value.ndim, flags.c_contiguous, flags.aligned
    if isinstance(value, tuple):
        return type(value), *map(_kind, value)
    return type(value)


def made(result: Any) -> Any:
    """Return the result of machine code; lists describe arrays, and mappings named tuples.

    Raises
    ------
    ArithmeticError
        If the function has raised an exception, such as for a division by 0.
    """
    if isinstance(result, str):
        raise ArithmeticError(result)
    if isinstance(result, list):
        owner, offset, shape, strides, dtype = result
        return np.ndarray(shape, dtype, owner, offset, strides)
    if isinstance(result, dict):
        ((name, items),) = result.items()
        return _named(name)(*map(made, items))
    return tuple(map(made, result)) if isinstance(result, tuple) else result


@cache
def _named(name: str) -> Any:
    """Return the class of a module, such as of named tuples."""
    module, _, inside = name.partition(":")
    return attrgetter(inside)(import_module(module))


def compile_with(
    *, is_inner: bool = False, work: Callable[..., int] | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Kernel]:
    """Return a decorator that makes a kernel with these options; see `Kernel`."""
    return lambda function: Kernel(function, options, is_inner, work)


def compile_at_once(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Return a decorator for kernels that are never interpreted, such as one that is timed."""
    return compile_with(work=lambda *_: sys.maxsize, **options)


compiled = compile_with()
"""Decorator for kernels."""
inner = compile_with(is_inner=True)
"""Decorator for functions that only kernels call."""
