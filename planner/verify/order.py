"""An order in which everything can complete, or the cycle that forbids one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from textwrap import shorten
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays.jit import compiled
from collplan.planner.errors import DeadlockError
from collplan.planner.plan.matching import Rows
from collplan.planner.plan.plan import ON_START, Op, Plan

Ints = npt.NDArray[np.integer[Any]]
Waits = Callable[[int], Iterator[int]]
"""A function from an event to the events it waits for."""

MOST_SHOWN: Final = 100
"""Tasks of a cycle that are named."""
MOST_TRIED: Final = 20
"""Events of a cycle through which a shorter one is looked for."""
MOST_LETTERS: Final = 400
"""Letters of each, which may wait for thousands of others."""
MOST_SEEN: Final = 100_000
"""Events, and waits of each, that are looked at to find a shorter cycle through an event."""


def completion_order(plan: Plan, sends: Rows, recvs: Rows) -> tuple[Ints, Ints]:
    """Return when every task starts and completes in one legal sequential execution.

    The execution is a rendezvous one: a message completes at both ends once
    both have started. If there is one under rendezvous there is one under
    eager sending, too.

    Returns
    -------
    start, completion : ndarray of int64, shape (n_tasks,)
        Positions in that execution; the two ends of a message complete together.

    Raises
    ------
    DeadlockError
        With a minimal cycle of tasks, saying whether eager sending escapes it.
    """
    rows = np.arange(plan.n_tasks, dtype=np.int64)
    completion = rows.copy()
    completion[sends] = recvs
    before = plan.deps.task
    after = np.repeat(rows, np.diff(plan.deps.indptr))
    waits_for = np.where(plan.deps.kind & ON_START, before, completion[before])
    # What the builder makes runs in row order: each message completes at its receive.
    if (recvs > sends).all() and (waits_for < after).all():
        return rows, completion
    start, completion, done = _execute(
        np.ascontiguousarray(plan.deps.indptr),
        np.ascontiguousarray(before),
        np.ascontiguousarray(plan.deps.kind),
        _partners(plan, sends, recvs),
    )
    if done < plan.n_tasks:
        _raise_deadlock(plan, sends, recvs, start, completion)
    return start, completion


def event_order(start: Ints, completion: Ints) -> Ints:
    """Return starts (x) and completions (n + x) in the order in which they happen.

    Parameters
    ----------
    start, completion : ndarray of int64, shape (n_tasks,)
        As `completion_order` returns them.
    """
    n = len(start)
    when = np.concatenate((start, completion))
    # At one position a start precedes the completion it belongs to.
    return np.lexsort((np.repeat((0, 1), n), when))


def _partners(plan: Plan, sends: Rows, recvs: Rows) -> Ints:
    partner = np.full(plan.n_tasks, -1, dtype=np.int64)
    partner[sends], partner[recvs] = recvs, sends
    return partner


@compiled
def _execute(indptr: Ints, before: Ints, kind: Ints, partner: Ints) -> Any:
    """Run Kahn's algorithm over starts and completions; -1 marks what never happens."""
    n = len(indptr) - 1
    waiting = np.zeros(n, np.int32)
    n_after = np.zeros(n + 1, np.int64)
    for task in range(n):
        waiting[task] = indptr[task + 1] - indptr[task]
        for j in range(indptr[task], indptr[task + 1]):
            n_after[before[j] + 1] += 1
    first = np.cumsum(n_after)
    fill = first.copy()
    after = np.empty(len(before), np.int64)
    on_start = np.empty(len(before), np.bool_)
    for task in range(n):
        for j in range(indptr[task], indptr[task + 1]):
            after[fill[before[j]]] = task
            on_start[fill[before[j]]] = (kind[j] & 1) != 0
            fill[before[j]] += 1
    start, completion = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    ready = np.empty(n, np.int64)
    head, tail, clock, done = 0, 0, 0, 0
    for task in range(n):
        if waiting[task] == 0:
            ready[tail] = task
            tail += 1
    while head < tail:
        task = ready[head]
        head += 1
        start[task] = clock
        clock += 1
        for j in range(first[task], first[task + 1]):
            if on_start[j]:
                waiting[after[j]] -= 1
                if waiting[after[j]] == 0:
                    ready[tail] = after[j]
                    tail += 1
        other = partner[task]
        if other >= 0 and start[other] < 0:
            continue
        for end in (task, other):
            if end < 0:
                continue
            completion[end] = clock
            done += 1
            for j in range(first[end], first[end + 1]):
                if not on_start[j]:
                    waiting[after[j]] -= 1
                    if waiting[after[j]] == 0:
                        ready[tail] = after[j]
                        tail += 1
        clock += 1
    return start, completion, done


