"""Extraction of one rank's program from a plan of all ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.plan import COLUMNS, Plan
from collplan.planner.plan.ragged import ON_START, CrossRankWaits, Dependencies
from collplan.planner.rewrite.fold import require_unfolded


def restrict(plan: Plan, rank: int) -> Plan:
    """Return the program of one rank, which consists of its rows of a plan.

    Compilation for this rank only gives the same program. It keeps the buffer sizes of all ranks.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of this rank only.
    rank : int

    Returns
    -------
    Plan
        With `only_rank` set; `plan` itself if it is the program of this rank. `foreign` contains
        the tasks of other ranks of the node that tasks wait for through shared memory, by rank
        and by row of that rank's own program. Phases keep the trees that contain the rank.

    Raises
    ------
    AlgorithmError
        If the plan is folded, has no such rank or is the program of another rank, or if a task
        waits for the start of a task of another rank.

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
    require_unfolded(plan, "split into programs")
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
    reads, writes = plan.reads.take(rows), plan.writes.take(rows)
    used = csr.sorted_unique(np.concatenate(([0], reads.pattern, writes.pattern)))
    deps, foreign = _split_dependencies(plan, rank, rows)
    return plan.replace(
        **{name: getattr(plan, name)[rows] for name in COLUMNS},
        reads=replace(reads, pattern=np.searchsorted(used, reads.pattern)),
        writes=replace(writes, pattern=np.searchsorted(used, writes.pattern)),
        deps=deps,
        patterns=plan.patterns[used],
        only_rank=rank,
        foreign=foreign,
        phases=tuple(phase.of_ranks((rank,)) for phase in plan.phases),
    )


def _split_dependencies(plan: Plan, rank: int, rows: Ints) -> tuple[Dependencies, CrossRankWaits]:
    """Return the dependencies of some rows on each other, and on other ranks' programs."""
    indptr, entries = csr.take_rows(plan.deps.indptr, rows)
    before, kind = plan.deps.task[entries], plan.deps.kind[entries]
    after = csr.row_numbers(indptr)
    is_own = plan.rank[before] == rank
    own = Dependencies(
        csr.indptr_of(after[is_own], len(rows)), np.searchsorted(rows, before[is_own]), kind[is_own]
    )
    # Tasks of other ranks are identified by row and flag in their own programs.
    after, before, kind = after[~is_own], before[~is_own], kind[~is_own]
    if (kind & ON_START).any():
        i = int(np.argmax(kind & ON_START))
        waiting = rows[after[i]]
        raise AlgorithmError(
            f"rank: task #{waiting} of rank {plan.rank[waiting]} waits for the start of task "
            f"#{before[i]} of rank {plan.rank[before[i]]}; ranks tell each other of completions "
            "only, so bind the plan of all ranks"
        )
    crosses = plan.rank[plan.deps.owner()] != plan.rank[plan.deps.task]
    if not crosses.any():
        return own, CrossRankWaits.none(len(rows))
    awaited = np.zeros(plan.n_tasks, dtype=bool)
    awaited[plan.deps.task[crosses]] = True
    return own, CrossRankWaits(
        csr.indptr_of(after, len(rows)),
        plan.rank[before],
        csr.occurrence(plan.rank)[before],
        csr.group_offsets(plan.rank, awaited)[before],
        np.flatnonzero(awaited[rows]),
    )
