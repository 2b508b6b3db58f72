"""Put all tasks into one order: the one in which they would begin, long paths first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import register_pass
from collplan.planner.passes.scheduling.dispatch import Servers, begin_order
from collplan.planner.passes.scheduling.message_graph import (
    MessageGraph,
    previous_on_link,
    require_all_ranks,
)
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

REMOTE: Final = 64
"""How long a message to another node takes, against one within a node and a step."""
LOCAL: Final = 4
"""How long a message within a node takes."""
STEP: Final = 2
"""How long a copy, a reduction or a computation takes."""
SEGMENTS: Final = 4
"""So many segments that follow each other on a link make a path as long as one message."""
QUANTA: Final = 64
"""Sizes count in parts of the greatest, rounded up: a last, short segment changes little."""
SLOTS: Final = (2, 3, 1)
"""Messages to other nodes, messages within its own and steps that a rank has under way."""


@register_pass(
    "prioritize",
    level="plan",
    locality="global",
    needs="messages whose order is not its own already",
)
def prioritize(plan: Plan) -> Plan:
    """Put all tasks into the order in which they would begin, longest paths first.

    The order is written to the `priority` column; the two ends of a message
    share a place. It is found by running the plan on its lanes: a lane carries
    one message at a time at either end, a rank has a few under way, as
    `limit_requests` will have it, and begins what has the longest path to the
    end among what is ready, ties by row. Messages from one rank to one of
    another node form a path, too, in the order of rows, because they share a
    link: messages side by side so advance evenly, segment by segment, and what
    a ring needs first is made first.

    Times are the same for all machines: `REMOTE`, `LOCAL` and `STEP`, times
    the size; paths count messages, whatever their size.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Returns
    -------
    Plan
        A new plan, or `plan` itself where it has these priorities.

    Raises
    ------
    AlgorithmError
        If the plan is one rank's program, or tasks wait for the start of
        others such that they cannot run one after another.

    Notes
    -----
    A message begins when both its ends may, after all that either waits for
    has completed. So the order is a topological order of the graph in which
    the ends of a message are one node, and tasks and messages could run one
    after another in it: edges along it, as `limit_requests` adds them, cannot
    make tasks wait for each other.

    Time and memory are linear, but for logarithmic queues.

    References
    ----------
    R. L. Graham: Bounds on multiprocessing timing anomalies, SIAM J. Appl.
    Math. 1969 (list scheduling); T. C. Hu: Parallel sequencing and assembly
    line problems, Oper. Res. 1961 (longest path first).
    """
    require_all_ranks(plan, "prioritize")
    weight = _weights(plan)
    part = np.maximum(1, weight // SEGMENTS)
    try:
        graph = MessageGraph.of(plan, previous_on_link(plan))
        length = graph.longest_paths(weight, part)
    except AlgorithmError:
        # In an imported schedule a link's messages may go in another order than the rows.
        graph = MessageGraph.of(plan)
        length = graph.longest_paths(weight, part)
    place = begin_order(graph, _servers(plan, weight), -length)
    priority = place[graph.node].astype(np.int32)
    return plan if np.array_equal(priority, plan.priority) else plan.replace(priority=priority)


def serial_order(plan: Plan) -> Ints:
    """Return an order in which a plan's messages and local tasks can run one after another.

    By priority, then row, where that is one, as after `prioritize`; else the
    order nearest to the rows: of what can come next always the first, a
    message standing where its later end does.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Returns
    -------
    ndarray of int64, shape (n_tasks,)
        The place of every task; the two ends of a message share one.

    Raises
    ------
    AlgorithmError
        If tasks wait for the start of others such that there is no order.
    """
    graph = MessageGraph.of(plan)
    place: Ints = np.zeros(plan.n_tasks, dtype=np.int64)
    order = np.argsort(plan.priority[graph.nodes], kind="stable")
    place[graph.nodes[order]] = np.arange(len(order))
    if not graph.is_order(place):
        later_end = np.arange(plan.n_tasks)
        np.maximum.at(later_end, graph.node, np.arange(plan.n_tasks))
        place = begin_order(graph, Servers.only_one(plan.n_tasks), later_end)
    return place[graph.node]


def _weights(plan: Plan) -> Ints:
    """Return how long every task takes, whatever its size."""
    peer = np.where(plan.op <= Op.RECV, plan.peer, plan.rank)
    crosses = plan.rank_node[plan.rank] != plan.rank_node[peer]
    weight = np.where(crosses, REMOTE, LOCAL)
    weight[plan.op > Op.RECV] = STEP
    return weight


def _servers(plan: Plan, weight: Ints) -> Servers:
    """Return who begins tasks, and which lanes and memory they need for how long.

    A rank has a few messages to other nodes under way, and a few within its
    own, and takes one step at a time. A message between nodes occupies its
    lane at both nodes; one within a node the memory of its two ranks.
    """
    is_message = plan.op <= Op.RECV
    peer = np.where(is_message, plan.peer, plan.rank)
    here, there = plan.rank_node[plan.rank], plan.rank_node[peer]
    crosses = here != there
    lane = np.maximum(plan.lane, 0).astype(np.int64)
    n_lanes = int(lane.max(initial=0)) + 1
    n_lane_ports = 2 * plan.n_nodes * n_lanes
    port_out, port_in = 2 * (here * n_lanes + lane), 2 * (there * n_lanes + lane) + 1
    memory_out, memory_in = n_lane_ports + 2 * plan.rank, n_lane_ports + 2 * peer + 1
    largest = max(1, int(plan.elements.max(initial=0)))
    size = np.maximum(1, -(-plan.elements * QUANTA // largest))
    return Servers(
        server=np.where(crosses, 0, np.where(is_message, 1, 2)) * plan.n_ranks + plan.rank,
        port_out=np.where(crosses, port_out, np.where(is_message, memory_out, -1)),
        port_in=np.where(crosses, port_in, np.where(is_message, memory_in, -1)),
        duration=weight * size,
        n_slots=np.repeat(SLOTS, plan.n_ranks),
        n_ports=n_lane_ports + 2 * plan.n_ranks,
    )
