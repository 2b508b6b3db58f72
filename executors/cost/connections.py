"""An adapter's cache of connections: the least recently used goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from executors.cost.event_queue import Records, compiled
from planner.plan import Op

if TYPE_CHECKING:
    from executors.cost.clocks import Clocks
    from planner.plan import Plan
    from specs import Nic

CONNECTION: Final = np.dtype(
    [("slot", "i4"), ("newer", "i4"), ("older", "i4"), ("is_cached", "i4")]
)
"""Row i: the connection of send i, in `slot`; beside it the state of connection i."""
ADAPTER: Final = np.dtype([("newest", "i4"), ("oldest", "i4"), ("room", "i4")])


def make_connections(plan: Plan, clocks: Clocks, nic: Nic | None) -> tuple[Records, Records]:
    """Return the connections of all sends between nodes, and the adapters, which hold none yet.

    A connection is a pair of ranks on a lane.
    """
    if nic is None:
        return np.zeros(0, dtype=CONNECTION), np.zeros(0, dtype=ADAPTER)
    connections = np.zeros(plan.n_tasks, dtype=CONNECTION)
    sends = np.flatnonzero(plan.op == Op.SEND)
    pair = plan.rank[sends].astype(np.int64) * plan.n_ranks + plan.peer[sends]
    key = pair * (clocks.n_lanes + 1) + plan.lane[sends]
    connections["slot"][sends] = np.unique(key, return_inverse=True)[1]
    adapters = np.zeros(clocks.n_nodes * clocks.n_lanes, dtype=ADAPTER)
    adapters["newest"] = adapters["oldest"] = -1
    adapters["room"] = nic.connections
    return connections, adapters


@compiled
def is_missing(connections: Records, adapter: Any, row: int) -> bool:
    """Use the connection of a send; return whether the adapter had to fetch it."""
    slot = connections[row].slot
    used = connections[slot]
    is_new = not used.is_cached
    if is_new:
        used.is_cached = 1
        if adapter.room > 0:
            adapter.room -= 1
        else:
            dropped = connections[adapter.oldest]
            dropped.is_cached = 0
            adapter.oldest = dropped.newer
            if adapter.oldest >= 0:
                connections[adapter.oldest].older = -1
            else:
                adapter.newest = -1
    elif adapter.newest == slot:
        return False
    else:
        newer, older = used.newer, used.older
        connections[newer].older = older
        if older >= 0:
            connections[older].newer = newer
        else:
            adapter.oldest = newer
    used.newer, used.older = -1, adapter.newest
    if adapter.newest >= 0:
        connections[adapter.newest].newer = slot
    else:
        adapter.oldest = slot
    adapter.newest = slot
    return bool(is_new)
