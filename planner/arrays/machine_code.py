"""Functions compiled by numba, whose machine code other processes find (`code_folders`).

Interrupts (Ctrl-C) wait until a compiled function has returned. Numba runs Python code to
make arrays of what a function returns, and does not look whether it raised: a
KeyboardInterrupt there ends in a segmentation fault or a SystemError.
"""

from __future__ import annotations

import inspect
import threading
from _signal import getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from signal import SIGINT
from typing import Any, Final

import numba
import numba.core.caching
import numba.core.dispatcher
import numba.core.registry
import numba.core.runtime

from collplan.planner.arrays.code_folders import (
    cache_folder,
    compiling_alone,
    warn_of_disk,
    warn_uncached,
)
from collplan.planner.arrays.compile_time import getting_kernel, miss

core: Any = numba.core


def compile_at_once(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function on its first use and keeps its machine code.

    For what is called with little delay, or is not plain Python and numpy, such as calls by
    address. Everything else is a kernel (`jit`), which needs no numba before it is large.

    Parameters
    ----------
    **options
        Options of numba's ``njit``.
    """
    return lambda function: dispatcher_of(function, options)


def dispatcher_of(
    function: Callable[..., Any], options: dict[str, Any], *, is_inner: bool = False
) -> Any:
    """Return numba's compiled function.

    Parameters
    ----------
    function : function
        What to compile.
    options : dict
        Options of numba's ``njit``.
    is_inner : bool
        Whether nothing but other kernels calls it. It is compiled as a part of these, in
        half the time, and has no machine code of its own.
    """
    dispatcher: Any = numba.njit(**options)(function)
    if is_inner:
        dispatcher.__class__ = _InnerDispatcher
        dispatcher._compiler.__class__ = _InnerCompiler
        return dispatcher
    dispatcher.kept = kept = _cache_of(function)
    compile_alone = dispatcher.compile

    def compile_once(signature: Any) -> Any:
        with acting_at_once(), _getting(kept):
            return compile_alone(signature)

    # What ``cache=True`` sets, and what numba calls for types that are new to a process.
    if kept is not None:
        dispatcher._cache = kept
    dispatcher.compile = compile_once
    if options.get("_nrt", True):
        dispatcher.__class__ = _DeferringDispatcher
    return dispatcher


def has_code(dispatcher: Any) -> bool:
    """Return whether there is machine code, in this process or kept from earlier ones."""
    return bool(dispatcher.overloads) or (dispatcher.kept is not None and dispatcher.kept.has_code)


@contextmanager
def _getting(kept: _SharedCache | None) -> Iterator[None]:
    """Count the time to compile a function, or to wait for another process that does."""
    with getting_kernel():
        if kept is None:
            miss()
            yield
        else:
            with kept.released():
                yield


class _DeferringDispatcher(numba.core.registry.CPUDispatcher):
    """A function that may return arrays: an interrupt waits until they are made.

    Functions without numba's runtime make none, and are called as they are.
    """

    def __call__(self, *arguments: Any) -> Any:
        return call_deferring(super().__call__, *arguments)


class _InnerCompiler(core.dispatcher._FunctionCompiler):  # type: ignore[misc]
    """A compiler that makes no machine code, and no wrappers for calls from Python."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return flags


class _InnerDispatcher(numba.core.registry.CPUDispatcher):
    """A function that is part of the kernels that call it, and is optimized with them."""

    def add_overload(self, found: Any) -> None:
        """Keep what was compiled for some types under a key of its own."""

        def end_without_code() -> None:
            found.library._finalized = True

        # Otherwise a function is optimized again in each of the functions that call it.
        found.library._optimize_final_module = lambda: None
        found.library._finalize_final_module = end_without_code
        key = object()
        found.target_context.insert_user_function(key, found.fndesc, [found.library])
        self.overloads[tuple(found.signature.args)] = found._replace(entry_point=key)


class _SharedCache(core.caching.FunctionCache):  # type: ignore[misc]
    """The machine code of one function, which other processes may need at the same time."""

    _held: ExitStack

    @property
    def has_code(self) -> bool:
        """Return whether something is kept, which is for the types of now: they never change."""
        return Path(self._cache_file._index_path).exists()

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return what is kept, or None when it is this process that has to compile."""
        # What numba's own does before this prepares for compiling, which takes longer than
        # everything else: loading needs its run time only.
        core.runtime.rtsys.initialize(context)
        found = self._load_overload(signature, context)
        if found is None:
            miss()
            self._acquire()
            found = super().load_overload(signature, context)
        return found

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep what was compiled; where the disk is full, the next process compiles it again."""
        try:
            super().save_overload(signature, data)
        except OSError as error:
            warn_of_disk(self.cache_path, error)

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let others have the function at the end, compiled or not."""
        with ExitStack() as self._held:
            yield

    def _acquire(self) -> None:
        """Wait until no other process compiles the function."""
        with suppress(OSError):
            self._impl.locator.ensure_cache_path()
            path = Path(self.cache_path) / self._impl.filename_base
            self._held.enter_context(compiling_alone(path))


def _cache_of(function: Callable[..., Any]) -> _SharedCache | None:
    """Return a cache for a function, None where no folder for it can be written.

    Numba reads where to put a function's machine code when a cache is made, not when a
    function is compiled: other code's functions keep their own place.
    """
    config: Any = numba.config  # its settings are made at run time
    chosen = config.CACHE_DIR
    folder = cache_folder(Path(inspect.getfile(function)).parent, chosen)
    if folder is None:
        warn_uncached()
        return None
    config.CACHE_DIR = str(folder)
    try:
        return _SharedCache(function)
    finally:
        config.CACHE_DIR = chosen


# The module `signal` makes enums of handlers around these calls, which takes ten times as long.
_SIGINT: Final = int(SIGINT)


class _Deferral:
    """The handler that SIGINT has while a kernel runs.

    Only the main thread runs handlers, and only it may exchange them: in other threads
    there is nothing to defer.
    """

    def __init__(self) -> None:
        self.handler: Any = None
        self.frame: Any = None
        self.has_come = False

    def __call__(self, number: int, frame: Any) -> None:
        self.frame, self.has_come = frame, True

    def begin(self) -> bool:
        """Take the place of the handler there is; return whether one of Python's was there."""
        if threading.get_ident() != threading.main_thread().ident:
            return False
        handler = getsignal(_SIGINT)
        if handler is self or not callable(handler):
            return False
        self.handler = handler
        signal(_SIGINT, self)
        return True

    def end(self) -> None:
        """Give the handler its place back; let it handle what has come meanwhile."""
        handler, self.handler = self.handler, None
        if handler is None:
            return
        signal(_SIGINT, handler)
        frame, self.frame = self.frame, None
        if self.has_come:
            self.has_come = False
            handler(_SIGINT, frame)


_deferral = _Deferral()


def call_deferring(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function`; an interrupt that comes meanwhile acts when it has returned."""
    if not _deferral.begin():
        return function(*arguments)
    try:
        return function(*arguments)
    finally:
        _deferral.end()


@contextmanager
def acting_at_once() -> Iterator[None]:
    """Let interrupts act inside of `call_deferring`, as while a kernel is compiled."""
    if getsignal(_SIGINT) is not _deferral:
        yield
        return
    _deferral.end()
    try:
        yield
    finally:
        _deferral.begin()