def _raise_deadlock(plan: Plan, sends: Rows, recvs: Rows, start: Ints, completion: Ints) -> None:
    """Find a short cycle among what never happens, and raise with it."""
    partner = _partners(plan, sends, recvs)
    n = plan.n_tasks
    happens = np.concatenate((start, completion)) >= 0

    def waits_of(event: int, eager: bool) -> Iterator[int]:
        """Yield what a start (its row) or a completion (n + its row) waits for."""
        row = event % n
        if event >= n:
            waits = [row]
            if partner[row] >= 0 and not (eager and plan.op[row] == Op.SEND):
                waits.append(int(partner[row]))
        else:
            own = slice(plan.deps.indptr[row], plan.deps.indptr[row + 1])
            at_start = (plan.deps.kind[own] & ON_START) != 0
            waits = np.where(at_start, plan.deps.task[own], n + plan.deps.task[own]).tolist()
        yield from (other for other in waits if not happens[other])

    stuck = np.flatnonzero(~happens).tolist()
    for eager in (True, False):
        waits = partial(waits_of, eager=eager)
        cycle = _find_cycle(waits, stuck, 2 * n)
        if cycle:
            break
    tasks = list(dict.fromkeys(event % n for event in _shortened(waits, cycle)))
    how = "" if eager else " when sends wait for their receives (rendezvous)"
    chain = [
        shorten(str(plan.task(row)), MOST_LETTERS, placeholder=" ...") for row in tasks[:MOST_SHOWN]
    ]
    if len(tasks) > MOST_SHOWN:
        chain.append(f"{len(tasks) - MOST_SHOWN} more")
    chain.append(chain[0])
    raise DeadlockError(f"{len(tasks)} tasks wait for each other{how}: {' waits for '.join(chain)}")


def _find_cycle(waits_of: Waits, events: Iterable[int], n_events: int) -> list[int]:
    """Return events of which each waits for the next, and the last for the first; or none.

    A walk that goes back where it is stuck: it needs no graph, which would not fit into
    memory beside a plan with very many dependencies.
    """
    is_done = np.zeros(n_events, dtype=bool)
    place: dict[int, int] = {}
    for origin in events:
        path: list[int] = []
        branches: list[Iterator[int]] = [iter((origin,))]
        while branches:
            event = next(branches[-1], None)
            if event is None:
                branches.pop()
                if path:
                    is_done[path[-1]] = True
                    del place[path.pop()]
            elif event in place:
                return path[place[event] :]
            elif not is_done[event]:
                place[event] = len(path)
                path.append(event)
                branches.append(waits_of(event))
    return []


def _shortened(waits_of: Waits, cycle: list[int]) -> list[int]:
    """Return a shortest cycle through one of the first events of one, as far as is cheap to see."""
    ways = [_way_back(waits_of, origin, MOST_SEEN) for origin in cycle[:MOST_TRIED]]
    return min([cycle, *filter(None, ways)], key=len)


def _way_back(waits_of: Waits, origin: int, most_seen: int) -> list[int]:
    """Return a shortest cycle through an event; none if more than so many waits are to be seen."""
    comes_from: dict[int, int] = {}
    queue = deque([origin])
    while queue and len(comes_from) < most_seen:
        event = queue.popleft()
        for other in islice(waits_of(event), most_seen):
            if other == origin:
                path = [event]
                while path[-1] != origin:
                    path.append(comes_from[path[-1]])
                return path[::-1]
            if other not in comes_from:
                comes_from[other] = event
                queue.append(other)
    return []
