"""Cores, lanes and links of tasks, written in numpy from the rules of the cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.layout import core_to_numa
from collplan.planner.plan.plan import Op, Plan

Longs = npt.NDArray[np.int64]

_CORE, _NUMA, _NODE, _NETWORK = range(4)


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """Cores, lanes and links of the tasks of a plan.

    Parameters
    ----------
    n_lanes : int
        Lanes of each node.
    node, core : ndarray of int64
        Where each task runs.
    lane : ndarray of int64
        The lane a message takes at this end; -1 for messages inside a node,
        which take their rank's port, and for what is no message.
    link : ndarray of int64
        A message's row in `LINKS`.
    """

    n_lanes: int
    node: Longs
    core: Longs
    lane: Longs
    link: Longs


def places_of(plan: Plan, partner: npt.NDArray[Any]) -> Places:
    """Return where tasks run; `partner` is the other end of messages."""
    rank, op = plan.rank.astype(np.int64), plan.op
    is_message = op <= Op.RECV
    other = np.where(is_message, plan.peer, rank)
    node, other_node = plan.rank_node[rank].astype(np.int64), plan.rank_node[other]
    # A rank alone on its node has no port: it sends over its lane even to itself.
    alone = np.bincount(plan.rank_node, minlength=plan.n_nodes)[node] == 1
    receiver = np.where(op == Op.SEND, other, rank)
    lane = np.maximum(np.where(plan.lane < 0, plan.rank_lane[receiver], plan.lane), 0)
    core = plan.core.astype(np.int64)
    other_core = np.where(is_message, plan.core[partner], core)
    numa = core_to_numa(plan)
    same_core = (rank == other) | (core == other_core)
    near = np.where(same_core, _CORE, np.where(numa[core] == numa[other_core], _NUMA, _NODE))
    return Places(
        n_lanes=1 + int(max(plan.lane.max(initial=0), plan.rank_lane.max(initial=0))),
        node=node,
        core=core,
        lane=np.where(is_message & ((node != other_node) | alone), lane, -1).astype(np.int64),
        link=np.where(node == other_node, near, _NETWORK),
    )
