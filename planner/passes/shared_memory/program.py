"""Tasks of some ranks in an order that depends on each rank's own program only.

So one node's programs are rewritten just as they are inside the plan of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.passes.rebuild import move_edges, places
from collplan.planner.plan import pieces
from collplan.planner.plan.hazards import stated_edges
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
        The plan these tasks are from.
    """

    columns: dict[str, Ints]
    reads: Pieces
    writes: Pieces
    intents: Edges
    plan: Plan

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
        )

    @classmethod
    def of(cls, plan: Plan, order: Ints) -> Program:
        """Return the tasks of a plan in another order."""
        reads, writes = pieces.pieces_of(plan)
        return cls(
            {name: getattr(plan, name)[order] for name in COLUMNS},
            reads.take(order),
            writes.take(order),
            move_edges(stated_edges(plan), places(order, len(order))),
            plan,
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
