"""Compiled functions whose cache is never stale.

Numba keeps machine code beside the source file and renews it when that file
changes, but what a function calls or takes from another file is compiled into
it, too. So the cache lies in a folder named after the contents of all files with
kernels in the function's own folder; kernels call no kernels of other folders,
and take constants from files with kernels only.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on first use and keep its machine code for later runs."""
    return compile_with()(function)


def compile_with(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator like `compiled` with further options of numba's ``njit``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        with _cache_of(function):
            dispatcher: Callable[..., Any] = numba.njit(cache=True, **options)(function)
        return dispatcher

    return decorate


def compile_callback(function: Callable[..., Any], signature: Any, **options: Any) -> int:
    """Compile a function now, or take it from the cache, and return its address.

    Parameters
    ----------
    function : callable
        Must live, with all it closes over, as long as its address is used. Its
        ``__qualname__`` must be unique in its file: it names the cache's files, and
        two processes that write different functions into one would mix them up.
    signature : numba signature
        Types of the C function.
    **options
        Further options of numba's ``cfunc``.
    """
    with _cache_of(function):
        callback: Any = numba.cfunc(signature, cache=True, **options)(function)
    _callbacks.append(callback)
    return int(callback.address)


_callbacks: list[Any] = []
"""Keeps machine code alive whose addresses have been handed out."""


@contextmanager
def _cache_of(function: Callable[..., Any]) -> Iterator[None]:
    """Let numba put a function's machine code where its sources say.

    Numba reads its setting when a function is decorated, not when it is compiled:
    other code's functions keep their own place.
    """
    config: Any = numba.config  # its settings are made at run time
    chosen = config.CACHE_DIR
    config.CACHE_DIR = str(_cache_folder(Path(inspect.getfile(function)).parent, chosen))
    try:
        yield
    finally:
        config.CACHE_DIR = chosen


@cache
def _cache_folder(sources: Path, chosen: str) -> Path:
    """Return where the machine code of a folder of sources belongs."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(sources.glob("*.py")):
        text = path.read_bytes()
        if b"compiled" in text:
            digest.update(path.name.encode() + b"\0" + text)
    base = Path(chosen) if chosen else sources / "__pycache__"
    return base / f"numba-{digest.hexdigest()[:16]}"
