"""Proof that consecutive starts of a plan do not conflict in shared memory.

A plan is started many times. A rank begins a start when its previous start is complete. Other
ranks of its node may still use the shared memory in the previous start. Therefore executors have
a gate: a task that writes shared memory waits until all ranks of its node have completed the
previous start.
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
from collplan.planner.verify.moves import Moves
from collplan.planner.verify.order import Execution, spread
from collplan.planner.verify.symbols import atoms_of


def gated_tasks(plan: Plan) -> Bools:
    """Mark the tasks that wait until all ranks of the node have completed the previous start."""
    gated = np.zeros(plan.n_tasks, dtype=bool)
    gated[plan.writes.owner()[plan.writes.buffer == Buffer.SHARED]] = True
    return gated


def check_restarts(plan: Plan, execution: Execution, gated: Bools) -> None:
    """Raise where a task may access shared memory that the previous start still uses.

    Parameters
    ----------
    plan : Plan
    execution : Execution
    gated : ndarray of bool, shape (n_tasks,)
        Tasks that wait at the gate, as `gated_tasks` marks them.

    Raises
    ------
    RaceError
        The message names the two tasks.

    Notes
    -----
    A rank begins a start when it has completed the previous one. A gated task runs when all ranks
    of the node have. No other path leads from one start to the next. The predecessors of a task
    in its own start thus show which ranks had completed the previous start: the ranks that have
    begun, and all ranks of nodes whose gate was passed. These ranks had waited for all
    predecessors of their tasks.
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
    """Return the tasks of other ranks that conflict with a task in shared memory, in row order."""
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
    """Return the events of one start that precede a task of the next start."""
    own = _past(chains, [task])
    begun = np.array([event for event in own if event < plan.n_tasks])
    is_done = np.isin(plan.rank, plan.rank[begun]) | np.isin(node, node[begun[gated[begun]]])
    return _past(chains, (plan.n_tasks + np.flatnonzero(is_done)).tolist())


def _past(execution: Execution, events: list[int]) -> set[int]:
    """Return events and all their predecessors in the same start."""
    seen, stack = set(events), list(events)
    while stack:
        fresh = [before for before in execution.waits_of(stack.pop()) if before not in seen]
        seen.update(fresh)
        stack += fresh
    return seen


def check_mirrors(plan: Plan, space: AddressSpace, moves: Moves) -> None:
    """Raise where a mirror may differ from the buffer that it is a copy of.

    Every element of a mirror must be copied by its rank from the same element of the buffer. The
    buffer must not change afterwards until the start ends.

    Parameters
    ----------
    plan : Plan
    space : AddressSpace
    moves : Moves
        Moves of all tasks, in execution order.

    Raises
    ------
    RaceError
        The message names the task that writes other elements, or writes too late.
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
    # A write can only lie in the last mirror that begins before the end of the write.
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
    """Return the first move that overwrites the source of an earlier move in `staging`, or -1."""
    low, count = moves.left[staging], moves.length[staging]
    edges = csr.sorted_unique(np.concatenate((low, low + count)))
    row, atom = atoms_of(edges, low, count)
    staged = np.full(len(edges), len(moves.task))
    np.minimum.at(staged, atom, staging[row])
    # Of the atoms that a move writes, the one that was staged first decides.
    first = np.maximum(last_at_or_below(edges, moves.dest), 0)
    n = np.maximum(np.searchsorted(edges, moves.dest + moves.length) - first, 0)
    writes = np.repeat(np.arange(len(n)), n)
    late = writes[staged[csr.ranges(first, n)] < writes]
    return int(late[0]) if len(late) else -1
