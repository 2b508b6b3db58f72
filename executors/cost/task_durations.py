"""Durations for which each task holds its core and its lane if no other task delays it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.executors.cost.occupancy import IS_STRIDED, IS_UNCACHED
from collplan.executors.cost.parameters import NETWORK, cost_table, link_table
from collplan.executors.cost.tables import Places
from collplan.planner.arrays import Bools, Floats
from collplan.planner.arrays.rounding import NEARLY_ONE
from collplan.planner.plan.plan import Op
from collplan.specs import Network


@dataclass(frozen=True, eq=False, slots=True)
class Durations:
    """Durations of tasks in ns; for a receive, they begin with the arrival of its message.

    All arrays have the shape (n_tasks,).

    Parameters
    ----------
    core_ns, lane_ns : ndarray of float64
        Durations for which the core, and the lane or port, are held. `lane_ns` is 0 for tasks
        other than messages.
    pieces_ns : ndarray of float64
        Part of a message's `core_ns` that is due to strided data.
    overhead_ns, latency_ns, wire_ns, touch_ns : ndarray of float64
        The terms o, L, (s - 1)·G and (s - 1)·O of a message. The cost of its first packet is
        part of o; that of further packets is part of (s - 1)·O.
    is_cut : ndarray of bool
        Whether a message between nodes is sent in pieces.
    """

    core_ns: Floats
    lane_ns: Floats
    pieces_ns: Floats
    overhead_ns: Floats
    latency_ns: Floats
    wire_ns: Floats
    touch_ns: Floats
    is_cut: Bools


def durations_of(places: Places, network: Network) -> Durations:
    """Return the durations of tasks by the formulas of the simulator's kernel.

    Parameters
    ----------
    places : Places
        Tasks, and the clocks that they hold.
    network : Network

    Returns
    -------
    Durations
    """
    (costs,), tasks = cost_table(network), places.tasks
    op, n_bytes = tasks["op"], tasks["work"]
    is_message = op <= Op.RECV
    crosses = is_message & (tasks["link"] == NETWORK)
    link = link_table(network)[tasks["link"]]
    link[~is_message] = 0
    more = np.maximum(n_bytes - 1, 0.0)
    pace = places.queues["pace"][tasks["queue"]]
    wire, touch = more * (link["G"] * pace), more * link["O"]
    packets = np.ceil(np.maximum(n_bytes, 1) / costs["packet_bytes"])
    touch += np.where(crosses, (packets - 1) * costs["packet"], 0.0)
    strided = np.where(tasks["state"] & IS_STRIDED, costs["strided"], 0.0)
    uncached = np.where(tasks["state"] & IS_UNCACHED, costs["uncached"], 0.0)
    pieces = np.where(is_message, n_bytes * strided, 0.0)
    sending = link["o"] + touch + pieces
    # An adapter that writes to memory itself does not use the receiver's core.
    copying = np.where(link["offload"] > 0, 0.0, link["o"] + wire)
    core_ns = np.select(
        [op == kind for kind in (Op.SEND, Op.RECV, Op.COPY, Op.REDUCE)],
        [
            sending,
            np.maximum(sending, copying),
            np.ceil(n_bytes * (costs["copy"] + strided + uncached) * NEARLY_ONE),
            np.ceil(n_bytes * (costs["reduce"] + strided + uncached) * NEARLY_ONE),
        ],
        tasks["work"],
    )
    turn = np.inf if network.turn_bytes is None else network.turn_bytes
    return Durations(
        core_ns=core_ns,
        lane_ns=link["g"] + wire,
        pieces_ns=pieces,
        overhead_ns=link["o"],
        latency_ns=link["L"],
        wire_ns=wire,
        touch_ns=touch,
        is_cut=crosses & (n_bytes > turn),
    )
