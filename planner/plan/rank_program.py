"""One rank's program out of a plan of all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.cross_rank_waits import Foreign
from collplan.planner.plan.pieces import running_total
from collplan.planner.plan.plan import COLUMNS, ON_START, Dependencies, Extents

if TYPE_CHECKING:
    from collplan.planner.arrays import Ints
    from collplan.planner.plan.plan import Plan


def restrict(plan: Plan, rank: int) -> Plan:
    """Return one rank's program: its rows of a plan, in order.

    It is what compiling for the rank alone gives; for passes that must see the
    whole plan it is the only way to one. The sizes of all ranks' buffers stay.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of this rank only.
    rank : int
        Whose program.

    Returns
    -------
    Plan
        With `only_rank` set; the plan itself where it is that already.

    Raises
    ------
    AlgorithmError
        If the plan has no such rank or holds another's program, or a task
        waits for the start of another rank's.

    Notes
    -----
    A task may wait for tasks of other ranks of its node, through their shared
    buffer. The program names them by rank and row of that rank's own program,
    in `foreign`, with the rows of its own that others wait for.

    Examples
    --------
    >>> from collplan.planner import compile_plan
    >>> from collplan.specs import PlanSpec
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"ranks_per_node": 4},
    ...     "collective": {"kind": "bcast", "count": 8},
    ... })
    >>> own = restrict(compile_plan(spec), 2)
    >>> own.only_rank, own.n_tasks
    (2, 2)
    """
    if not 0 <= rank < plan.n_ranks:
        raise AlgorithmError(f"rank: {rank} is not one of the plan's {plan.n_ranks} ranks")
    if plan.only_rank == rank:
        return plan
    if plan.only_rank is not None:
        raise AlgorithmError(
            f"rank: the plan holds the program of rank {plan.only_rank}, not of rank {rank}; "
            "restrict the plan of all ranks"
        )
    rows = np.flatnonzero(plan.rank == rank)
    reads, writes = _take_extents(plan.reads, rows), _take_extents(plan.writes, rows)
    used = np.unique(np.concatenate(([0], reads.pattern, writes.pattern)))
    number = np.zeros(len(plan.patterns), dtype=np.int32)
    number[used] = np.arange(len(used))
    deps, foreign = _split_dependencies(plan, rank, rows)
    return plan.replace(
        **{name: getattr(plan, name)[rows] for name in COLUMNS},
        reads=_with_pattern(reads, number),
        writes=_with_pattern(writes, number),
        deps=deps,
        patterns=plan.patterns[used],
        only_rank=rank,
        foreign=foreign,
    )


def _take(indptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the new indptr and the old entries of some rows of a CSR."""
    lengths = np.diff(indptr)[rows]
    new = running_total(lengths)
    return new, np.arange(new[-1]) + np.repeat(indptr[rows] - new[:-1], lengths)


def _take_extents(extents: Extents, rows: Ints) -> Extents:
    indptr, entries = _take(extents.indptr, rows)
    columns = (extents.buffer, extents.offset, extents.count, extents.pattern)
    return Extents(indptr, *(column[entries] for column in columns))


def _with_pattern(extents: Extents, number: Ints) -> Extents:
    pattern = number[extents.pattern]
    return Extents(extents.indptr, extents.buffer, extents.offset, extents.count, pattern)


def _split_dependencies(plan: Plan, rank: int, rows: Ints) -> tuple[Dependencies, Foreign]:
    """Return what some rows wait for: among themselves, and in other ranks' programs."""
    indptr, entries = _take(plan.deps.indptr, rows)
    before, kind = plan.deps.task[entries], plan.deps.kind[entries]
    after = np.repeat(np.arange(len(rows)), np.diff(indptr))
    is_own = plan.rank[before] == rank
    own = Dependencies(
        running_total(np.bincount(after[is_own], minlength=len(rows))),
        np.searchsorted(rows, before[is_own]),
        kind[is_own],
    )
    return own, _foreign(plan, rank, rows, after[~is_own], before[~is_own], kind[~is_own])


def _foreign(plan: Plan, rank: int, rows: Ints, after: Ints, before: Ints, kind: Ints) -> Foreign:
    """Name foreign tasks as their own ranks do: by row and flag there."""
    if (kind & ON_START).any():
        i = int(np.argmax(kind & ON_START))
        raise AlgorithmError(
            f"rank: task #{rows[after[i]]} of rank {rank} waits for the start of task "
            f"#{before[i]} of rank {plan.rank[before[i]]}; ranks tell each other of completions "
            "only, so bind the plan of all ranks"
        )
    waiting = np.repeat(plan.rank, np.diff(plan.deps.indptr))
    crosses = waiting != plan.rank[plan.deps.task]
    if not crosses.any():
        return Foreign.none(len(rows))
    awaited = np.zeros(plan.n_tasks, dtype=bool)
    awaited[plan.deps.task[crosses]] = True
    order = np.argsort(plan.rank, kind="stable")
    first = np.searchsorted(plan.rank[order], np.arange(plan.n_ranks + 1))
    row_of = np.empty(plan.n_tasks, dtype=np.int64)
    row_of[order] = np.arange(plan.n_tasks) - np.repeat(first[:-1], np.diff(first))
    flags = running_total(awaited[order])
    flag_of = np.empty(plan.n_tasks, dtype=np.int64)
    flag_of[order] = flags[:-1] - np.repeat(flags[first[:-1]], np.diff(first))
    return Foreign(
        running_total(np.bincount(after, minlength=len(rows))),
        plan.rank[before],
        row_of[before],
        flag_of[before],
        np.flatnonzero(awaited[rows]),
    )
