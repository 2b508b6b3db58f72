"""Addresses of C functions in the libraries of this process."""

from __future__ import annotations

import ctypes
from functools import cache


@cache
def address_of(name: str, library: str | None = None) -> int:
    """Return the address of a C function.

    What is global comes first, and so does a profiler that is preloaded, as for
    all other callers.

    Parameters
    ----------
    name : str
        The function.
    library : str, optional
        A shared library that has it, or that loads one which does.

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
