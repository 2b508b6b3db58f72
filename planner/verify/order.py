"""An order in which everything can complete, or the cycle that forbids one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from planner.compiled import compiled
from planner.errors import DeadlockError
from planner.matching import Rows
from planner.plan import ON_START, Op, Plan

Ints = npt.NDArray[np.integer[Any]]


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
    """Find a shortest cycle among the tasks that never complete, and raise with it."""
    import networkx as nx

    partner = dict(zip(sends.tolist(), recvs.tolist(), strict=True))
    partner |= {recv: send for send, recv in partner.items()}
    stuck = np.flatnonzero(completion < 0)

    def waits_of(row: int, eager: bool) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        edges = [(("complete", row), ("start", row))]
        if row in partner and not (eager and plan.op[row] == Op.SEND):
            edges.append((("complete", row), ("start", partner[row])))
        for j in range(plan.deps.indptr[row], plan.deps.indptr[row + 1]):
            event = "start" if plan.deps.kind[j] & ON_START else "complete"
            edges.append((("start", row), (event, int(plan.deps.task[j]))))
        return edges

    for eager in (True, False):
        graph = nx.DiGraph(edge for row in stuck for edge in waits_of(int(row), eager))
        cycle = _short_cycle(graph)
        if cycle:
            break
    tasks = list(dict.fromkeys(row for _, row in cycle))
    how = "" if eager else " when sends wait for their receives (rendezvous)"
    chain = " waits for ".join(str(plan.task(row)) for row in [*tasks, tasks[0]])
    raise DeadlockError(f"{len(tasks)} tasks wait for each other{how}: {chain}")


def _short_cycle(graph: Any) -> list[tuple[str, int]]:
    """Return a shortest cycle through some node of the first knot; empty if there is none."""
    import networkx as nx

    for knot in nx.strongly_connected_components(graph):
        if len(knot) == 1 and not any(graph.has_edge(node, node) for node in knot):
            continue
        inside = graph.subgraph(knot)
        best: list[tuple[str, int]] = []
        # A shortest cycle through one of a few nodes is minimal enough to read, and cheap.
        for origin in sorted(knot)[:50]:
            for successor in inside.successors(origin):
                path = nx.shortest_path(inside, successor, origin)
                if not best or len(path) < len(best):
                    best = path
        return best
    return []
