"""A legal execution of a plan in which all tasks complete, or a cycle that prevents it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from textwrap import shorten
from typing import Any, Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import DeadlockError, StageError
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.plan.matching import Rows, match_messages
from collplan.planner.plan.plan import NONE, Op, Plan, Stage
from collplan.planner.plan.ragged import ON_START

Waits = Callable[[int], Iterator[int]]
"""A function from an event to the events it waits for."""

MOST_SHOWN: Final = 100
"""Maximum number of tasks of a cycle in a message."""
MOST_TRIED: Final = 20
"""Number of events of a cycle from which a shorter cycle is searched."""
MOST_LETTERS: Final = 400
"""Maximum length of the text of one task, which may wait for thousands of others."""
MOST_SEEN: Final = 100_000
"""Maximum number of events, and of dependencies per event, in a search for a shorter cycle."""
_WHEN: Final = ("inside start", "in the background", "inside wait")
"""Times at which tasks run, by `Stage`."""


class Execution(NamedTuple):
    """Dependencies of a plan of n tasks and one legal sequential execution, for kernels.

    The start of task x is event x, and its completion is event n + x.

    Parameters
    ----------
    indptr, before, kind : ndarray
        Dependencies in CSR by task, as the plan has them.
    sender : ndarray of int64, shape (n_tasks,)
        The row of every receive's send; -1 for other tasks.
    when : ndarray of int64, shape (2 * n_tasks,)
        The position of every event. The two ends of a message complete together.
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
        """Return the same execution without the messages between nodes.

        In a folded plan, these lead to the copy of a task on another node.
        """
        return self._replace(sender=np.where(plan.crosses, NONE, self.sender))

    def waits_of(self, event: int) -> list[int]:
        """Return the events that an event waits for. The start of a receive's send comes last."""
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
        # At the same position, the start of a task precedes its completion.
        return np.lexsort((np.arange(len(self.when)) >= len(self.sender), self.when))


@compiled
def spread(execution: Execution, events: Ints, seeds: Any) -> Any:
    """Propagate bits from the starts of tasks along dependencies and eager messages.

    Parameters
    ----------
    execution : Execution
    events : ndarray of int64
        All events in the order in which they happen.
    seeds : ndarray of uint64, shape (n_tasks,)
        Bits that each task has at its start.

    Returns
    -------
    at_start, at_end : ndarray of uint64, shape (n_tasks,)
        Bits that have reached each task at its start and at its completion. A receive gets the
        bits of its send's start, as a send may complete before it is received.
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
    """Raise `StageError` where a task waits for a task of a later stage.

    START tasks depend on START tasks only, and only WAIT tasks depend on WAIT tasks. A start that
    waited for background tasks of another rank could block forever, because that rank may execute
    any other code before it returns to the collective. Background tasks must be able to complete
    before any rank waits. Each end of a message waits for the start of the other end, as sends
    may use rendezvous.

    Raises
    ------
    StageError
        The message names the two tasks.
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
    """Return the start and the completion of every task in one legal sequential execution.

    Messages use rendezvous: a message completes at both ends when both ends have started. A plan
    that completes under rendezvous also completes with eager sends.

    Returns
    -------
    start, completion : ndarray of int64, shape (n_tasks,)
        Positions in the execution. The two ends of a message complete together.

    Raises
    ------
    DeadlockError
        The message shows a minimal cycle of tasks, and whether it exists with eager sends.
    """
    rows = np.arange(plan.n_tasks, dtype=np.int64)
    completion = rows.copy()
    completion[sends] = recvs
    before = plan.deps.task
    waits_for = np.where(plan.deps.kind & ON_START, before, completion[before])
    # Compiled plans can be executed in row order: each message completes at its receive.
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
    """Run Kahn's algorithm over starts and completions; -1 marks events that never happen.

    The tasks ``after[first[e]:first[e + 1]]`` wait for event e. `waiting` contains the number of
    events that each task waits for, and is changed.
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
    """Raise `DeadlockError` with a short cycle of events that never happen."""
    n, stuck = plan.n_tasks, np.flatnonzero(when < 0).tolist()
    for eager in (True, False):
        # With rendezvous both ends of a message wait for each other, else only the receive does.
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
    raise DeadlockError(
        f"{len(tasks)} tasks wait for each other{how}: {' waits for '.join(chain)}, "
        f"{plan.round_of(tasks[0])}"
    )


def _unmet(execution: Execution, event: int) -> Iterator[int]:
    """Return the events that an event waits for and that never happen."""
    return (other for other in execution.waits_of(event) if execution.when[other] < 0)


def _find_cycle(waits_of: Waits, events: Iterable[int], n_events: int) -> list[int]:
    """Return a cycle of events, each of which waits for the next one; empty if there is none.

    A depth-first search without a graph, which would not fit into memory beside a plan with many
    dependencies.
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
    """Return the shortest cycle that limited searches from the first events of a cycle find."""
    ways = [_way_back(waits_of, origin, MOST_SEEN) for origin in cycle[:MOST_TRIED]]
    return min([cycle, *filter(None, ways)], key=len)


def _way_back(waits_of: Waits, origin: int, most_seen: int) -> list[int]:
    """Return a shortest cycle through an event; empty if the search reaches `most_seen` events."""
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
