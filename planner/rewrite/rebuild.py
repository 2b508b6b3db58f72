"""Reconstruction of plans from changed tasks, which several passes use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.plan import pieces
from collplan.planner.plan.hazards import derive_dependencies, stated_edges
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import NONE, Op, Plan
from collplan.planner.plan.tags import Edges


def rebuild(
    plan: Plan, reads: Pieces, writes: Pieces, edges: Edges | None = None, **changes: Any
) -> Plan:
    """Return a plan of changed tasks with newly derived dependencies.

    Parameters
    ----------
    plan : Plan
    reads, writes : Pieces
        Pieces of the new tasks, one row per task.
    edges : Edges, optional
        Stated dependencies between new tasks; by default those of the plan.
    **changes
        Changed columns and tables, by name.
    """
    edges = stated_edges(plan) if edges is None else edges
    rank = changes.get("rank", plan.rank)
    changes.setdefault("deps", derive_dependencies(rank, reads, writes, plan.rank_node, edges))
    return pieces.with_pieces(plan, reads, writes, **changes)


def with_hazards(plan: Plan) -> Plan:
    """Return a plan with all dependencies, given one that was built without hazards."""
    edges = stated_edges(plan)
    deps = derive_dependencies(plan.rank, *pieces.pieces_of(plan), plan.rank_node, edges)
    return plan.replace(deps=deps)


def become_copies(columns: dict[str, Ints], is_copy: Bools) -> None:
    """Turn sends or receives into copies, in place."""
    columns["op"] = np.where(is_copy, Op.COPY, columns["op"])
    for name in ("peer", "tag", "stream", "lane"):
        columns[name] = np.where(is_copy, NONE, columns[name])


def stack_edges(parts: Sequence[Edges], n_tasks: Sequence[int]) -> Edges:
    """Return the edges of several tables of tasks that are put one after another."""
    moved = [
        (before + start, after + start, kind)
        for (before, after, kind), start in zip(parts, csr.running_total(n_tasks), strict=False)
    ]
    before, after, kinds = map(np.concatenate, zip(*moved, strict=True))
    return before, after, kinds


def move_edges(edges: Edges, place: Ints) -> Edges:
    """Return edges between tasks that have moved to other rows, or to -1 if they are removed."""
    before, after, kind = edges
    before, after = place[before], place[after]
    kept = (before >= 0) & (after >= 0)
    return before[kept], after[kept], kind[kept]


def places(rows: Ints, n_tasks: int) -> Ints:
    """Return the new number of each of `n_tasks` rows, given the kept rows; -1 for others."""
    place = np.full(n_tasks, NONE, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    return place
