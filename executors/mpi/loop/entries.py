"""Entry points of compiled code: functions for Python, and addresses for MPI and for the loop.

Their machine code is cached in files. Numba is imported only if there is no such file, because its
import takes several times as long as loading everything that a rank needs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Final

from collplan.executors.mpi.loop.object_files import ObjectFile
from collplan.planner.arrays.compile_time import getting_kernel, miss

Function = Callable[..., Any]
_FOR_PYTHON: Final = {
    "run_loop": ("loop", 2, True),
    "run_board": ("serving", 3, True),
    "repeat": ("repeating", 1, True),
    "publish": ("serving", 3, False),
    "read_word": ("calls", 1, False),
    "write_word": ("calls", 2, False),
}
"""Module, number of integer arguments, and release of the GIL for each function."""
_FOR_C: Final = {
    "query_flight": ("serving", "int32(int64, int64)"),
    "free_flight": ("serving", "int32(int64)"),
    "cancel_flight": ("serving", "int32(int64, int32)"),
}
"""Module and numba signature of each function."""
_PYTHON_SIGNATURE: Final = "int64(int64, int64, int64)"
_METH_FASTCALL: Final = 0x80


class _Method(ctypes.Structure):
    """Python's structure of a C function, ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_methods: list[_Method] = []
"""Structures that must be kept, because functions of Python refer to them."""
_loading = Lock()
"""Lock of the thread that loads or compiles code in this process."""


@cache
def entry(name: str) -> Callable[..., int]:
    """Return a function of compiled code for integers, such as ``run_loop``.

    Parameters
    ----------
    name : {"run_loop", "run_board", "repeat", "publish", "read_word", "write_word"}

    Returns
    -------
    callable
        A function of integers that returns an integer.
    """
    module, n_arguments, releases_lock = _FOR_PYTHON[name]

    def function() -> Function:
        from collplan.executors.mpi.loop.compiling import for_python

        return for_python(_function(module, name), n_arguments, releases_lock=releases_lock)

    address = address_of_code(name, function, _PYTHON_SIGNATURE)
    method = _Method(name.encode(), address, _METH_FASTCALL, None)
    _methods.append(method)
    make: Any = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    made: Callable[..., int] = make(ctypes.byref(method), None, None)
    return made


@cache
def callback(name: str) -> int:
    """Return the address of a function that MPI calls, such as ``query_flight``."""
    module, signature = _FOR_C[name]
    return address_of_code(name, lambda: _function(module, name).py_func, signature)


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
    with _loading, getting_kernel():
        return _kept(name, function, signature).load()


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
    with _loading, getting_kernel():
        return _kept(name, function, signature)


def _kept(name: str, function: Callable[[], Function], signature: str) -> ObjectFile:
    file = ObjectFile(name)
    if not file.read():
        miss()
        with file.alone():
            if not file.read():
                from collplan.executors.mpi.loop.compiling import compile_object

                file.keep(compile_object(file.symbol, function(), signature))
    return file


def _function(module: str, name: str) -> Any:
    return getattr(import_module(f"collplan.executors.mpi.loop.{module}"), name)
