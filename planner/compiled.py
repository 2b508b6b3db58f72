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
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

import numba
import numba.core.caching
import numba.core.ccallback
import numba.core.runtime
import numba.core.sigutils

if sys.platform != "win32":
    import fcntl

core: Any = numba.core
PATIENCE_S: Final = 60.0
"""How long another process may take to compile a function before this one does, too."""
POLL_S: Final = 0.02


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on first use and keep its machine code for later runs."""
    return compile_with()(function)


def compile_with(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator like `compiled` with further options of numba's ``njit``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher: Any = numba.njit(**options)(function)
        with _folder_of(function):
            kept = _SharedCache(function)
        compile_alone = dispatcher.compile

        def compile_once(signature: Any) -> Any:
            with kept.released():
                return compile_alone(signature)

        # What ``cache=True`` sets, and what numba calls for types that are new to a process.
        dispatcher._cache, dispatcher.compile = kept, compile_once
        decorated: Callable[..., Any] = dispatcher
        return decorated

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
    signature = core.sigutils.normalize_signature(signature)
    callback = core.ccallback.CFunc(function, signature, locals={}, options=options)
    with _folder_of(function):
        kept = _SharedCache(function)
    callback._cache = kept
    with kept.released():
        callback.compile()
    _callbacks.append(callback)
    return int(callback.address)


_callbacks: list[Any] = []
"""Keeps machine code alive whose addresses have been handed out."""


class _SharedCache(core.caching.FunctionCache):  # type: ignore[misc]
    """The machine code of one function, which other processes may need at the same time."""

    _lock: IO[bytes] | None = None

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return what is kept, or None when it is this process that has to compile."""
        # What numba's own does before this prepares for compiling, which takes longer than
        # everything else: loading needs its run time only.
        core.runtime.rtsys.initialize(context)
        found = self._load_overload(signature, context)
        if found is None:
            self._acquire()
            found = super().load_overload(signature, context)
        return found

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let others have the function at the end, compiled or not."""
        try:
            yield
        finally:
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def _acquire(self) -> None:
        """Wait until no other process compiles the function.

        Where files cannot be locked, or whoever compiles was stopped, two compile.
        """
        if sys.platform == "win32" or self._lock is not None:
            return
        end_s = time.monotonic() + PATIENCE_S
        try:
            self._impl.locator.ensure_cache_path()
            path = Path(self.cache_path) / f"{self._impl.filename_base}.lock"
            self._lock = path.open("wb")
            while True:
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > end_s:
                        return
                    time.sleep(POLL_S)
                else:
                    return
        except OSError:
            return


@contextmanager
def _folder_of(function: Callable[..., Any]) -> Iterator[None]:
    """Let numba put a function's machine code where its sources say.

    Numba reads its setting when a cache is made, not when a function is compiled:
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
