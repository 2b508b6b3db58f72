"""Repeated steps of one process, and what their times are in words."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import NamedTuple, TypeVar

Result = TypeVar("Result")


class Times(NamedTuple):
    """Wall and processor times of every repetition, in s."""

    wall: list[float]
    processor: list[float]


def time_step(step: Callable[[], Result], repetitions: int = 1) -> tuple[Times, Result]:
    """Run a step several times; return its times and its last result."""
    times = Times([], [])
    for _ in range(repetitions):
        result = None  # freed before the next is made
        begin, used = perf_counter(), process_time()
        result = step()
        times.wall.append(perf_counter() - begin)
        times.processor.append(process_time() - used)
    return times, result


def in_words(seconds: Sequence[float]) -> str:
    """Return the median, the least and the most of some times.

    Examples
    --------
    >>> in_words([3.0, 1.0, 2.0])
    'median   2.000 s  min   1.000  max   3.000'
    """
    median, least, most = statistics.median(seconds), min(seconds), max(seconds)
    return f"median {median:7.3f} s  min {least:7.3f}  max {most:7.3f}"


def in_a_row(call: Callable[[], object], n_calls: int) -> Callable[[], None]:
    """Return a call that repeats another `n` times, for calls too short to be timed alone."""

    def make_all() -> None:
        for _ in range(n_calls):
            call()

    return make_all
