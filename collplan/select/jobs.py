"""Jobs of a comparison, which run on any executor within a limit of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from math import inf
from time import thread_time
from typing import Final, TypeVar

from collplan.planner.memory import free_bytes
from collplan.select.sweep import AT_ONCE, Price, number_of_workers, price_all, run_jobs
from collplan.specs import Method, PlanSpec

ESTIMATING: Final = 0.6
"""Share of the time limit after which no more candidates are estimated."""
LEAST_ESTIMATING_S: Final = 10.0
"""Least time for estimates in seconds, whatever the limit."""
TASK_S: Final = 3e-6
"""Seconds for compiling and simulating one task."""
PLAN_EFFORT: Final = 5_000
"""Effort of compiling and simulating any plan, in tasks, in addition to that of its tasks."""
TASK_BYTES: Final = 600.0
"""Memory to compile and simulate one task, in bytes."""
MEMORY_SHARE: Final = 0.5
"""Share of the free memory that simulations may take together."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Function of the kind of jobs, the number of those that are done, and the number of all."""


@dataclass
class Jobs:
    """Jobs on an executor, their progress, and the processor time that is left for them.

    Parameters
    ----------
    executor : Executor or None
        Workers; None for this process.
    on_progress : callable or None
        Function called when a job is done.
    seconds : float or None
        Limit of the processor time of each worker in seconds; None for no limit.
    effort : int, optional
        Limit of the tasks that simulations compile. Which plans are simulated then depends on
        the plans alone, and not on the speed of the machine.
    used_s : float
        Processor time of all workers up to now, in seconds.
    used_effort : int
        Number of tasks of all plans up to now.
    """

    executor: Executor | None
    on_progress: Progress | None
    seconds: float | None
    effort: int | None = None
    used_s: float = 0.0
    used_effort: int = 0

    def __post_init__(self) -> None:
        self._n_workers = number_of_workers(self.executor)

    @property
    def n_workers(self) -> int:
        """Return the number of jobs that run at the same time."""
        return self._n_workers

    @property
    def left_s(self) -> float:
        """Return the remaining processor time of all workers together, in seconds."""
        if self.effort is not None:
            return TASK_S * (self.effort - self.used_effort)
        return inf if self.seconds is None else self.seconds * self.n_workers - self.used_s

    def most_effort(self) -> float:
        """Return the effort of the largest plan that fits into the free memory."""
        return MEMORY_SHARE * free_bytes() / self.n_workers / TASK_BYTES

    def estimate(
        self, function: Callable[[Item, float], Result], items: Sequence[Item]
    ) -> tuple[Result, ...]:
        """Run a function on items until the time is over; return the results in the items' order.

        The function gets an item and the number of seconds that it may work on it. Simulations
        keep their share of the limit, even if estimates exceed theirs.
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

    def price(self, what: str, specs: Sequence[PlanSpec], efforts: Sequence[int]) -> list[Price]:
        """Price specs of one collective on one machine; return the prices in their order.

        Specs of the same method are priced together, as they may share a plan, unless they have
        passes (see `scaling.shrink`). The groups with the greatest efforts come first, so that
        none of them runs alone at the end.
        """
        together: dict[Method | int, list[int]] = {}
        for i, spec in enumerate(specs):
            together.setdefault(i if spec.passes else spec.method, []).append(i)
        parts = sorted(together.values(), key=lambda some: -sum(efforts[i] for i in some))
        groups = [[specs[i] for i in some] for some in parts]
        self.used_effort += sum(PLAN_EFFORT + effort for effort in efforts)
        found = self.run(what, price_all, groups, len(groups))
        place = {
            i: price
            for some, prices in zip(parts, found, strict=True)
            for i, price in zip(some, prices, strict=True)
        }
        return [place[i] for i in range(len(specs))]

    def run(
        self,
        what: str,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        n: int,
        n_at_once: int = AT_ONCE,
    ) -> tuple[Result, ...]:
        """Run a function on up to `n` items; return the results in the items' order."""
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
    """Call a function with an item and the number of seconds that it may work on it."""
    return function(*job)


def _timed(function: Callable[[Item], Result], item: Item) -> tuple[Result, float]:
    """Return the result of a function, and the processor time of its thread in seconds."""
    begin = thread_time()
    return function(item), thread_time() - begin
