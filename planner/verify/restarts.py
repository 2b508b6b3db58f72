"""Two consecutive starts of a plan: neither overtakes the other in shared memory.

Plans are started again and again. A rank's start begins when its start before
has completed; other ranks of its node may then still be at work in the start
before, in the memory they share. So executors keep a gate: a task that writes
shared memory waits until all ranks of its node have completed the start before.
"""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.errors import RaceError
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.hazards import Accesses, cut_into_atoms
from collplan.planner.plan.pieces import pieces_of
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan
from collplan.planner.verify.contents import atoms_of
from collplan.planner.verify.moves import Moves
from collplan.planner.verify.order import Execution, spread


def gated_tasks(plan: Plan) -> Bools:
    """Mark the tasks that executors hold back until the node has completed the start before."""
    gated = np.zeros(plan.n_tasks, dtype=bool)
    gated[plan.writes.owner()[plan.writes.buffer == Buffer.SHARED]] = True
    return gated


def check_restarts(plan: Plan, execution: Execution, gated: Bools) -> None:
    """Raise where a task touches shared memory before others are done with it in the start before.

    Parameters
    ----------
    plan : Plan
    execution : Execution
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
    node = plan.rank_node[plan.rank]
    # Chains to a gate stay inside the node.
    inside = execution.inside(plan)
    chains = execution if plan.folding is None else inside
    passed, _ = spread(inside, execution.events(), gated.astype(np.uint64))
    early = np.flatnonzero(passed == 0)
    if not len(early):
        return
    read, written = (side.select(side.buffer == Buffer.SHARED) for side in pieces_of(plan))
    reads, writes, _ = cut_into_atoms(plan.rank, read, written, plan.rank_node)
    touches = (csr.lengths_of(reads.indptr) > 0) | (csr.lengths_of(writes.indptr) > 0)
    for task in early[touches[early]].tolist():
        rivals = _rivals(plan, reads, writes, task)
        done = _finished_before(plan, chains, node, gated, task) if rivals else set()
        others = [other for other in rivals if plan.n_tasks + other not in done]
        if others:
            raise RaceError(
                f"nothing orders {plan.task(others[0])} in one start and {plan.task(task)} in the "
                "next, which touch the same memory"
            )


def _rivals(plan: Plan, reads: Accesses, writes: Accesses, task: int) -> list[int]:
    """Return tasks of other ranks that conflict with a task in shared memory, in row order."""
    found: set[int] = set()
    for mine, theirs in ((reads, (writes,)), (writes, (reads, writes))):
        for j in range(mine.indptr[task], mine.indptr[task + 1]):
            for other in theirs:
                hit = (other.low < mine.high[j]) & (other.high > mine.low[j])
                found |= set(last_at_or_below(other.indptr, np.flatnonzero(hit)).tolist())
    return sorted(row for row in found if plan.rank[row] != plan.rank[task])


def _finished_before(
    plan: Plan, chains: Execution, node: Ints, gated: Bools, task: int
) -> set[int]:
    """Return the events of one start that have happened when a task of the next one starts."""
    own = _past(chains, [task])
    begun = np.array([event for event in own if event < plan.n_tasks])
    is_done = np.isin(plan.rank, plan.rank[begun]) | np.isin(node, node[begun[gated[begun]]])
    return _past(chains, (plan.n_tasks + np.flatnonzero(is_done)).tolist())


def _past(execution: Execution, events: list[int]) -> set[int]:
    """Return events (x starts, n + x completes) and all that come before them in their start."""
    seen, stack = set(events), list(events)
    while stack:
        fresh = [before for before in execution.waits_of(stack.pop()) if before not in seen]
        seen.update(fresh)
        stack += fresh
    return seen


def check_mirrors(plan: Plan, space: AddressSpace, moves: Moves) -> None:
    """Raise where a mirror is not what its buffer is once it has been staged.

    All that is written there must be copied by its rank from the same element
    of its buffer, which then stays as it is until the start ends.

    Parameters
    ----------
    plan : Plan
    space : AddressSpace
    moves : Moves
        What tasks move, in execution order.

    Raises
    ------
    RaceError
        Naming the task that writes something else, or too late.
    """
    rank, buffer = np.nonzero(plan.mirrors != NONE)
    if not len(rank):
        return
    begin = space.base[rank, Buffer.SHARED] + plan.mirrors[rank, buffer]
    end, own = begin + plan.buffer_sizes[rank, buffer], space.base[rank, buffer]
    order = np.argsort(begin, kind="stable")
    begin, end, own, rank = begin[order], end[order], own[order], rank[order]
    if (i := csr.first_true(begin[1:] < end[:-1])) >= 0:
        raise RaceError(f"mirrors of ranks {rank[i]} and {rank[i + 1]} overlap in shared memory")
    # The last mirror that begins before a write ends is the only one it can be in, if it fits one.
    which = np.searchsorted(begin, moves.dest + moves.length) - 1
    inside = np.flatnonzero((which >= 0) & (end[which] > moves.dest))
    place, task = which[inside], moves.task[inside]
    shift = own[place] - begin[place]
    stages = (plan.op[task] == Op.COPY) & (plan.rank[task] == rank[place])
    first, last = moves.dest[inside], moves.dest[inside] + moves.length[inside]
    stages &= (moves.left[inside] == first + shift) & (first >= begin[place])
    stages &= last <= end[place]
    if (i := csr.first_true(~stages)) >= 0:
        raise RaceError(
            f"{plan.task(int(task[i]))} writes to the mirror of a buffer of rank "
            f"{rank[place[i]]}, but not that buffer's own elements"
        )
    late = _first_overwritten(moves, inside)
    if late >= 0:
        raise RaceError(
            f"{plan.task(int(moves.task[late]))} overwrites what its rank has staged in a mirror"
        )


def _first_overwritten(moves: Moves, staging: Ints) -> int:
    """Return the first move that writes what a move of `staging` before it has read, or -1."""
    low, count = moves.left[staging], moves.length[staging]
    edges = csr.sorted_unique(np.concatenate((low, low + count)))
    row, atom = atoms_of(edges, low, count)
    staged = np.full(len(edges), len(moves.task))
    np.minimum.at(staged, atom, staging[row])
    # Of the atoms that a move writes into the earliest staged decides.
    first = np.maximum(last_at_or_below(edges, moves.dest), 0)
    n = np.maximum(np.searchsorted(edges, moves.dest + moves.length) - first, 0)
    writes = np.repeat(np.arange(len(n)), n)
    late = writes[staged[csr.ranges(first, n)] < writes]
    return int(late[0]) if len(late) else -1
