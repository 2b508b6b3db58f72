"""One rank's program out of a plan of all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.errors import AlgorithmError
from planner.pieces import running_total
from planner.plan import COLUMNS, Dependencies, Extents

if TYPE_CHECKING:
    from planner.plan import IntArray, Plan


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
        If the plan has no such rank or holds another's program, or a task of
        this rank waits for another rank's.

    Examples
    --------
    >>> from planner import compile_plan
    >>> from specs import PlanSpec
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
    return plan.replace(
        **{name: getattr(plan, name)[rows] for name in COLUMNS},
        reads=_with_pattern(reads, number),
        writes=_with_pattern(writes, number),
        deps=_take_dependencies(plan, rows),
        patterns=plan.patterns[used],
        only_rank=rank,
    )


def _take(indptr: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the new indptr and the old entries of some rows of a CSR."""
    lengths = np.diff(indptr)[rows]
    new = running_total(lengths)
    return new, np.arange(new[-1]) + np.repeat(indptr[rows] - new[:-1], lengths)


def _take_extents(extents: Extents, rows: IntArray) -> Extents:
    indptr, entries = _take(extents.indptr, rows)
    columns = (extents.buffer, extents.offset, extents.count, extents.pattern)
    return Extents(indptr, *(column[entries] for column in columns))


def _with_pattern(extents: Extents, number: IntArray) -> Extents:
    pattern = number[extents.pattern]
    return Extents(extents.indptr, extents.buffer, extents.offset, extents.count, pattern)


def _take_dependencies(plan: Plan, rows: IntArray) -> Dependencies:
    """Return the dependencies of some rows, renumbered; none may lead out of them."""
    indptr, entries = _take(plan.deps.indptr, rows)
    before = plan.deps.task[entries]
    number = np.searchsorted(rows, before)
    foreign = plan.rank[before] != plan.rank[rows[0]] if len(rows) else before < 0
    if foreign.any():
        i = int(np.argmax(foreign))
        task = rows[int(np.searchsorted(indptr, i, side="right")) - 1]
        raise AlgorithmError(
            f"rank: task #{task} of rank {plan.rank[task]} waits for task #{before[i]} of rank "
            f"{plan.rank[before[i]]}, through their node's shared buffer; such a plan has no "
            "program of one rank, bind the plan of all ranks"
        )
    return Dependencies(indptr, number, plan.deps.kind[entries])
