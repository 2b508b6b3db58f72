"""Folded plans: the tasks of one node stand for those of all nodes.

A plan is symmetric where a motion of its ranks, by whole nodes, maps it onto itself. Then the
programs of node 0 say everything: those of another node are the same, moved. In a folded plan
a message that leaves the node returns to it: its receive is the one by which node 0 gets the
message of the same number from the node that lies as far on the other side.

Paths of tasks and messages in the plan of all ranks are paths in the folded plan, and the
reverse, so times, orders and deadlocks are the same in both.
"""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import AlgorithmError, AsymmetricError, PlanError
from collplan.planner.plan.folding import Folding
from collplan.planner.plan.plan import COLUMNS, NONE, Op, Plan


def fold(programs: Plan, folding: Folding) -> Plan:
    """Fold the programs of a node, of a plan that a motion maps onto itself.

    Parameters
    ----------
    programs : Plan
        The tasks of one node's ranks, a block of the motion.
    folding : Folding

    Returns
    -------
    Plan
        A plan of the node's ranks, with `folding` and `apart` set. Messages of two ranks have
        a tag of their own for each `apart`.
    """
    motion = folding.motion
    n_local, is_send = motion.step, programs.op == Op.SEND
    is_message = programs.op <= Op.RECV
    node, rank = np.divmod(programs.rank, n_local)
    other, peer = np.divmod(np.where(is_message, programs.peer, programs.rank), n_local)
    apart = motion.block_to(*np.where(is_send, (node, other), (other, node)))
    first = int(node.max(initial=0)) * n_local
    ranks = slice(first, first + n_local)
    return programs.replace(
        rank=rank,
        peer=np.where(is_message, peer, NONE),
        node=np.zeros_like(rank),
        rank_node=np.zeros(n_local, dtype=np.int32),
        rank_lane=programs.rank_lane[ranks],
        rank_core=programs.rank_core[ranks],
        buffer_sizes=programs.buffer_sizes[ranks],
        shared_sizes=programs.shared_sizes[:1],
        mirrors=programs.mirrors[ranks],
        only_rank=None,
        folding=folding,
        apart=apart,
    )


def require_copy(plan: Plan, other: Plan) -> None:
    """Raise `AsymmetricError` where two nodes' programs, both folded, do not do the same.

    Only where their data lie may differ, as nodes have other chunks in the same places and runs
    of chunks wrap around at some, and how rows of different ranks take turns.
    """
    one, two = _rank_by_rank(plan), _rank_by_rank(other)
    for name, column in one.items():
        if not np.array_equal(column, two[name]):
            raise AsymmetricError(f"fold: tasks have another {name} on other nodes")


def _rank_by_rank(plan: Plan) -> dict[str, Ints]:
    """Return what tasks do, without where their data lie: those of rank 0, of rank 1, ..."""
    order = np.argsort(plan.rank, kind="stable")
    columns = {name: getattr(plan, name)[order] for name in (*COLUMNS, "apart")}
    for name, side in (("reads", plan.reads), ("writes", plan.writes)):
        extents = side.take(order)
        columns[f"size of {name}"] = csr.row_sums(extents.indptr, extents.elements(plan.patterns))
    number = csr.inverse(order)
    after, before = number[plan.deps.owner()], number[plan.deps.task]
    edges = np.lexsort((before, after))
    columns["list of tasks to wait for"] = np.stack((after, before, plan.deps.kind))[:, edges]
    return columns


def require_unfolded(plan: Plan, use: str) -> None:
    """Raise where a folded plan is put to a use that needs the plan of all ranks.

    Parameters
    ----------
    plan : Plan
    use : str
        What cannot be done with it, as ``saved``.

    Raises
    ------
    AlgorithmError
        If the plan is folded.
    """
    if plan.folding is not None:
        raise AlgorithmError(
            f"fold: a folded plan cannot be {use}; compile the plan of all ranks, without fold"
        )


def require_all_ranks(plan: Plan, use: str) -> None:
    """Raise where a folded plan, or one rank's program, is put to a use that needs all tasks.

    Parameters
    ----------
    plan : Plan
    use : str
        What cannot be done with it, as ``executed``.

    Raises
    ------
    AlgorithmError
        If the plan is folded.
    PlanError
        If it is one rank's program.
    """
    require_unfolded(plan, use)
    if plan.only_rank is not None:
        raise PlanError(
            f"this is rank {plan.only_rank}'s program alone, which cannot be {use}; "
            "compile the plan of all ranks"
        )
