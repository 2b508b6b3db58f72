"""Proof that conflicting accesses are ordered, independent of when messages arrive."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import MatchOrderError, RaceError
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.plan.hazards import cut_into_atoms, derive_hazards
from collplan.planner.plan.matching import sorted_ends
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.verify.order import Execution


def check_races(plan: Plan, execution: Execution, accesses: tuple[Pieces, Pieces]) -> None:
    """Raise if two conflicting accesses, or two messages with the same tag, are not ordered.

    Of two conflicting accesses, the one that is earlier in a legal execution must complete before
    the other starts in *every* execution. A chain of dependencies and messages must guarantee
    this. An eager send may complete before it is received, and its memory may then be reused.

    Parameters
    ----------
    plan : Plan
    execution : Execution
    accesses : tuple of Pieces
        Memory that tasks read and memory that they write, as `pieces_of` returns it.

    Raises
    ------
    RaceError
        The message names the two tasks.
    MatchOrderError
        The message names two messages with the same tag that may start in any order.
    """
    order = np.argsort(execution.completion, kind="stable")
    reads, writes = (side.take(order) for side in accesses)
    indptr, before = derive_hazards(
        *cut_into_atoms(plan.rank[order], reads, writes, plan.rank_node)
    )
    first: Ints = order[before]
    second: Ints = order[csr.row_numbers(indptr)]
    bad = _unordered(plan, execution, first, second, False)
    if bad >= 0:
        one, other = plan.task(int(first[bad])), plan.task(int(second[bad]))
        if one.row == other.row:
            raise RaceError(
                f"{one} overlaps itself: it writes an element twice, {plan.round_of(one.row)}"
            )
        raise RaceError(
            f"nothing orders {one} and {other}, which touch the same memory, "
            f"{plan.round_of(other.row)}"
        )
    for op in (Op.SEND, Op.RECV):
        first, second = _same_tag_pairs(plan, op)
        if not len(first):  # receives have the tags of sends
            break
        bad = _unordered(plan, execution, first, second, True)
        if bad >= 0:
            one, other = plan.task(int(first[bad])), plan.task(int(second[bad]))
            raise MatchOrderError(
                f"nothing orders the starts of {one} and {other}, which share a tag"
            )


def _unordered(
    plan: Plan, execution: Execution, first: Ints, second: Ints, from_start: bool
) -> int:
    """Return the first unordered pair, as `_first_unordered` does, or -1.

    In a folded plan, most pairs are ordered by a path inside the node. For other pairs, paths
    through other nodes are searched.
    """
    if plan.folding is None:
        return int(_first_unordered(execution, first, second, from_start))
    inside, n, begin = execution.inside(plan), plan.n_tasks, 0
    while True:
        bad = int(_first_unordered(inside, first[begin:], second[begin:], from_start))
        if bad < 0:
            return -1
        begin += bad
        origin = int(first[begin]) if from_start else n + int(first[begin])
        if not _leads_around(plan, execution, origin, int(second[begin])):
            return begin
        begin += 1


MOST_STATES: Final = 1_000_000
"""Number of visited events after which a pair of a folded plan counts as unordered."""


def _leads_around(plan: Plan, execution: Execution, origin: int, task: int) -> bool:
    """Return whether a path leads from an event to the start of a task of the same node.

    The path may pass through other nodes. Therefore the backward search visits pairs of an event
    and its distance from the task in nodes.
    """
    assert plan.folding is not None
    motion, apart, when = plan.folding.motion, plan.apart, execution.when
    n = plan.n_tasks
    states, seen = [(task, 0)], set[tuple[int, int]]()
    while states and len(seen) < MOST_STATES:
        event, block = states.pop()
        found = [(before, block) for before in execution.waits_of(event)]
        if len(found) > 1 and event >= n:
            # A message leads to the node of its sender.
            back = motion.block_to(int(apart[event - n]), 0)
            found[1] = found[1][0], motion.move_block(block, back)
        if (origin, 0) in found:
            return True
        fresh = [one for one in found if when[one[0]] >= when[origin] and one not in seen]
        seen.update(fresh)
        states += fresh
    return False


@compiled
def _first_unordered(execution: Execution, first: Ints, second: Ints, from_start: bool) -> Any:
    """Return the first pair without a path from `first` to the start of `second`, or -1.

    The path begins at the start of `first` or at its completion.
    """
    n = len(execution.sender)
    seen = np.full(2 * n, -1, np.int64)
    stack = np.empty(2 * n, np.int64)
    for pair in range(len(first)):
        origin = first[pair] if from_start else n + first[pair]
        if not _leads(execution, origin, second[pair], pair, seen, stack):
            return pair
    return -1


@inner
def _leads(
    execution: Execution, origin: int, task: int, search: int, seen: Ints, stack: Ints
) -> bool:
    """Return whether a path leads from an event to the start of a task, by a backward search.

    Events that precede the origin in one execution are on no path from it. `seen` contains the
    number of the last search that visited each event.
    """
    indptr, before, kind, sender, when = execution
    n = len(sender)
    for j in range(indptr[task], indptr[task + 1]):
        if before[j] == origin % n and (origin < n or (kind[j] & 1) == 0):
            return True
    stack[0], top = task, 1
    while top > 0:
        top -= 1
        event = stack[top]
        if event < n:
            for j in range(indptr[event], indptr[event + 1]):
                previous = before[j] if (kind[j] & 1) != 0 else n + before[j]
                if previous == origin:
                    return True
                if when[previous] >= when[origin] and seen[previous] != search:
                    seen[previous] = search
                    stack[top] = previous
                    top += 1
        else:
            for previous in (event - n, sender[event - n]):
                if previous == origin:
                    return True
                if previous >= 0 and when[previous] >= when[origin] and seen[previous] != search:
                    seen[previous] = search
                    stack[top] = previous
                    top += 1
    return False


def _same_tag_pairs(plan: Plan, op: Op) -> tuple[Ints, Ints]:
    """Return consecutive rows of messages with the same source, destination and tag."""
    rows, keys = sorted_ends(plan, op, plan.rank, plan.peer)
    same = keys[1:] == keys[:-1]
    return rows[:-1][same], rows[1:][same]
