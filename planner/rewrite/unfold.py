"""Compare a folded plan with the plan of all ranks, node by node."""

from __future__ import annotations

from typing import Final

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import AsymmetricError
from collplan.planner.plan.plan import COLUMNS, NONE, Plan
from collplan.planner.plan.ragged import INTENT

OF_ALL_NODES: Final = ("rank", "peer", "priority")
"""Columns that differ between nodes, or that passes compute from the tasks of all nodes."""


def require_copies(plan: Plan, whole: Plan) -> None:
    """Raise an error if the tasks of a node in the plan of all ranks differ from a folded plan.

    Locations of data, the order of rows of different ranks, priorities, and dependencies that
    state a scheduling intent are not compared.

    Parameters
    ----------
    plan : Plan
        A folded plan.
    whole : Plan
        A plan of all ranks.

    Raises
    ------
    AsymmetricError
        If tasks differ. The message names the difference.
    """
    assert plan.folding is not None
    motion, shape = plan.folding.motion, (plan.n_copies, plan.n_tasks)
    own, order = (np.argsort(one.rank, kind="stable") for one in (plan, whole))
    if len(order) != shape[0] * shape[1]:
        raise _unlike("number of tasks")
    node = np.arange(motion.n_blocks)[:, None]
    rank, peer = plan.rank[own], plan.far_peer[own]
    moved = {"rank": motion.move(rank, node)}
    moved["peer"] = np.where(peer == NONE, NONE, motion.move(peer, node))
    moved |= {name: getattr(plan, name)[own] for name in COLUMNS if name not in OF_ALL_NODES}
    for name, column in moved.items():
        if (getattr(whole, name)[order].reshape(shape) != column).any():
            raise _unlike(name)
    for number, name in enumerate(("reads", "writes")):
        if (whole.sizes[number][order].reshape(shape) != plan.sizes[number][own]).any():
            raise _unlike(f"size of {name}")
    edges, first = _hazards(plan, own), np.arange(plan.n_copies) * plan.n_tasks
    of_all = (edges[:, None] + first[:, None]).reshape(2, -1)
    if not np.array_equal(_hazards(whole, order), of_all):
        raise _unlike("list of tasks to wait for")


def _hazards(plan: Plan, order: Ints) -> Ints:
    """Return waiting tasks and the tasks that they wait for, by hazards alone, shape (2, n).

    Tasks are numbered in the given order of rows.
    """
    number, hazard = csr.inverse(order), plan.deps.kind & INTENT == 0
    after, before = number[plan.deps.owner()[hazard]], number[plan.deps.task[hazard]]
    return np.stack((after, before))[:, np.lexsort((before, after))]


def _unlike(what: str) -> AsymmetricError:
    return AsymmetricError(
        f"unfold: tasks of the plan of all ranks have another {what} than the folded plan says; "
        "was it changed after it was compiled?"
    )
