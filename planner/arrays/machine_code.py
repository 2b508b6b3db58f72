"""Functions compiled by numba, whose machine code is cached for other processes (`code_folders`).

Interrupts (Ctrl-C) are deferred until a compiled function has returned. To create the arrays that
a function returns, numba runs Python code and does not check whether it raised. A
KeyboardInterrupt there would cause a segmentation fault or a SystemError.
"""

from __future__ import annotations

import inspect
import pickle
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
from collplan.planner.arrays.kept_files import (
    add_time,
    make_private,
    read_kept,
    time_in,
    write_kept,
)

core: Any = numba.core


def compile_at_once(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function on its first use and caches its machine code.

    It is meant for functions that must start with little delay, or that are not plain Python and
    numpy, such as calls by address. All other functions are kernels (see `jit`), for which numba
    is imported only when a call is large.

    Parameters
    ----------
    **options
        Options of numba's ``njit``.
    """
    return lambda function: dispatcher_of(function, options)


def dispatcher_of(
    function: Callable[..., Any], options: dict[str, Any], *, is_inner: bool = False
) -> Any:
    """Return numba's dispatcher for a function.

    Parameters
    ----------
    function : function
        Function to compile.
    options : dict
        Options of numba's ``njit``.
    is_inner : bool
        Whether only other kernels call the function. It is then compiled as a part of these, in
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

    # `_cache` is what ``cache=True`` sets; numba calls `compile` for types new to this process.
    if kept is not None:
        dispatcher._cache = kept
    dispatcher.compile = compile_once
    if options.get("_nrt", True):
        dispatcher.__class__ = _DeferringDispatcher
    return dispatcher


def has_code(dispatcher: Any) -> bool:
    """Return whether machine code exists, in this process or in a cache of earlier ones."""
    return bool(dispatcher.overloads) or (dispatcher.kept is not None and dispatcher.kept.has_code)


@contextmanager
def _getting(kept: _SharedCache | None) -> Iterator[None]:
    """Measure the time to compile a function, or to wait for another process that compiles it."""
    with getting_kernel():
        if kept is None:
            miss()
            yield
        else:
            with kept.released():
                yield


class _DeferringDispatcher(numba.core.registry.CPUDispatcher):
    """A function that may return arrays; interrupts are deferred until these are created.

    Functions without numba's runtime create no arrays, and are called directly.
    """

    def __call__(self, *arguments: Any) -> Any:
        return call_deferring(super().__call__, *arguments)


class _InnerCompiler(core.dispatcher._FunctionCompiler):  # type: ignore[misc]
    """A compiler that generates neither machine code nor wrappers for calls from Python."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return flags


class _InnerDispatcher(numba.core.registry.CPUDispatcher):
    """A function that is a part of the kernels that call it, and is optimized with them."""

    def add_overload(self, found: Any) -> None:
        """Register a compiled overload under a key of its own."""

        def end_without_code() -> None:
            found.library._finalized = True

        # Without this, numba would optimize the function again in each function that calls it.
        found.library._optimize_final_module = lambda: None
        found.library._finalize_final_module = end_without_code
        key = object()
        found.target_context.insert_user_function(key, found.fndesc, [found.library])
        self.overloads[tuple(found.signature.args)] = found._replace(entry_point=key)


class _KeptFiles(core.caching.IndexDataCacheFile):  # type: ignore[misc]
    """The files of a function: machine code by types of arguments, and an index of these."""

    def _load_index(self) -> dict[Any, str]:
        kept = read_kept(Path(self._index_path))
        written = (None, None, {}) if kept is None else pickle.loads(kept)
        is_fresh = written[:2] == (self._version, self._source_stamp)
        return written[2] if is_fresh else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        written = self._version, self._source_stamp, overloads
        write_kept(Path(self._index_path), self._dump(written))

    def _load_data(self, name: str) -> Any:
        kept = read_kept(Path(self._data_path(name)))
        if kept is None:
            raise FileNotFoundError(name)  # numba compiles then
        return pickle.loads(kept)

    def _save_data(self, name: str, data: Any) -> None:
        write_kept(Path(self._data_path(name)), self._dump(data))


class _SharedCache(core.caching.FunctionCache):  # type: ignore[misc]
    """Cached machine code of one function, which several processes may need at the same time."""

    _held: ExitStack

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file.__class__ = _KeptFiles

    @property
    def has_code(self) -> bool:
        """Return whether machine code is cached; the types of a function's arguments are fixed."""
        return Path(self._cache_file._index_path).exists()

    @property
    def spent_s(self) -> float:
        """Time that processes have spent on interpretation of the function, in seconds."""
        return time_in(self._spent_path)

    def spend(self, seconds: float) -> None:
        """Add time that this process has spent on interpretation."""
        add_time(self._spent_path, seconds)

    @property
    def _spent_path(self) -> Path:
        return Path(self._cache_file._index_path).with_suffix(".spent")

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the cached machine code, or None if this process has to compile it."""
        # Before this step, numba prepares for compilation, which takes longer than all other
        # steps; to load machine code, only its runtime is needed.
        core.runtime.rtsys.initialize(context)
        found = self._load_overload(signature, context)
        if found is None:
            miss()
            self._acquire()
            found = super().load_overload(signature, context)
        return found

    def save_overload(self, signature: Any, data: Any) -> None:
        """Cache compiled code; if the disk is full, the next process compiles it again."""
        try:
            super().save_overload(signature, data)
        except OSError as error:
            warn_of_disk(self.cache_path, error)

    @contextmanager
    def released(self) -> Iterator[None]:
        """Unlock the function for other processes at the end of the block, compiled or not."""
        with ExitStack() as self._held:
            yield

    def _acquire(self) -> None:
        """Wait until no other process compiles the function."""
        with suppress(OSError):
            self._impl.locator.ensure_cache_path()
            path = Path(self.cache_path) / self._impl.filename_base
            self._held.enter_context(compiling_alone(path))


def _cache_of(function: Callable[..., Any]) -> _SharedCache | None:
    """Return a cache for a function; None if no folder for it is writable.

    Numba reads the folder for machine code when a cache is created, not when a function is
    compiled, so the functions of other packages keep their own folder.
    """
    config: Any = numba.config  # its attributes are set at run time
    chosen = config.CACHE_DIR
    folder = cache_folder(Path(inspect.getfile(function)).parent, chosen)
    if folder is None:
        warn_uncached()
        return None
    config.CACHE_DIR = str(folder)
    try:
        # Numba makes the folder otherwise, with the rights that the umask leaves.
        locator = core.caching._CacheLocator
        with suppress(OSError):
            make_private(folder / locator.get_suitable_cache_subpath(inspect.getfile(function)))
        return _SharedCache(function)
    finally:
        config.CACHE_DIR = chosen


# The module `signal` converts handlers to enums around these calls, which takes ten times as long.
_SIGINT: Final = int(SIGINT)


class _Deferral:
    """The handler of SIGINT while a kernel runs.

    Only the main thread runs handlers and may replace them, so other threads need no deferral.
    """

    def __init__(self) -> None:
        self.handler: Any = None
        self.frame: Any = None
        self.has_come = False

    def __call__(self, number: int, frame: Any) -> None:
        self.frame, self.has_come = frame, True

    def begin(self) -> bool:
        """Replace the current handler; return whether there was a Python handler to replace."""
        if threading.get_ident() != threading.main_thread().ident:
            return False
        handler = getsignal(_SIGINT)
        if handler is self or not callable(handler):
            return False
        self.handler = handler
        signal(_SIGINT, self)
        return True

    def end(self) -> None:
        """Restore the handler; if an interrupt has arrived in the meantime, call the handler."""
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
    """Call a function; an interrupt that arrives during the call is handled when it returns."""
    if not _deferral.begin():
        return function(*arguments)
    try:
        return function(*arguments)
    finally:
        _deferral.end()


@contextmanager
def acting_at_once() -> Iterator[None]:
    """Handle interrupts at once inside `call_deferring`, for example during compilation."""
    if getsignal(_SIGINT) is not _deferral:
        yield
        return
    _deferral.end()
    try:
        yield
    finally:
        _deferral.begin()
