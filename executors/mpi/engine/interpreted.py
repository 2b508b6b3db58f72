"""The loop that runs one rank's program; what it runs was bound before.

Everything a task needs is looked up once, at binding. A start copies the
counters of unreleased predecessors and follows the successor lists.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mpi4py import MPI

from collplan.executors.mpi.engine.running import advance_others, note_end, note_start
from collplan.executors.mpi.errors import still_running
from collplan.planner.errors import DeadlockError
from collplan.planner.plan.plan import Stage

if TYPE_CHECKING:
    from collplan.executors.mpi.engine.progress import NodeProgress
    from collplan.executors.mpi.program.program import Program, Successors
    from collplan.executors.mpi.program.views import Action

IDLE_SLEEP_S: Final = 50e-6
"""How long an idle rank sleeps between polls, for each rank on its core, where ranks share it."""
LONGEST_SLEEP_S: Final = 400e-6
"""How long it sleeps at most."""
LOCAL_BATCH: Final = 8
"""Local tasks in a row before messages get a turn."""
EAGER_POLLS: Final = 4
"""Polls in a row before an idle rank with a core of its own gives it away for once."""


class Engine:
    """Run a bound program again and again, in the order its dependencies allow.

    Parameters
    ----------
    program : Program
        The rank's tasks and whom they release.
    requests : sequence of MPI.Prequest or None
        The persistent request of each SEND and RECV, None for local tasks.
    actions : sequence of callable or None
        What each local task does; None where there is nothing to do.
    ranks_per_core : float
        Above 1 an idle rank sleeps between polls, which cost the core that
        others compute on.
    progress : NodeProgress, optional
        Where ranks of a node that share memory say how far they are.
    """

    def __init__(
        self,
        program: Program,
        requests: Sequence[MPI.Prequest | None],
        actions: Sequence[Action | None],
        ranks_per_core: float,
        progress: NodeProgress | None = None,
    ) -> None:
        self._requests = requests
        self._progress = progress
        self._waiting: list[int] = []
        self._is_ending = False
        self._actions = actions
        self._sleep_s = sleep_between_polls(ranks_per_core)
        self._n_before: list[int] = program.n_before.tolist()
        self._on_start = _lists(program.on_start)
        self._on_completion = _lists(program.on_completion)
        stage = program.stage.tolist()
        self._is_held = [value == Stage.WAIT for value in stage]
        self._n_in_start = stage.count(Stage.START)
        self._is_in_start = [value == Stage.START for value in stage]
        roots = [task for task, n in enumerate(self._n_before) if n == 0]
        self._first_held = [task for task in roots if self._is_held[task]]
        waits = progress.waits if progress is not None else [False] * len(self._n_before)
        self._waits = waits
        self._first_waiting = [t for t in roots if waits[t] and not self._is_held[t]]
        free = [task for task in roots if not self._is_held[task] and not waits[task]]
        self._first_messages = [task for task in free if requests[task] is not None]
        self._first_local = [task for task in free if requests[task] is None]
        self._n_held = self._is_held.count(True)
        self._n_left = 0
        self._n_left_in_start = 0
        self._n_left_held = 0
        self._before: list[int] = []
        self._messages: list[int] = []
        self._local: list[int] = []
        self._held: list[int] = []
        self._is_holding = True
        self._active: list[MPI.Prequest] = []
        self._active_task: list[int] = []

    @property
    def is_running(self) -> bool:
        """Return whether a start has not completed yet."""
        return self._n_left > 0 or self._is_ending

    @property
    def n_left(self) -> int:
        """Return how many tasks the start has left."""
        return self._n_left

    @property
    def is_in_background(self) -> bool:
        """Return False: everything runs on the caller's thread."""
        return False

    def start(self) -> None:
        """Start every task that is ready, and finish those that belong inside the start."""
        if self.is_running:
            raise still_running("started")
        self._n_left = len(self._n_before)
        self._n_left_in_start = self._n_in_start
        self._n_left_held = self._n_held
        self._before = self._n_before.copy()
        # Ascending lists are heaps already.
        self._messages = self._first_messages.copy()
        self._local = self._first_local.copy()
        self._held = self._first_held.copy()
        self._is_holding = True
        if self._progress is not None:
            self._begin_shared(self._progress)
        self._run_ready()
        while self._n_left_in_start:
            self._get_on()
        note_start(self)

    def move(self, sent_at: int, received_at: int) -> bool:
        """Return False: requests and views hold addresses."""
        return False

    def test(self) -> bool:
        """Advance without blocking; return whether everything is done.

        Tasks that belong inside `wait` run here only when they alone are
        left, so that a program that only tests completes too.
        """
        is_done = self.advance()
        if is_done:
            note_end(self)
        return is_done

    def advance(self) -> bool:
        """Do what `test` does, for another plan's wait."""
        if not self.is_running:
            return True
        if self._n_left == self._n_left_held:
            self._release_held()
        self._run_ready()
        self._poll()
        self._run_ready()
        return not self.is_running

    def wait(self) -> None:
        """Advance until everything is done."""
        if self._n_left_held:
            self._release_held()
        while self.is_running:
            self._get_on()
        note_end(self)

    def run(self) -> None:
        """Start and wait."""
        self.start()
        self.wait()

    def _get_on(self) -> None:
        """Run what is ready, then wait for messages if anything is left."""
        self._run_ready()
        if not self.is_running:
            return
        if not (self._active or self._waiting or (self._is_ending and not self._n_left)):
            raise DeadlockError(
                f"{self._n_left} tasks of this rank wait for each other or for a later wait; "
                "verify(plan) names them"
            )
        self._poll_until_something()

    def _run_ready(self) -> None:
        """Start ready messages, then run local tasks one by one, polling now and then."""
        messages, local = self._messages, self._local
        n_local = 0
        while messages or local:
            while messages:
                task = heappop(messages)
                request = self._requests[task]
                assert request is not None
                request.Start()
                self._active.append(request)
                self._active_task.append(task)
                for after in self._on_start[task]:
                    self._release(after)
            if local:
                task = heappop(local)
                for after in self._on_start[task]:
                    self._release(after)
                action = self._actions[task]
                if action is not None:
                    action()
                self._complete(task)
                n_local += 1
                if n_local % LOCAL_BATCH == 0 and self._active:
                    self._poll()

    def _begin_shared(self, progress: NodeProgress) -> None:
        progress.begin()
        self._waiting = self._first_waiting.copy()
        self._is_ending = progress.ends_together
        if not self._n_left:
            progress.say_all_completed()

    def _poll(self) -> bool:
        found = self._progress is not None and self._look_around(self._progress)
        if self._active:
            return self._retire(MPI.Prequest.Testsome(self._active)) or found
        if self._progress is not None and not found:
            self._progress.push_on()
        return found

    def _look_around(self, progress: NodeProgress) -> bool:
        """Queue tasks that others let run, end a start they have completed; return if any."""
        free = [task for task in self._waiting if progress.is_free(task)]
        if free:
            self._waiting = [task for task in self._waiting if task not in set(free)]
        for task in free:
            self._queue(task)
        if self._is_ending and not self._n_left and progress.have_completed(progress.epoch):
            self._is_ending = False
            return True
        return bool(free)

    def _poll_until_something(self) -> None:
        # Not Waitsome: it spins until the kernel takes the core away, which costs
        # milliseconds whenever the partner needs that core.
        polls = 0
        while not self._poll():
            polls += 1
            advance_others(self)
            if self._sleep_s:
                time.sleep(self._sleep_s)
            elif polls >= EAGER_POLLS:
                os.sched_yield()

    def _retire(self, indices: list[int] | None) -> bool:
        """Complete the tasks of finished requests; return whether there were any."""
        if not indices:
            return False
        active, tasks = self._active, self._active_task
        indices.sort(reverse=True)
        done = [tasks[i] for i in indices]
        for i in indices:
            # The last request takes the place: positions above i are settled already.
            last, last_task = active.pop(), tasks.pop()
            if i < len(active):
                active[i], tasks[i] = last, last_task
        for task in done:
            self._complete(task)
        return True

    def _complete(self, task: int) -> None:
        self._n_left -= 1
        if self._progress is not None:
            self._progress.say_completed(task)
            if not self._n_left:
                self._progress.say_all_completed()
        if self._is_in_start[task]:
            self._n_left_in_start -= 1
        elif self._is_held[task]:
            self._n_left_held -= 1
        for after in self._on_completion[task]:
            self._release(after)

    def _release(self, task: int) -> None:
        self._before[task] -= 1
        if self._before[task] == 0:
            if self._is_holding and self._is_held[task]:
                self._held.append(task)
            elif self._waits[task]:
                self._waiting.append(task)
            else:
                self._queue(task)

    def _queue(self, task: int) -> None:
        heappush(self._local if self._requests[task] is None else self._messages, task)

    def _release_held(self) -> None:
        self._is_holding = False
        for task in self._held:
            if self._waits[task]:
                self._waiting.append(task)
            else:
                self._queue(task)
        self._held.clear()


def sleep_between_polls(ranks_per_core: float) -> float:
    """Return how long an idle rank sleeps between polls, in s: not at all on a core of its own."""
    return min(LONGEST_SLEEP_S, ranks_per_core * IDLE_SLEEP_S) if ranks_per_core > 1 else 0.0


def _lists(successors: Successors) -> list[list[int]]:
    bounds, tasks = successors.indptr.tolist(), successors.task.tolist()
    return [tasks[low:high] for low, high in pairwise(bounds)]
