"""Time to load or compile kernels, which is measured apart from the work that they do.

On the first call of a kernel, a process loads machine code that an earlier process has cached, or
compiles the kernel. The first kernel imports numba. This module does not import numba, so that a
command can use it before any kernel is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_announce: list[Callable[[], None]] = []


@dataclass(slots=True)
class _Clock:
    spent_s: float = 0.0
    compiled_s: float = 0.0
    depth: int = 0
    has_missed: bool = False


_clock = _Clock()


def announce_with(announce: Callable[[], None]) -> None:
    """Register a function to be called once, before this process compiles its next kernel.

    Parameters
    ----------
    announce : callable
        Function without arguments.
    """
    _announce[:] = [announce]


def miss() -> None:
    """Record that a kernel is not cached, so that this process or another one compiles it."""
    _clock.has_missed = True
    while _announce:
        _announce.pop()()


@contextmanager
def getting_kernel() -> Iterator[None]:
    """Measure the time of the block, which gets a kernel; it is compile time if one is missing.

    A kernel gets the kernels that it calls in nested blocks; only the outermost block counts.
    """
    begin = time.perf_counter()
    _clock.depth += 1
    try:
        yield
    finally:
        _clock.depth -= 1
        if not _clock.depth:
            spent_s = time.perf_counter() - begin
            _clock.spent_s += spent_s
            _clock.compiled_s += spent_s * _clock.has_missed
            _clock.has_missed = False


class Stopwatch:
    """Stopwatch that starts when it is created and excludes the time to get kernels."""

    def __init__(self) -> None:
        self._begin, self._spent = time.perf_counter(), _clock.spent_s
        self._compiled = _clock.compiled_s

    @property
    def kernels_s(self) -> float:
        """Return the time spent on compiling kernels since the start, in seconds."""
        return _clock.compiled_s - self._compiled

    @property
    def work_s(self) -> float:
        """Return the time since the start without the time to get kernels, in seconds."""
        return time.perf_counter() - self._begin - (_clock.spent_s - self._spent)
