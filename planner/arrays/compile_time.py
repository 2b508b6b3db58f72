"""Time to get kernels, which is counted apart from the work that they do.

A process compiles a kernel when it first calls it, or loads what earlier runs have kept. The
first one imports numba. This module does not, so that a command can ask before any kernel is
loaded.
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
    """Let `announce` be called once, before this process compiles its next kernel."""
    _announce[:] = [announce]


def miss() -> None:
    """Note that a kernel is not kept: it is compiled now, here or by another process."""
    _clock.has_missed = True
    while _announce:
        _announce.pop()()


@contextmanager
def getting_kernel() -> Iterator[None]:
    """Count the time of the block, which gets a kernel; as compiling if one is missed in it.

    A kernel that calls others gets them in nested blocks; the outermost counts.
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
    """Seconds of work since it was made, without the time to get kernels."""

    def __init__(self) -> None:
        self._begin, self._spent = time.perf_counter(), _clock.spent_s
        self._compiled = _clock.compiled_s

    @property
    def kernels_s(self) -> float:
        """Return how long kernels were compiled since then."""
        return _clock.compiled_s - self._compiled

    @property
    def work_s(self) -> float:
        """Return how long everything else took."""
        return time.perf_counter() - self._begin - (_clock.spent_s - self._spent)
