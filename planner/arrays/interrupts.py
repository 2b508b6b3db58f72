"""Interrupts (Ctrl-C) that wait until a compiled kernel has returned.

Numba runs Python code to make arrays of what a kernel returns, and does not look whether
it raised. A KeyboardInterrupt there ends in a segmentation fault or a SystemError.
"""

from __future__ import annotations

import threading
from _signal import getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT
from typing import Any, Final

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
