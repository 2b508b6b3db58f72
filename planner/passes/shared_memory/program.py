"""Tasks of some ranks in an order that depends only on the program of each rank.

The programs of one node are therefore rewritten in the same way alone and in a plan of all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.plan import pieces
from collplan.planner.plan.hazards import stated_edges
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import COLUMNS, Op, Plan
from collplan.planner.plan.tags import Edges
from collplan.planner.rewrite.rebuild import move_edges, places, stack_edges


@dataclass(frozen=True, eq=False)
class NodeTasks:
    """Tasks of all ranks, or of the ranks of some nodes, without derived dependencies.

    Parameters
    ----------
    columns : dict of ndarray, shape (n_tasks,)
        Columns of the plan by name; see `COLUMNS`.
    reads, writes : Pieces
        One row per task.
    intents : Edges
        Stated dependencies; all others are derived from the data that tasks read and write.
    plan : Plan
        Plan that contains the tasks.
    """

    columns: dict[str, Ints]
    reads: Pieces
    writes: Pieces
    intents: Edges
    plan: Plan

    def __len__(self) -> int:
        return len(self.columns["op"])

    @classmethod
    def of(cls, plan: Plan) -> NodeTasks:
        """Return the tasks of a plan."""
        columns = {name: getattr(plan, name) for name in COLUMNS}
        return cls(columns, *pieces.pieces_of(plan), stated_edges(plan), plan)

    @classmethod
    def stack(cls, parts: Sequence[NodeTasks]) -> NodeTasks:
        """Return the tasks of all parts, one part after another."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            {name: np.concatenate([part.columns[name] for part in parts]) for name in COLUMNS},
            pieces.stack([part.reads for part in parts]),
            pieces.stack([part.writes for part in parts]),
            stack_edges([part.intents for part in parts], [len(part) for part in parts]),
            parts[0].plan,
        )

    def take(self, rows: Ints) -> NodeTasks:
        """Return the tasks of some rows, in the given order, without edges to other tasks."""
        return NodeTasks(
            {name: column[rows] for name, column in self.columns.items()},
            self.reads.take(rows),
            self.writes.take(rows),
            move_edges(self.intents, places(rows, len(self))),
            self.plan,
        )


def canonical_order(rank: Ints, round: Ints, op: Ints) -> Ints:
    """Return an order of tasks by round, then by turn within the round, then by rank.

    Turns of sends, of receives, and of local steps follow each other cyclically. The tasks of
    each rank keep their order. As in compiled plans, receives come before the tasks of other
    ranks that process arrivals.

    Parameters
    ----------
    rank, round, op : ndarray of int, shape (n_tasks,)
        Columns of a plan.

    Returns
    -------
    ndarray of int64, shape (n_tasks,)
        Row of each task in the new order.

    Examples
    --------
    >>> rank, round = np.array([0, 0, 0, 1, 1]), np.zeros(5, dtype=int)
    >>> canonical_order(rank, round, np.array([0, 1, 2, 0, 1])).tolist()
    [0, 3, 1, 4, 2]
    """
    n_ranks = 1 + int(rank.max(initial=0))
    turn = _turns(*(np.array(column, np.int64) for column in (rank, round, op)), n_ranks)
    moment = csr.joint_key(round, turn, 1 + int(turn.max(initial=0)))
    return np.argsort(csr.joint_key(moment, rank, n_ranks), kind="stable")


@compiled
def _turns(rank: Ints, round: Ints, op: Ints, n_ranks: int) -> Any:
    """Return the turn of every task in its round, counted from the first task of its rank.

    Turns of sends, of receives, and of local steps on received data follow each other cyclically.
    """
    turn = op.copy()
    last = np.full(n_ranks, -1)
    for row in range(len(rank)):
        turn[row] = min(op[row], 2)
        before = last[rank[row]]
        if before >= 0 and round[before] == round[row]:
            turn[row] = turn[before] + (turn[row] - min(op[before], 2)) % 3
        last[rank[row]] = row
    return turn


def match_inside(columns: dict[str, Ints], is_inside: Bools) -> tuple[Ints, Ints]:
    """Return the rows of both ends of every message in `is_inside`.

    Messages with the same source, destination and tag match in the order of rows.

    Parameters
    ----------
    columns : dict of ndarray, shape (n_tasks,)
        Columns of a program.
    is_inside : ndarray of bool, shape (n_tasks,)
        Marks both ends of messages.

    Returns
    -------
    sends, recvs : ndarray of int64, shape (n_messages,)
    """
    n_ranks = 1 + int(columns["rank"].max(initial=0))
    ends = []
    for op, source, dest in ((Op.SEND, "rank", "peer"), (Op.RECV, "peer", "rank")):
        rows = np.flatnonzero(is_inside & (columns["op"] == op))
        rows = rows[np.argsort(columns["tag"][rows], kind="stable")]
        pair = csr.joint_key(columns[source][rows], columns[dest][rows], n_ranks)
        ends.append(rows[np.argsort(pair, kind="stable")])
    sends, recvs = ends
    assert len(sends) == len(recvs), "a message of the node has one end only"
    return sends, recvs
