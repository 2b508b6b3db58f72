"""Entry points of compiled code: functions for Python, and addresses for C.

Their machine code is cached in files. Numba is imported only if there is no such file, because its
import takes several times as long as loading everything that a rank needs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from collplan.planner.machine_code import object_files
from collplan.planner.machine_code.code_folders import digest_of
from collplan.planner.machine_code.object_files import ObjectFile

Function = Callable[..., Any]
_FOR_PYTHON: Final = {
    "run_loop": ("loop", 2, True),
    "repeat": ("repeating", 1, True),
    "read_word": ("calls", 1, False),
    "write_word": ("calls", 2, False),
}
"""Module, number of integer arguments, and release of the GIL for each function."""
ENTRIES: Final = tuple(_FOR_PYTHON)
"""Names of the functions for Python."""
_SOURCES: Final = Path(__file__).parent


@cache
def entry(name: str) -> Callable[..., int]:
    """Return a function of compiled code for integers, such as ``run_loop``.

    Parameters
    ----------
    name : {"run_loop", "repeat", "read_word", "write_word"}

    Returns
    -------
    callable
        A function of integers that returns an integer.
    """
    module, n_arguments, releases_lock = _FOR_PYTHON[name]

    def compile_entry(symbol: str) -> bytes:
        from numba import types

        from collplan.planner.machine_code.compiling import compile_for_python

        dispatcher = _function(module, name).dispatcher
        kinds = [types.int64] * n_arguments
        code: bytes = compile_for_python(symbol, dispatcher, kinds, releases_lock=releases_lock)
        return code

    return _kept(name, compile_entry).load_for_python()


def address_of_code(name: str, function: Callable[[], Function], signature: str) -> int:
    """Return the address of a C function, which is loaded from the cache, or compiled and cached.

    Parameters
    ----------
    name : str
        Unique name of the function.
    function : callable
        Function that returns the Python function to compile. It is called if the cache does not
        contain the machine code.
    signature : str
        Numba signature of the C function.
    """
    return kept_code(name, function, signature).load()


def linkable_entry(name: str) -> ObjectFile:
    """Return the machine code of a C function of compiled code, such as ``run_loop``.

    Parameters
    ----------
    name : str
        See `entry`.
    """
    module, n_arguments, _ = _FOR_PYTHON[name]
    signature = f"int64({', '.join(['int64'] * n_arguments)})"
    return kept_code(f"linked_{name}", lambda: _function(module, name).py_func, signature)


def kept_code(name: str, function: Callable[[], Function], signature: str) -> ObjectFile:
    """Return the machine code of a C function, from the cache, or compiled and cached.

    The parameters are those of `address_of_code`.
    """

    def compile_function(symbol: str) -> bytes:
        from collplan.planner.machine_code.compiling import compile_for_c

        code: bytes = compile_for_c(symbol, function(), signature)
        return code

    return _kept(name, compile_function)


def _kept(name: str, compile_it: Callable[[str], bytes]) -> ObjectFile:
    file = ObjectFile(name, _SOURCES)
    file.get(lambda: compile_it(file.symbol))
    return file


def is_kept(name: str) -> bool:
    """Return whether there is a file for a function; see `object_files.is_kept`."""
    return object_files.is_kept(name, _SOURCES)


def code_folder() -> Path | None:
    """Return the folder of these files; None if no folder is writable."""
    return object_files.code_folder(_SOURCES)


def code_digest() -> str:
    """Return a hash of the sources of the functions."""
    return digest_of(_SOURCES)


def _function(module: str, name: str) -> Any:
    return getattr(import_module(f"collplan.executors.mpi.loop.{module}"), name)


@cache
def address_of(name: str, library: str | None = None) -> int:
    """Return the address of a C function.

    Global symbols come first, including those of a preloaded profiler, as for all other callers.

    Parameters
    ----------
    name : str
        Name of the function.
    library : str, optional
        A shared library that contains the function, or that loads such a library.

    Raises
    ------
    OSError
        If there is no such function.
    """
    for place in (None, library):
        function = getattr(ctypes.CDLL(place), name, None)
        if function is not None:
            address = ctypes.cast(function, ctypes.c_void_p).value
            assert address is not None
            return address
    raise OSError(f"{name} is in none of the loaded libraries")
