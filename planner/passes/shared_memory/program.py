"""Tasks of some ranks in an order that depends on each rank's own program only.

So one node's programs, compiled rank by rank and put together, are rewritten
just as they are inside the plan of all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.passes.rebuild import move_edges, places, stack_edges
from collplan.planner.plan import pieces
from collplan.planner.plan.hazards import stated_edges
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import COLUMNS, Op, Plan
from collplan.planner.plan.tags import Edges

_CLASS = np.array([0, 1, 2, 2, 2])
"""Turn of every op in a round: a rank sends, then receives, then works on what came."""


@dataclass(frozen=True, eq=False)
class Program:
    """Tasks of all ranks, or of the ranks of one node, without derived dependencies.

    Parameters
    ----------
    columns : dict of ndarray, shape (n_tasks,)
        By name, as `COLUMNS`.
    reads, writes : Pieces
        A row per task.
    intents : Edges
        Stated dependencies; all others follow from what tasks read and write.
    plan : Plan
        A plan these ranks are part of: where they live, and what it is for.
    buffer_sizes : ndarray of int64, shape (n_ranks, 3)
    """

    columns: dict[str, Ints]
    reads: Pieces
    writes: Pieces
    intents: Edges
    plan: Plan
    buffer_sizes: Ints

    def __len__(self) -> int:
        return len(self.columns["op"])

    def take(self, rows: Ints) -> Program:
        """Return the tasks of some rows, ascending; edges that lead out of them are left out."""
        if len(rows) == len(self):
            return self
        return Program(
            {name: column[rows] for name, column in self.columns.items()},
            self.reads.take(rows),
            self.writes.take(rows),
            move_edges(self.intents, places(rows, len(self))),
            self.plan,
            self.buffer_sizes,
        )

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> Program:
        """Return the tasks of plans of different ranks, in canonical order."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(plan, name) for plan in plans]) for name in COLUMNS
        }
        sizes = plans[0].buffer_sizes.copy()
        for plan in plans:
            if plan.only_rank is not None:
                sizes[plan.only_rank] = plan.buffer_sizes[plan.only_rank]
        intents = stack_edges(list(map(stated_edges, plans)), [plan.n_tasks for plan in plans])
        order = canonical_order(columns["rank"], columns["round"], columns["op"])
        phases = zip(*(plan.phases for plan in plans), strict=True)
        whole = plans[0].replace(phases=tuple(map(Phase.merged, phases)))
        reads, writes = map(pieces.stack, zip(*map(pieces.pieces_of, plans), strict=True))
        return cls(
            {name: column[order] for name, column in columns.items()},
            reads.take(order),
            writes.take(order),
            move_edges(intents, places(order, len(order))),
            plans[0] if len(plans) == 1 else whole,
            sizes,
        )


def canonical_order(rank: Ints, round: Ints, op: Ints) -> Ints:
    """Order tasks by round; within one by turns of sends, receives and local steps, then ranks.

    Every rank's own tasks stay in order, and receives come before what other
    ranks compute of arrivals, as in compiled plans.

    Examples
    --------
    >>> rank, round = np.array([0, 0, 0, 1, 1]), np.zeros(5, dtype=int)
    >>> canonical_order(rank, round, np.array([0, 1, 2, 0, 1])).tolist()
    [0, 3, 1, 4, 2]
    """
    own = np.argsort(rank, kind="stable")
    kind = _CLASS[op[own]]
    is_first = csr.run_starts(rank[own], round[own])
    before = np.where(is_first, 0, np.concatenate((kind[:1], kind[:-1])))
    steps = np.cumsum((kind - before) % 3)
    # The turns of a round are counted from its first task.
    start = np.maximum.accumulate(np.where(is_first, np.arange(len(own)), 0))
    turn = np.empty(len(own), dtype=np.int64)
    turn[own] = steps - steps[start] + kind[start] if len(own) else 0
    order: Ints = np.lexsort((np.arange(len(rank)), rank, turn, round))
    return order


def match_inside(columns: dict[str, Ints], is_inside: Bools) -> tuple[Ints, Ints]:
    """Return the rows of the two ends of every message in `is_inside`, by ascending send row.

    Messages of one source, destination and tag match in row order.
    """
    ends = []
    for op, source, dest in ((Op.SEND, "rank", "peer"), (Op.RECV, "peer", "rank")):
        rows = np.flatnonzero(is_inside & (columns["op"] == op))
        keys = (rows, columns["tag"][rows], columns[dest][rows], columns[source][rows])
        ends.append(rows[np.lexsort(keys)])
    sends, recvs = ends
    assert len(sends) == len(recvs), "a message of the node has one end only"
    order = np.argsort(sends)
    return sends[order], recvs[order]
