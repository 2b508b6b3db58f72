"""Computation that a collective shall overlap with."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import register_pass
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.plan import COLUMNS, NONE, Op, Plan, Stage
from collplan.planner.plan.ragged import INTENT, Dependencies

MAX_NS = 2**62
"""Longer computations would overflow clocks in ns."""
Duration = Annotated[int, Field(ge=0, lt=MAX_NS), "{} is not a number of ns from 0 to 2**62"]


@register_pass("add_compute", level="plan", locality="rank", takes_calls=True)
def add_compute(plan: Plan, duration_ns: Duration = 1_000_000) -> Plan:
    """Give every rank a computation between its start and its wait.

    The computation runs on the rank's own core. It begins when the tasks of stage START have
    ended, and the tasks of stage WAIT wait for it. These edges state intent. A simulation then
    shows how much of the collective overlaps with the computation.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or the program of a rank that does not wait for tasks of others.
    duration_ns : int
        Duration of the computation in ns, at least 0.

    Returns
    -------
    Plan
        A new plan, with one COMPUTE task per rank.

    Raises
    ------
    AlgorithmError
        If `duration_ns` is not a number of at least 0, there are computations
        already, or the plan is one rank's program and shares memory.
    """
    if (plan.op == Op.COMPUTE).any():
        raise AlgorithmError("passes.add_compute: the plan computes already; use it once")
    if len(plan.foreign) or len(plan.foreign.awaited):
        raise AlgorithmError(
            f"passes.add_compute: rank {plan.only_rank}'s program waits for rows of others, which "
            "it would move; compile its spec with the pass, or use it on the plan of all ranks"
        )
    return _insert(plan, _ranks_of(plan), duration_ns)


def _ranks_of(plan: Plan) -> Ints:
    """Return the ranks whose programs a plan contains: all, those of some nodes, or one."""
    if plan.only_rank is not None:
        return np.array([plan.only_rank])
    peers = plan.peer[plan.op <= Op.RECV]
    is_whole = np.isin(peers, plan.rank).all()
    return np.flatnonzero(is_whole | np.isin(plan.rank_node, plan.node))


def _insert(plan: Plan, ranks: Ints, duration_ns: int) -> Plan:
    """Return the plan with a computation for each of some ranks, after the rows of stage START."""
    starts, waits = (np.flatnonzero(plan.stage == stage) for stage in (Stage.START, Stage.WAIT))
    behind = np.zeros(plan.n_ranks, dtype=np.int64)
    behind[plan.rank[starts]] = starts + 1
    ranks = ranks[np.argsort(behind[ranks], kind="stable")]
    before = behind[ranks]  # the old row that each new one stands before
    rows, of_rank = np.arange(plan.n_tasks), np.zeros(plan.n_ranks, dtype=np.int64)
    moved = rows + np.searchsorted(before, rows, side="right")
    of_rank[ranks] = before + np.arange(len(ranks))
    values: dict[str, Any] = {
        "op": Op.COMPUTE,
        "rank": ranks,
        "peer": NONE,
        "tag": NONE,
        "lane": NONE,
        "core": plan.rank_core[ranks],
        "stream": NONE,
        "priority": 1,
        "stage": Stage.BACKGROUND,
        "duration_ns": duration_ns,
    }
    for name in ("phase", "round"):
        # A computation belongs to the round before it, or else to the first one. So it depends
        # only on the rank's own program.
        values[name] = np.append(0, getattr(plan, name))[before]
    columns = {name: np.insert(getattr(plan, name), before, values[name]) for name in COLUMNS}
    reads, writes = (
        replace(side, indptr=np.insert(side.indptr, before, side.indptr[before]))
        for side in (plan.reads, plan.writes)
    )
    # Old edges, those from stage START to the computation, and those from there to stage WAIT.
    first = np.concatenate((moved[plan.deps.task], moved[starts], of_rank[plan.rank[waits]]))
    second = np.concatenate((moved[plan.deps.owner()], of_rank[plan.rank[starts]], moved[waits]))
    kind = np.append(plan.deps.kind, np.full(len(starts) + len(waits), INTENT, dtype=np.int8))
    order, indptr = csr.group_by(second, plan.n_tasks + len(ranks))
    deps, phases = Dependencies(indptr, first[order], kind[order]), plan.phases or (Phase(),)
    return plan.replace(**columns, reads=reads, writes=writes, deps=deps, phases=phases)
