"""Folded plans, in which the tasks of one node represent those of all nodes.

A plan is symmetric if a motion of its ranks by whole nodes maps it onto itself. The programs of all
nodes then follow from those of node 0. In a folded plan, a message that leaves the node returns to
it. Its receive is the one with which node 0 receives the corresponding message of the node at the
same distance in the other direction.

Paths of tasks and messages in the plan of all ranks correspond to paths in the folded plan, so
times, orders and deadlocks are the same.
"""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import AlgorithmError, AsymmetricError, PlanError
from collplan.planner.plan.folding import Folding
from collplan.planner.plan.plan import COLUMNS, NONE, Op, Plan


def fold(programs: Plan, folding: Folding) -> Plan:
    """Fold the programs of one node of a plan that a motion maps onto itself.

    Parameters
    ----------
    programs : Plan
        The tasks of one node's ranks. The node is a block of the motion.
    folding : Folding

    Returns
    -------
    Plan
        A plan of the node's ranks, in which `folding` and `apart` are set. Messages between two
        ranks have a different tag for each value of `apart`.

    Raises
    ------
    AsymmetricError
        If there are tasks on several nodes.
    """
    motion = folding.motion
    n_local, is_send = motion.step, programs.op == Op.SEND
    is_message = programs.op <= Op.RECV
    node, rank = np.divmod(programs.rank, n_local)
    if (node != node[:1]).any():
        raise AsymmetricError(
            "fold: no message leaves the node, and passes.add_compute adds tasks on other nodes"
        )
    other, peer = np.divmod(np.where(is_message, programs.peer, programs.rank), n_local)
    apart = motion.block_to(*np.where(is_send, (node, other), (other, node)))
    first = int(node.max(initial=0)) * n_local
    ranks = slice(first, first + n_local)
    return programs.replace(
        rank=rank,
        peer=np.where(is_message, peer, NONE),
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
    """Raise an error if the folded programs of two nodes differ.

    The locations of data may differ, because nodes have different chunks and runs of chunks may
    wrap around. The order of rows of different ranks may differ, too.

    Parameters
    ----------
    plan, other : Plan
        Folded plans.

    Raises
    ------
    AsymmetricError
        If a column, the size of accessed data, or the dependencies of tasks differ.
    """
    one, two = _rank_by_rank(plan), _rank_by_rank(other)
    for name, column in one.items():
        if not np.array_equal(column, two[name]):
            raise AsymmetricError(f"fold: tasks have another {name} on other nodes")


def _rank_by_rank(plan: Plan) -> dict[str, Ints]:
    """Return the columns of tasks, sorted by rank, with sizes instead of locations of data."""
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
    """Raise if a folded plan is used where the plan of all ranks is required.

    Parameters
    ----------
    plan : Plan
    use : str
        The use as a past participle, such as ``saved``.

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
    """Raise if a folded plan or one rank's program is used where all tasks are required.

    Parameters
    ----------
    plan : Plan
    use : str
        The use as a past participle, such as ``executed``.

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
