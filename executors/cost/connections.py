"""Caches of queue pairs in network adapters, with least-recently-used replacement."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from collplan.executors.cost.parameters import NETWORK
from collplan.executors.cost.tables import Places, Records, inner
from collplan.planner.arrays import Ints, csr
from collplan.planner.machine_code.kernel import compile_with
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import Nic

CONNECTION: Final = np.dtype(
    [
        ("ready", "f8"),  # time when the adapter has read it
        ("slot", "i4"),
        ("newer", "i4"),
        ("older", "i4"),
        ("is_cached", "i4"),
        ("peer", "i4"),  # rank it is connected to, -1 for none, for dynamic connections
    ],
    align=True,
)
"""Row i: `slot` is the queue pair of send i; all other fields are the state of queue pair i."""
ADAPTER: Final = np.dtype(
    [("newest", "i4"), ("oldest", "i4"), ("room", "i4"), ("reads", "i4"), ("is_dynamic", "i4")]
)
"""An adapter: ends of the list of its cached queue pairs, free slots, and number of reads."""


def make_connections(plan: Plan, places: Places, nic: Nic | None) -> tuple[Records, Records]:
    """Return the queue pairs of all sends between nodes, and the adapters.

    A queue pair belongs to a rank on a lane, or to a pair of ranks on a lane for reliable
    connections.

    Parameters
    ----------
    plan : Plan
    places : Places
        Clocks that the tasks of the plan hold.
    nic : Nic or None
        Adapters; None if they hold all queue pairs, which gives empty tables.

    Returns
    -------
    connections : ndarray of CONNECTION, shape (n_tasks,)
    adapters : ndarray of ADAPTER, shape (n_nodes * n_lanes,)
    """
    if nic is None:
        return np.zeros(0, dtype=CONNECTION), np.zeros(0, dtype=ADAPTER)
    connections = np.zeros(plan.n_tasks, dtype=CONNECTION)
    connections["peer"] = -1
    clocks = places.clocks
    adapters = np.zeros(clocks.lane_in - clocks.lane_out, dtype=ADAPTER)
    adapters["newest"] = adapters["oldest"] = -1
    adapters["room"] = nic.connections
    adapters["is_dynamic"] = nic.transport == "dc"
    sends = np.flatnonzero((places.tasks["op"] == Op.SEND) & (places.tasks["link"] == NETWORK))
    peer, adapter = plan.peer[sends], places.take(sends).lane - clocks.lane_out
    ends = csr.joint_key(plan.rank[sends], adapter, len(adapters))
    if nic.transport == "rc":
        ends = csr.joint_key(ends, peer, plan.n_ranks)
    _, slot = np.unique(ends, return_inverse=True)
    connections["slot"][sends] = slot
    if nic.warm and len(sends):
        last = np.zeros(int(slot.max()) + 1, dtype=np.int64)
        last[slot] = np.arange(len(sends))  # of equal slots, numpy keeps the last value
        connections["peer"][: len(last)] = peer[last]
        _use_in_turn(connections, adapters, np.argsort(last), adapter[last])
        adapters["reads"] = 0
    return connections, adapters


@compile_with(_nrt=False)
def _use_in_turn(connections: Records, adapters: Records, slots: Ints, adapter: Ints) -> None:
    """Use queue pairs one after another, each at its adapter."""
    for slot in slots:
        _is_missing(connections, adapters[adapter[slot]], slot)


@inner
def fetch(
    connections: Records, adapter: Any, row: int, peer: int, now: float, miss: float, connect: float
) -> tuple[float, float]:
    """Use the queue pair of a send.

    Parameters
    ----------
    connections : ndarray of CONNECTION
    adapter : record of ADAPTER
    row, peer : int
        The send and its destination.
    now : float
        Time in ns.
    miss, connect : float
        Times to read a queue pair and to connect it to another rank, in ns.

    Returns
    -------
    reads_ns, waits_ns : float
        Time that the adapter reads, and time that the message waits.
    """
    slot = connections[row].slot
    reads = miss if _is_missing(connections, adapter, slot) else 0.0
    if adapter.is_dynamic and connections[slot].peer != peer:
        connections[slot].peer = peer
        reads += connect
        adapter.reads += 1
    # Reads of different queue pairs overlap, but messages of one queue pair keep their order.
    ready = max(connections[slot].ready, now + reads)
    connections[slot].ready = ready
    return reads, ready - now


@inner
def _is_missing(connections: Records, adapter: Any, slot: int) -> bool:
    """Make a queue pair the newest one; return whether the adapter had to read it."""
    used = connections[slot]
    is_new = not used.is_cached
    if is_new:
        used.is_cached = 1
        adapter.reads += 1
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
