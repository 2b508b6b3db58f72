"""Counts of a plan: tasks, rounds, bytes, queue pairs, scratch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Bools, Ints
from collplan.planner.collective.bounds import Bounds, lower_bounds
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.verify.order import Execution


@dataclass(frozen=True, slots=True)
class Metrics:
    """Counts of a plan; "per" is the maximum over ranks, nodes or lanes.

    Parameters
    ----------
    n_tasks, n_messages : int
        Tasks, and messages among them.
    n_rounds : int
        Makespan where every message takes one unit of time, a rank sends one
        and receives one at a time, and nothing else takes any.
    bytes_sent_per_rank, bytes_received_per_rank : int
        In messages to any rank.
    bytes_sent_per_node, bytes_received_per_node : int
        In messages to and from other nodes.
    bytes_sent_per_lane, bytes_received_per_lane : int
        The same through one lane of a node.
    lane_bytes : int
        The greater of those two.
    queue_pairs_per_node : int
        Distinct pairs of ranks that talk across nodes, at the sending node.
    posted_sends_per_node : int
        Messages to other nodes.
    scratch_bytes_per_rank, scratch_bytes_per_node : int
        Memory the plan needs beside the caller's buffers.
    bounds : Bounds or None
        Lower bounds that hold for every plan; None for an imported schedule.
    """

    n_tasks: int
    n_messages: int
    n_rounds: int
    bytes_sent_per_rank: int
    bytes_received_per_rank: int
    bytes_sent_per_node: int
    bytes_received_per_node: int
    bytes_sent_per_lane: int
    bytes_received_per_lane: int
    lane_bytes: int
    queue_pairs_per_node: int
    posted_sends_per_node: int
    scratch_bytes_per_rank: int
    scratch_bytes_per_node: int
    bounds: Bounds | None

    def to_json(self) -> dict[str, Any]:
        """Return the metrics as a mapping, bounds as a mapping inside."""
        return asdict(self)


def measure(plan: Plan) -> Metrics:
    """Count what a plan moves and needs.

    Raises
    ------
    PlanError
        If messages do not match or the plan deadlocks: it has no rounds then.
    """
    sends, recvs = match_messages(plan)
    source, dest = plan.rank[sends].astype(np.int64), plan.rank[recvs].astype(np.int64)
    n_bytes = plan.elements[sends] * plan.itemsize
    crosses = plan.crosses[sends]
    from_node, to_node = plan.rank_node[source[crosses]], plan.rank_node[dest[crosses]]
    lanes = int(plan.rank_lane.max(initial=0)) + 1
    lane = plan.lane[sends[crosses]]
    across = n_bytes[crosses]
    apart = plan.apart[sends[crosses]].astype(np.int64)
    pairs = np.unique((source[crosses] * plan.n_copies + apart) * plan.n_ranks + dest[crosses])
    scratch = plan.buffer_sizes[:, Buffer.SCRATCH] * plan.itemsize
    node_scratch = np.bincount(plan.rank_node, scratch, plan.n_nodes)
    node_scratch += plan.shared_sizes * plan.itemsize
    lane_out, lane_in = (_most(node * lanes + lane, across) for node in (from_node, to_node))
    return Metrics(
        n_tasks=plan.n_tasks * plan.n_copies,
        n_messages=len(sends) * plan.n_copies,
        n_rounds=unit_makespan(plan),
        bytes_sent_per_rank=_most(source, n_bytes),
        bytes_received_per_rank=_most(dest, n_bytes),
        bytes_sent_per_node=_most(from_node, across),
        bytes_received_per_node=_most(to_node, across),
        bytes_sent_per_lane=lane_out,
        bytes_received_per_lane=lane_in,
        lane_bytes=max(lane_out, lane_in),
        queue_pairs_per_node=_most(plan.rank_node[pairs // (plan.n_ranks * plan.n_copies)]),
        posted_sends_per_node=_most(from_node),
        scratch_bytes_per_rank=int(scratch.max(initial=0)),
        scratch_bytes_per_node=int(node_scratch.max(initial=0)),
        bounds=lower_bounds(plan.spec) if plan.spec else None,
    )


def count_node(plan: Plan, node: int) -> tuple[int, int, int]:
    """Return a node's queue pairs, posted sends and bytes of scratch, from its ranks' tasks alone.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of the node's.
    node : int
    """
    own = (plan.op == Op.SEND) & (plan.rank_node[plan.rank] == node)
    rows = np.flatnonzero(own)
    rows = rows[plan.rank_node[plan.peer[rows]] != node]
    pairs = np.unique(plan.rank[rows].astype(np.int64) * plan.n_ranks + plan.peer[rows])
    scratch = plan.buffer_sizes[plan.rank_node == node, Buffer.SCRATCH].sum()
    return len(pairs), len(rows), int((scratch + plan.shared_sizes[node]) * plan.itemsize)


def _most(home: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None) -> int:
    """Return the greatest total of any home."""
    return int(np.bincount(home, weights).max(initial=0)) if len(home) else 0


def unit_makespan(plan: Plan) -> int:
    """Return the rounds of a plan: see `Metrics.n_rounds`."""
    return int(unit_times(plan).max(initial=0))


def unit_times(plan: Plan) -> Ints:
    """Return the number of the round in which each task ends, from 1 on for messages.

    Messages take their turn at ports in an order in which the plan can run,
    which is its row order where it was compiled.

    Returns
    -------
    ndarray of int32, shape (n_tasks,)
    """
    execution = Execution.of(plan)
    is_send = np.ascontiguousarray(plan.op == Op.SEND)
    rank = np.ascontiguousarray(plan.rank)
    end: Ints = _unit_times(execution, execution.events(), rank, is_send, plan.n_ranks)
    return end


@compiled
def _unit_times(
    execution: Execution, events: Ints, rank: Ints, is_send: Bools, n_ranks: int
) -> Any:
    indptr, before, kind, sender, _ = execution
    n = len(rank)
    ready, end = np.zeros(n, np.int32), np.zeros(n, np.int32)
    out_free, in_free = np.zeros(n_ranks, np.int32), np.zeros(n_ranks, np.int32)
    for event in events:
        task = event % n
        if event < n:
            for j in range(indptr[task], indptr[task + 1]):
                by_start = (kind[j] & 1) != 0
                ready[task] = max(ready[task], ready[before[j]] if by_start else end[before[j]])
        elif sender[task] >= 0:
            send = sender[task]
            source, dest = rank[send], rank[task]
            begin = max(ready[send], ready[task], out_free[source], in_free[dest])
            end[send] = end[task] = begin + 1
            out_free[source] = in_free[dest] = begin + 1
        elif not is_send[task]:
            end[task] = ready[task]
    return end
