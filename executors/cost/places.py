"""Where tasks run: their nodes, cores, lanes and links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.layout import core_to_numa
from collplan.executors.cost.parameters import LINK_CLASSES
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

Ints = npt.NDArray[np.integer[Any]]
Longs = npt.NDArray[np.int64]

_CORE, _NUMA, _NODE, _NETWORK = range(len(LINK_CLASSES))


@dataclass(frozen=True, slots=True)
class Resource:
    """A core, one direction of a lane of a node or of a rank's port, or a shared processor.

    Parameters
    ----------
    kind : "core", "lane", "port" or "processor"
        What it is.
    place : int
        The node of a core or lane, the rank of a port, 0 for a processor.
    index : int
        Which core or lane of the node.
    direction : "out", "in" or ""
        Of a lane or port.
    """

    kind: Literal["core", "lane", "port", "processor"]
    place: int
    index: int = 0
    direction: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return its kind, and node and core, node, lane and direction, or rank and direction."""
        if self.kind == "processor":
            return {"kind": "processor"}
        if self.kind == "core":
            return {"kind": "core", "node": self.place, "core": self.index}
        if self.kind == "lane":
            where = {"node": self.place, "lane": self.index}
        else:
            where = {"rank": self.place}
        return {"kind": self.kind, **where, "direction": self.direction}


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """Cores, lanes and links of some tasks of a plan.

    Parameters
    ----------
    n_cores, n_lanes : int
        Of each node.
    rank, node, core : ndarray of int64
        Where each task runs.
    lane : ndarray of int64
        The lane a message takes at this end; -1 for messages inside a node,
        which take their rank's port, and for what is no message.
    link : ndarray of int64
        A message's row in `LINK_CLASSES`.
    """

    n_cores: int
    n_lanes: int
    rank: Longs
    node: Longs
    core: Longs
    lane: Longs
    link: Longs


def places_of(plan: Plan, partner: Ints, rows: Longs | None = None) -> Places:
    """Return where tasks run, all or those of `rows`; `partner` is the other end of messages."""
    chosen = slice(None) if rows is None else rows
    rank, op = plan.rank[chosen].astype(np.int64), plan.op[chosen]
    is_message = op <= Op.RECV
    other = np.where(is_message, plan.peer[chosen], rank)
    node, other_node = plan.rank_node[rank].astype(np.int64), plan.rank_node[other]
    # A rank alone on its node has no port: it sends over its lane even to itself.
    alone = np.bincount(plan.rank_node, minlength=plan.n_nodes)[node] == 1
    lane = plan.lane[chosen].astype(np.int64)
    receiver = np.where(op == Op.SEND, other, rank)
    lane = np.maximum(np.where(lane < 0, plan.rank_lane[receiver], lane), 0)
    core = plan.core[chosen].astype(np.int64)
    other_core = np.where(is_message, plan.core[partner[chosen]], core)
    numa = core_to_numa(plan)
    same_core = (rank == other) | (core == other_core)
    near = np.where(same_core, _CORE, np.where(numa[core] == numa[other_core], _NUMA, _NODE))
    return Places(
        n_cores=1 + int(max(plan.core.max(initial=0), plan.rank_core.max(initial=0))),
        n_lanes=1 + int(max(plan.lane.max(initial=0), plan.rank_lane.max(initial=0))),
        rank=rank,
        node=node,
        core=core,
        lane=np.where(is_message & ((node != other_node) | alone), lane, -1),
        link=np.where(node == other_node, near, _NETWORK),
    )
