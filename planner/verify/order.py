"""A legal execution in which everything completes, or the cycle that forbids one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from textwrap import shorten
from typing import Any, Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.jit import compiled, inner
from collplan.planner.errors import DeadlockError, StageError
from collplan.planner.plan.matching import Rows, match_messages
from collplan.planner.plan.plan import NONE, Op, Plan, Stage
from collplan.planner.plan.ragged import ON_START

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
_WHEN: Final = ("inside start", "in the background", "inside wait")
"""Times at which tasks run, by `Stage`."""


class Execution(NamedTuple):
    """The waits of a plan of n tasks, and one legal sequential execution, for compiled kernels.

    Task x starts as event x and completes as event n + x.

    Parameters
    ----------
    indptr, before, kind : ndarray
        Dependencies in CSR by task, as the plan has them.
    sender : ndarray of int64, shape (n_tasks,)
        The row of every receive's send; -1 for other tasks.
    when : ndarray of int64, shape (2 * n_tasks,)
        The position of every event; the two ends of a message complete together.
    """

    indptr: Ints
    before: Ints
    kind: Ints
    sender: Ints
    when: Ints

    @classmethod
    def of(cls, plan: Plan) -> Execution:
        """Execute a plan of all ranks; raise as `match_messages` and `completion_order` do."""
        sends, recvs = match_messages(plan)
        sender = np.full(plan.n_tasks, -1, dtype=np.int64)
        sender[recvs] = sends
        when = np.concatenate(completion_order(plan, sends, recvs))
        return cls(*plan.deps.for_kernels(), sender, when)

    def inside(self, plan: Plan) -> Execution:
        """Return the same execution, but of messages between nodes nothing is said.

        In a folded plan these lead to the copy of a task on another node.
        """
        return self._replace(sender=np.where(plan.crosses, NONE, self.sender))

    def waits_of(self, event: int) -> list[int]:
        """Return the events that an event waits for; of a receive, its send's start comes last."""
        n = len(self.sender)
        if event >= n:
            sender = int(self.sender[event - n])
            return [event - n] if sender == NONE else [event - n, sender]
        own = slice(self.indptr[event], self.indptr[event + 1])
        return list((self.before[own] + np.where(self.kind[own] & ON_START, 0, n)).tolist())

    @property
    def completion(self) -> Ints:
        """Return the position of every task's completion."""
        return self.when[len(self.sender) :]

    def events(self) -> Ints:
        """Return all events in the order in which they happen."""
        # At one position a start precedes the completion it belongs to.
        return np.lexsort((np.arange(len(self.when)) >= len(self.sender), self.when))


@compiled
def spread(execution: Execution, events: Ints, seeds: Any) -> Any:
    """Spread bits from starts of tasks along dependencies and eager messages.

    Parameters
    ----------
    execution : Execution
    events : ndarray of int64
        All events in the order in which they happen.
    seeds : ndarray of uint64, shape (n_tasks,)
        The bits that each task has when it starts.

    Returns
    -------
    at_start, at_end : ndarray of uint64, shape (n_tasks,)
        The bits that have reached each task when it starts and when it completes.
        A receive has those of its send's start: a send may complete earlier.
    """
    n = len(seeds)
    at_start, at_end = seeds.copy(), np.zeros(n, np.uint64)
    for event in events:
        if event < n:
            for j in range(execution.indptr[event], execution.indptr[event + 1]):
                before = execution.before[j]
                on_start = (execution.kind[j] & 1) != 0
                at_start[event] |= at_start[before] if on_start else at_end[before]
        else:
            task = event - n
            at_end[task] = at_start[task]
            if execution.sender[task] >= 0:
                at_end[task] |= at_start[execution.sender[task]]
    return at_start, at_end


def check_stages(plan: Plan, execution: Execution) -> None:
    """Raise `StageError` where a task waits for one of a later stage.

    Tasks inside start wait for others inside start only; tasks inside wait are
    waited for by others inside wait only. A start that waited for another rank's
    background tasks could wait forever, as that rank may be at whatever its program
    does before it comes back to the collective. And background tasks must be able
    to end before anybody waits. Each end of a message waits for the other to start,
    as a send may wait for its receive (rendezvous).

    Raises
    ------
    StageError
        Naming the two tasks.
    """
    if (plan.stage == Stage.BACKGROUND).all():
        return
    after = plan.deps.owner()
    recvs = np.flatnonzero(execution.sender >= 0)
    sends = execution.sender[recvs]
    first = np.concatenate((plan.deps.task, sends, recvs))
    second = np.concatenate((after, recvs, sends))
    is_later = plan.stage[first] > plan.stage[second]
    if (i := csr.first_true(is_later)) >= 0:
        how = "waits for" if i < len(after) else "is one message with"
        one, other = plan.task(int(second[i])), plan.task(int(first[i]))
        when, later = _WHEN[one.stage], _WHEN[other.stage]
        raise StageError(f"{one} runs {when}, but {how} {other}, which runs {later}")


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
    waits_for = np.where(plan.deps.kind & ON_START, before, completion[before])
    # What the builder makes runs in row order: each message completes at its receive.
    if (recvs > sends).all() and (waits_for < plan.deps.owner()).all():
        return rows, completion
    partner = np.full(plan.n_tasks, -1, dtype=np.int64)
    partner[sends], partner[recvs] = recvs, sends
    events = np.where(plan.deps.kind & ON_START, before, plan.n_tasks + before)
    order, first = csr.group_by(events, 2 * plan.n_tasks)
    waiting = csr.lengths_of(plan.deps.indptr)
    start, completion, done = _execute(first, plan.deps.owner()[order], waiting, partner)
    if done < plan.n_tasks:
        _raise_deadlock(plan, partner, np.concatenate((start, completion)))
    return start, completion


@compiled
def _execute(first: Ints, after: Ints, waiting: Ints, partner: Ints) -> Any:
    """Run Kahn's algorithm over starts and completions; -1 marks what never happens.

    The tasks ``after[first[e]:first[e + 1]]`` wait for event e, and each task for as many
    events as `waiting` says, which is used up.
    """
    n = len(waiting)
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
        tail = _release(first, after, task, waiting, ready, tail)
        other = partner[task]
        if other >= 0 and start[other] < 0:
            continue
        for end in (task, other):
            if end >= 0:
                completion[end] = clock
                done += 1
                tail = _release(first, after, n + end, waiting, ready, tail)
        clock += 1
    return start, completion, done


@inner
def _release(first: Ints, after: Ints, event: int, waiting: Ints, ready: Ints, tail: int) -> int:
    """Queue the tasks that waited for nothing else; return where the queue ends then."""
    for task in after[first[event] : first[event + 1]]:
        waiting[task] -= 1
        if waiting[task] == 0:
            ready[tail] = task
            tail += 1
    return tail


def _raise_deadlock(plan: Plan, partner: Ints, when: Ints) -> None:
    """Find a short cycle among what never happens, and raise with it."""
    n, stuck = plan.n_tasks, np.flatnonzero(when < 0).tolist()
    for eager in (True, False):
        # A message waits for both its ends (rendezvous), or only a receive for its send.
        sender = np.where(plan.op == Op.SEND, NONE, partner) if eager else partner
        waits = partial(_unmet, Execution(*plan.deps.for_kernels(), sender, when))
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


def _unmet(execution: Execution, event: int) -> Iterator[int]:
    """Return what an event waits for that never happens."""
    return (other for other in execution.waits_of(event) if execution.when[other] < 0)


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
    """Return a shortest cycle through an event; none if the search meets more than `most` waits."""
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
