"""The task graph with the two ends of every message as one node.

If all edges lead forward in an order of the nodes, the nodes can run one after another in this
order: a message runs from the start of its first end to its completion. Further edges along this
order therefore cannot cause a deadlock, even if sends wait for their receives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.errors import AlgorithmError
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import NONE, Op, Plan

COMPLETION, START, FOLLOWS = 0, 1, 2
"""Events that an edge waits for; an edge that only follows is not waited for."""


@dataclass(frozen=True, eq=False, slots=True)
class MessageGraph:
    """Nodes, numbered by the rows of sends and of local tasks, and their successors.

    Parameters
    ----------
    node : ndarray of int32, shape (n_tasks,)
        Node of every row: the row itself, or the row of the send for a receive.
    nodes : ndarray of int64, shape (n_nodes,)
        Numbers of the nodes, ascending.
    indptr, after : ndarray
        Successors in CSR form by row; rows of receives have none.
    edge : ndarray of int8
        Kind of every edge: the successor waits for `COMPLETION` or `START` of the node, or only
        `FOLLOWS` it, like messages on one link.
    """

    node: Ints
    nodes: Ints
    indptr: Ints
    after: Ints
    edge: Ints

    @classmethod
    def of(cls, plan: Plan, previous: Ints | None = None) -> MessageGraph:
        """Return the graph of a plan of all ranks.

        Parameters
        ----------
        plan : Plan
        previous : ndarray of int64, shape (n_tasks,), optional
            Row that each row follows in addition to its dependencies, or -1.
        """
        sends, recvs = match_messages(plan)
        node = np.arange(plan.n_tasks, dtype=np.int32)
        node[recvs] = sends
        if previous is None:
            previous = np.full(plan.n_tasks, NONE, dtype=np.int64)
        deps = map(np.ascontiguousarray, (plan.deps.indptr, plan.deps.task, plan.deps.kind))
        successors = _join_ends(*deps, node, previous)
        return cls(node, np.flatnonzero(node == np.arange(len(node))), *successors)

    def longest_paths(self, weight: Ints, part: Ints) -> Ints:
        """Return the length of the longest path from every node to the end.

        Parameters
        ----------
        weight, part : ndarray of int64, shape (n_tasks,)
            Length that a node adds to a path that ends with it or leaves it by an edge on
            completion, and to a path that leaves it by another edge.

        Raises
        ------
        AlgorithmError
            If edges form a cycle.
        """
        order = self._order()
        return np.asarray(_longest_paths(self.indptr, self.after, self.edge, order, weight, part))

    def levels(self, weight: Ints) -> Ints:
        """Return the greatest total weight of the nodes on a path to each node, without its own.

        Parameters
        ----------
        weight : ndarray of int64, shape (n_tasks,)

        Raises
        ------
        AlgorithmError
            If edges form a cycle.
        """
        return np.asarray(_levels(self.indptr, self.after, self._order(), weight))

    def _order(self) -> Ints:
        order = _topological_order(self.indptr, self.after, self.nodes)
        is_done = np.zeros(len(self.node), dtype=bool)
        is_done[order] = True
        self.require_all(is_done)
        return np.asarray(order)

    def is_order(self, place: Ints) -> bool:
        """Return whether all edges lead forward in an order of the nodes."""
        return bool((place[self.after] > place[csr.row_numbers(self.indptr)]).all())

    def require_all(self, is_done: Bools) -> None:
        """Raise `AlgorithmError` if not all nodes are done, which means that there is a cycle."""
        stuck = self.nodes[~is_done[self.nodes]]
        if len(stuck):
            raise AlgorithmError(
                f"passes: task #{stuck[0]} and {len(stuck) - 1} more cannot run one after another, "
                "as some wait for the start of messages that complete after them; leave out "
                "prioritize and limit_requests, which need an order"
            )


def previous_on_link(plan: Plan) -> Ints:
    """Return the send before each send to another node on the same link; -1 for other rows.

    A link joins two ranks. Messages inside a node are not ordered, as memory is fast, unless all
    ranks are on one node.
    """
    is_slow = plan.crosses if plan.crosses.any() else np.ones(plan.n_tasks, dtype=np.bool_)
    sends = np.flatnonzero((plan.op == Op.SEND) & is_slow)
    link = csr.joint_key(plan.rank[sends], plan.far_peer[sends], plan.n_ranks * plan.n_copies)
    by_link = np.argsort(link, kind="stable")
    order, same = sends[by_link], link[by_link[1:]] == link[by_link[:-1]]
    previous = np.full(plan.n_tasks, NONE, dtype=np.int64)
    previous[order[1:][same]] = order[:-1][same]
    return previous


def require_all_ranks(plan: Plan, name: str) -> None:
    """Raise `AlgorithmError` if pass `name`, which needs all ranks, gets one rank's program."""
    if plan.only_rank is not None:
        raise AlgorithmError(
            f"passes.{name}: it needs the plan of all ranks, this is rank {plan.only_rank}'s "
            "program alone; compile the whole plan and take the rank out of it with "
            "collplan.planner.rewrite.rank_program.restrict"
        )


