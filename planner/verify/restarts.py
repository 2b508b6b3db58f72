"""Two starts, one after the other: what one leaves to do the next does not overtake.

Plans are started again and again. A rank's start begins when its start before
has completed; other ranks of its node may then still be at work in the start
before, in the memory they share. So executors keep a gate: a task that writes
shared memory waits until all ranks of its node have completed the start before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.jit import compiled
from collplan.planner.errors import RaceError
from collplan.planner.plan import pieces as csr
from collplan.planner.plan.hazards import Accesses, cut_into_atoms
from collplan.planner.plan.matching import Rows
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer, Plan
from collplan.planner.verify.order import event_order


def gated_tasks(plan: Plan) -> Bools:
    """Mark the tasks that executors hold back until the node has completed the start before."""
    gated = np.zeros(plan.n_tasks, dtype=bool)
    gated[plan.writes.owner()[plan.writes.buffer == Buffer.SHARED]] = True
    return gated


def check_restarts(
    plan: Plan, sends: Rows, recvs: Rows, start: Ints, completion: Ints, gated: Bools
) -> None:
    """Raise where a task touches shared memory before others are done with it in the start before.

    Parameters
    ----------
    plan : Plan
    sends, recvs : ndarray
        Rows of the two ends of every message.
    start, completion : ndarray
        A legal execution, as `completion_order` returns it.
    gated : ndarray of bool, shape (n_tasks,)
        The tasks that wait at the gate, as `gated_tasks` marks them.

    Raises
    ------
    RaceError
        Naming the two tasks and what they both touch.

    Notes
    -----
    A start begins on a rank when the start before has completed there, and a
    gated task when it has on all ranks of the node; no other path leads from
    one start into the next. So of what comes before a task in its own start the
    ranks that have begun, and the nodes whose gate was passed, say which ranks
    had completed; and those had waited for all that comes before their tasks.
    """
    if not plan.shared_sizes.any():
        return
    sender = np.full(plan.n_tasks, -1, dtype=np.int64)
    sender[recvs] = sends
    columns = (plan.deps.indptr, plan.deps.task, plan.deps.kind)
    graph = (*map(np.ascontiguousarray, columns), sender)
    node = np.ascontiguousarray(plan.rank_node[plan.rank])
    passed = _spread_gates(*graph, node, gated, event_order(start, completion))
    early = np.flatnonzero(~passed)
    if not len(early):
        return
    sides = (_shared(plan.reads, plan), _shared(plan.writes, plan))
    reads, writes = cut_into_atoms(plan.rank, sides[0], sides[1], plan.rank_node)
    for task in early[_touches(reads)[early] | _touches(writes)[early]].tolist():
        others = _rivals(plan, reads, writes, task)
        if others:
            finished = _finished_before(plan, sender, node, gated, task)
            others = [other for other in others if plan.n_tasks + other not in finished]
        if others:
            raise RaceError(
                f"nothing orders {plan.task(others[0])} in one start and {plan.task(task)} in the "
                "next, which touch the same memory"
            )


def _shared(extents: Any, plan: Plan) -> Pieces:
    """Return the pieces in shared buffers only."""
    pieces = csr.from_extents(extents, plan.patterns)
    kept = pieces.buffer == Buffer.SHARED
    lengths = np.bincount(pieces.owner[kept], minlength=len(pieces))
    return Pieces(csr.running_total(lengths), *(column[kept] for column in pieces.columns()))


def _touches(accesses: Accesses) -> Bools:
    return np.asarray(np.diff(accesses.indptr) > 0)


@compiled
def _spread_gates(
    indptr: Ints, before: Ints, kind: Ints, sender: Ints, node: Ints, gated: Bools, events: Ints
) -> Any:
    """Mark tasks that start after a gated one of their node, along chains inside the node."""
    n = len(node)
    at_start, at_end = gated.copy(), gated.copy()
    for event in events:
        if event < n:
            for j in range(indptr[event], indptr[event + 1]):
                on_start = (kind[j] & 1) != 0
                at_start[event] |= at_start[before[j]] if on_start else at_end[before[j]]
        else:
            task = event - n
            at_end[task] = at_start[task]
            if sender[task] >= 0 and node[sender[task]] == node[task]:
                at_end[task] |= at_start[sender[task]]
    return at_start


def _rivals(plan: Plan, reads: Accesses, writes: Accesses, task: int) -> list[int]:
    """Return tasks of other ranks that conflict with a task in shared memory, in row order."""
    found: set[int] = set()
    for mine, theirs in ((reads, (writes,)), (writes, (reads, writes))):
        for j in range(mine.indptr[task], mine.indptr[task + 1]):
            for other in theirs:
                hit = (other.low < mine.high[j]) & (other.high > mine.low[j])
                found |= set(
                    (np.searchsorted(other.indptr, np.flatnonzero(hit), side="right") - 1).tolist()
                )
    return sorted(row for row in found if plan.rank[row] != plan.rank[task])


def _finished_before(plan: Plan, sender: Ints, node: Ints, gated: Bools, task: int) -> set[int]:
    """Return the events of one start that have happened when a task of the next one starts."""
    own = _past(plan, sender, [task])
    begun = np.array([event for event in own if event < plan.n_tasks])
    is_done = np.isin(plan.rank, plan.rank[begun]) | np.isin(node, node[begun[gated[begun]]])
    return _past(plan, sender, (plan.n_tasks + np.flatnonzero(is_done)).tolist())


def _past(plan: Plan, sender: Ints, events: list[int]) -> set[int]:
    """Return events (x starts, n + x completes) and all that come before them in their start."""
    n = plan.n_tasks
    seen, stack = set(events), list(events)
    while stack:
        event = stack.pop()
        if event < n:
            mine = slice(plan.deps.indptr[event], plan.deps.indptr[event + 1])
            on_start = plan.deps.kind[mine] & 1
            previous = (plan.deps.task[mine] + np.where(on_start, 0, n)).tolist()
        else:
            row = event - n
            previous = [row] + ([int(sender[row])] if sender[row] >= 0 else [])
        fresh = [before for before in previous if before not in seen]
        seen.update(fresh)
        stack += fresh
    return seen
