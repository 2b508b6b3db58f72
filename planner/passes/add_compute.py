"""Computation beside a collective, with which it is to overlap."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import register_pass
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.plan import INTENT, NONE, Dependencies, Extents, Op, Plan, Stage

MAX_NS = 2**62
"""Longer computations would overflow clocks in ns."""
Duration = Annotated[int, Field(ge=0, lt=MAX_NS), "{} is not a number of ns from 0 to 2**62"]


@register_pass("add_compute", level="plan", locality="rank")
def add_compute(plan: Plan, duration_ns: Duration = 1_000_000) -> Plan:
    """Give every rank a computation between its start and its wait.

    It runs on the rank's own core, begins when all that runs inside start has
    ended, and all that runs inside wait waits for it; these edges state intent.
    So a simulation shows what overlaps.

    Parameters
    ----------
    plan : Plan
        Of all ranks, or one rank's program that waits for no other's tasks.
    duration_ns : int
        How long it takes, at least 0.

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
    return _Insertion(plan, _ranks_of(plan)).plan(duration_ns)


def _ranks_of(plan: Plan) -> Ints:
    """Return the ranks whose programs a plan holds: all, those of some nodes, or one."""
    if plan.only_rank is not None:
        return np.array([plan.only_rank])
    peers = plan.peer[plan.op <= Op.RECV]
    is_whole = np.isin(peers, plan.rank).all()
    return np.flatnonzero(is_whole | np.isin(plan.rank_node, plan.node))


class _Insertion:
    """A new row for each of some ranks, after the rows its start runs."""

    def __init__(self, plan: Plan, ranks: Ints) -> None:
        self.old = plan
        rows = np.arange(plan.n_tasks)
        behind = np.zeros(plan.n_ranks, dtype=np.int64)
        starts = np.flatnonzero(plan.stage == Stage.START)
        behind[plan.rank[starts]] = starts + 1
        order = np.argsort(behind[ranks], kind="stable")
        self.ranks = ranks[order]
        self.before = behind[self.ranks]
        """The old row each new one stands before."""
        self.new = self.before + np.arange(len(ranks))
        self.moved = rows + np.searchsorted(self.before, rows, side="right")
        self.of_rank = np.zeros(plan.n_ranks, dtype=np.int64)
        self.of_rank[self.ranks] = self.new

    def plan(self, duration_ns: int) -> Plan:
        """Return the plan with the rows, which compute for this duration."""
        old, ranks = self.old, self.ranks
        # It belongs to the round it comes after, or else the first: a rank alone sees no other.
        comes_first, row = self.before == 0, np.maximum(self.before - 1, 0)
        rounds = {
            name: np.where(comes_first, 0, getattr(old, name)[row] if old.n_tasks else 0)
            for name in ("phase", "round")
        }
        values: dict[str, Any] = rounds | {
            "op": Op.COMPUTE,
            "rank": ranks,
            "peer": NONE,
            "tag": NONE,
            "node": old.rank_node[ranks],
            "lane": NONE,
            "core": old.rank_core[ranks],
            "stream": NONE,
            "priority": 1,
            "stage": Stage.BACKGROUND,
            "duration_ns": duration_ns,
        }
        columns = {
            name: np.insert(getattr(old, name), self.before, value)
            for name, value in values.items()
        }
        return old.replace(
            **columns,
            reads=self._extents(old.reads),
            writes=self._extents(old.writes),
            deps=self._dependencies(),
            phases=old.phases or (Phase(),),
        )

    def _extents(self, extents: Extents) -> Extents:
        indptr = csr.running_total(np.insert(np.diff(extents.indptr), self.before, 0))
        return Extents(indptr, extents.buffer, extents.offset, extents.count, extents.pattern)

    def _dependencies(self) -> Dependencies:
        """Return the old edges, and those from start to computation and from there to wait."""
        old = self.old
        starts, waits = (np.flatnonzero(old.stage == stage) for stage in (Stage.START, Stage.WAIT))
        n_stated = len(starts) + len(waits)
        before = np.concatenate(
            (self.moved[old.deps.task], self.moved[starts], self.of_rank[old.rank[waits]])
        )
        after = np.concatenate(
            (
                np.repeat(self.moved, np.diff(old.deps.indptr)),
                self.of_rank[old.rank[starts]],
                self.moved[waits],
            )
        )
        kind = np.concatenate((old.deps.kind, np.full(n_stated, INTENT, dtype=np.int8)))
        order, indptr = csr.group_by(after, old.n_tasks + len(self.ranks))
        return Dependencies(indptr, before[order], kind[order])
