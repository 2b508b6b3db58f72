"""Every two conflicting accesses are ordered, whenever messages happen to arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays.jit import compiled
from collplan.planner.errors import MatchOrderError, RaceError
from collplan.planner.plan import pieces as csr
from collplan.planner.plan.hazards import cut_into_atoms
from collplan.planner.plan.kernels import derive_hazards
from collplan.planner.plan.matching import Rows
from collplan.planner.plan.plan import Plan

Ints = npt.NDArray[np.integer[Any]]


def check_races(plan: Plan, sends: Rows, recvs: Rows, start: Ints, completion: Ints) -> None:
    """Raise where nothing orders two conflicting accesses, or two messages of one tag.

    In one legal execution, each conflict's earlier access must complete
    before the later one starts in *every* execution: by a chain of
    dependencies and messages, where a send may complete before it is
    received (eager) and memory it reads may then be reused.

    Parameters
    ----------
    plan : Plan
    sends, recvs : ndarray
        Rows of the two ends of every message.
    start, completion : ndarray
        A legal execution, as `completion_order` returns it.

    Raises
    ------
    RaceError
        Naming the two tasks and what they both touch.
    MatchOrderError
        Naming two messages of one tag whose order of starts is open.
    """
    reads = csr.from_extents(plan.reads, plan.patterns)
    writes = csr.from_extents(plan.writes, plan.patterns)
    order = np.lexsort((np.arange(plan.n_tasks), completion))
    read, write = cut_into_atoms(
        plan.rank[order], reads.take(order), writes.take(order), plan.rank_node
    )
    n_reads = int((read.high - read.low).sum())
    indptr, before = derive_hazards(
        read.indptr, read.low, read.high, write.indptr, write.low, write.high, read.n_atoms, n_reads
    )
    after = np.repeat(order, np.diff(indptr))
    pairs = order[before], after
    search = _Search(plan, sends, recvs, start, completion)
    bad = search.first_unordered(*pairs, from_start=False)
    if bad >= 0:
        one, other = plan.task(int(pairs[0][bad])), plan.task(int(pairs[1][bad]))
        if one.row == other.row:
            raise RaceError(f"{one} overlaps itself: it writes an element twice")
        raise RaceError(f"nothing orders {one} and {other}, which touch the same memory")
    for ends in (sends, recvs):
        first, second = _same_tag_pairs(plan, ends)
        bad = search.first_unordered(first, second, from_start=True)
        if bad >= 0:
            one, other = plan.task(int(first[bad])), plan.task(int(second[bad]))
            raise MatchOrderError(
                f"nothing orders the starts of {one} and {other}, which share a tag"
            )


class _Search:
    """Looks for chains of dependencies and messages, backwards from a task's start."""

    def __init__(self, plan: Plan, sends: Rows, recvs: Rows, start: Ints, completion: Ints) -> None:
        sender = np.full(plan.n_tasks, -1, dtype=np.int64)
        sender[recvs] = sends
        self.graph = (
            np.ascontiguousarray(plan.deps.indptr),
            np.ascontiguousarray(plan.deps.task),
            np.ascontiguousarray(plan.deps.kind),
            sender,
            np.ascontiguousarray(start),
            np.ascontiguousarray(completion),
        )

    def first_unordered(self, first: Ints, second: Ints, *, from_start: bool) -> int:
        """Return the first pair whose order is open, -1 if there is none."""
        pairs = (np.ascontiguousarray(first), np.ascontiguousarray(second))
        return int(_first_unordered(*self.graph, *pairs, from_start))


@compiled
def _first_unordered(
    indptr: Ints,
    before: Ints,
    kind: Ints,
    sender: Ints,
    start: Ints,
    completion: Ints,
    first: Ints,
    second: Ints,
    from_start: bool,
) -> Any:
    """Return the first pair without a path from `first` to the start of `second`.

    The path begins at the start of `first` or at its completion. Events are
    numbered: x starts as x, completes as n + x. Nothing that happens before
    the origin in one execution can lie on a path from it.
    """
    n = len(start)
    seen = np.full(2 * n, -1, np.int64)
    stack = np.empty(2 * n, np.int64)
    for pair in range(len(first)):
        a, b = first[pair], second[pair]
        goal = a if from_start else n + a
        earliest = start[a] if from_start else completion[a]
        found = False
        for j in range(indptr[b], indptr[b + 1]):
            if before[j] == a and ((kind[j] & 1) == 0 or from_start):
                found = True
                break
        if found:
            continue
        stack[0], top = b, 1
        while top > 0 and not found:
            top -= 1
            event = stack[top]
            if event < n:
                for j in range(indptr[event], indptr[event + 1]):
                    on_start = (kind[j] & 1) != 0
                    previous = before[j] if on_start else n + before[j]
                    when = start[before[j]] if on_start else completion[before[j]]
                    if previous == goal:
                        found = True
                    elif when >= earliest and seen[previous] != pair:
                        seen[previous] = pair
                        stack[top] = previous
                        top += 1
            else:
                task = event - n
                for previous in (task, sender[task]):
                    if previous < 0:
                        continue
                    if previous == goal:
                        found = True
                    elif start[previous] >= earliest and seen[previous] != pair:
                        seen[previous] = pair
                        stack[top] = previous
                        top += 1
        if not found:
            return pair
    return -1


def _same_tag_pairs(plan: Plan, ends: Rows) -> tuple[Rows, Rows]:
    """Return neighbours, in row order, among messages of one source, destination and tag."""
    rows = np.sort(ends)
    order = rows[np.lexsort((rows, plan.tag[rows], plan.peer[rows], plan.rank[rows]))]
    same = np.ones(max(0, len(order) - 1), dtype=bool)
    for column in (plan.tag, plan.peer, plan.rank):
        same &= column[order[1:]] == column[order[:-1]]
    return order[:-1][same], order[1:][same]