@compiled
def _join_ends(indptr: Ints, before: Ints, kind: Ints, node: Ints, previous: Ints) -> Any:
    """Return the successors of every node in CSR, and the kinds of edges."""
    n = len(node)
    first = np.zeros(n + 1, np.int64)
    after, edge = np.empty(0, np.int32), np.empty(0, np.int8)
    for fill in range(2):
        for row in range(n):
            for j in range(indptr[row], indptr[row + 1] + (previous[row] >= 0)):
                is_stated = j < indptr[row + 1]
                one = node[before[j]] if is_stated else node[previous[row]]
                on_start = is_stated and (kind[j] & 1) != 0
                # One end of a message of a rank to itself may wait for the start of the other end.
                if one == node[row] and on_start:
                    continue
                if fill:
                    # Filling a list has moved its beginning to its end.
                    after[first[one]] = node[row]
                    edge[first[one]] = START if on_start else COMPLETION if is_stated else FOLLOWS
                first[one + (1 - fill)] += 1
        if not fill:
            for one in range(n):
                first[one + 1] += first[one]
            after, edge = np.empty(first[n], np.int32), np.empty(first[n], np.int8)
    first[1:] = first[:-1].copy()
    first[0] = 0
    return first, after, edge


@compiled
def _topological_order(indptr: Ints, after: Ints, nodes: Ints) -> Any:
    """Return the nodes in an order in which all edges lead forward, without nodes on cycles."""
    waiting = np.zeros(len(indptr) - 1, np.int32)
    for other in after:
        waiting[other] += 1
    order = np.empty(len(nodes), np.int64)
    head, tail = 0, 0
    for node in nodes:
        if waiting[node] == 0:
            order[tail] = node
            tail += 1
    while head < tail:
        for j in range(indptr[order[head]], indptr[order[head] + 1]):
            waiting[after[j]] -= 1
            if waiting[after[j]] == 0:
                order[tail] = after[j]
                tail += 1
        head += 1
    return order[:tail]


@compiled
def _longest_paths(
    indptr: Ints, after: Ints, edge: Ints, order: Ints, weight: Ints, part: Ints
) -> Any:
    """Return the length of the longest path from every node, given a topological order."""
    length = np.zeros(len(weight), np.int64)
    for node in order[::-1]:
        length[node] = weight[node]
        for j in range(indptr[node], indptr[node + 1]):
            step = weight[node] if edge[j] == COMPLETION else part[node]
            length[node] = max(length[node], step + length[after[j]])
    return length


@compiled
def _levels(indptr: Ints, after: Ints, order: Ints, weight: Ints) -> Any:
    """Return the greatest weight before every node, given a topological order."""
    level = np.zeros(len(weight), np.int64)
    for node in order:
        for j in range(indptr[node], indptr[node + 1]):
            level[after[j]] = max(level[after[j]], level[node] + weight[node])
    return level
