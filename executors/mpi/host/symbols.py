"""Addresses of C functions in the libraries of this process."""

from __future__ import annotations

import ctypes
from functools import cache


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
