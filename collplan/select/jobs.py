"""Jobs of a comparison: run on any executor, timed, and only while there is time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from math import inf
from time import thread_time
from typing import Final, TypeVar

from collplan.planner.memory import free_bytes
from collplan.select.sweep import AT_ONCE, number_of_workers, run_jobs

ESTIMATING: Final = 0.6
"""Part of the time after which no more candidates are estimated."""
LEAST_ESTIMATING_S: Final = 10.0
"""Seconds for which candidates are estimated in any case."""
TASK_BYTES: Final = 600.0
"""Bytes for compiling and simulating one task."""
MEMORY_SHARE: Final = 0.5
"""Share of the free memory that simulations may take together."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


@dataclass
class Jobs:
    """Runs jobs, tells how far they are, and knows for how long they may go on."""

    executor: Executor | None
    on_progress: Progress | None
    seconds: float | None
    used_s: float = 0.0

    def __post_init__(self) -> None:
        self._n_workers = number_of_workers(self.executor)

    @property
    def n_workers(self) -> int:
        """Return how many jobs run at once."""
        return self._n_workers

    @property
    def left_s(self) -> float:
        """Return the seconds that are left of all processors together."""
        return inf if self.seconds is None else self.seconds * self.n_workers - self.used_s

    def most_effort(self) -> float:
        """Return the effort of the largest plan that there is memory for."""
        return MEMORY_SHARE * free_bytes() / self.n_workers / TASK_BYTES

    def estimate(
        self, function: Callable[[Item, float], Result], items: Sequence[Item]
    ) -> tuple[Result, ...]:
        """Run a function on items while there is time; return the results in their order.

        The function is given an item, and for how many seconds it may work on it. Later
        jobs keep their part of the limit, even if these take longer than theirs.
        """
        each_s = inf if self.seconds is None else ESTIMATING * self.seconds
        end_s = max(LEAST_ESTIMATING_S, each_s) * self.n_workers

        def in_time() -> Iterator[tuple[Item, float]]:
            for item in items:
                left_s = end_s - self.used_s
                if left_s <= 0:
                    return
                yield item, left_s / self.n_workers

        within = partial(_within, function)
        found = self.run("estimating", within, in_time(), len(items), self.n_workers)
        self.used_s = min(self.used_s, each_s * self.n_workers)
        return found

    def run(
        self,
        what: str,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        n: int,
        n_at_once: int = AT_ONCE,
    ) -> tuple[Result, ...]:
        """Run a function on up to `n` items; return the results in their order."""
        n_done = 0

        def count(_place: int, timed: tuple[Result, float]) -> None:
            nonlocal n_done
            n_done += 1
            self.used_s += timed[1]
            if self.on_progress is not None:
                self.on_progress(what, n_done, n)

        timed = partial(_timed, function)
        found = run_jobs(timed, items, self.executor, n_at_once=n_at_once, on_done=count)
        return tuple(result for result, _ in found)


def _within(function: Callable[[Item, float], Result], job: tuple[Item, float]) -> Result:
    """Return what a function returns of an item that it may work on for some seconds."""
    return function(*job)


def _timed(function: Callable[[Item], Result], item: Item) -> tuple[Result, float]:
    """Return what a function returns, and how long its thread worked for it."""
    begin = thread_time()
    return function(item), thread_time() - begin
