"""Limits for the messages that each rank has in flight, as edges that verification includes."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import register_pass
from collplan.planner.passes.scheduling.message_graph import require_all_ranks
from collplan.planner.passes.scheduling.prioritize import serial_order
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import INTENT, ON_START, Dependencies

Limit = Annotated[int | None, Field(ge=0), "{} is not a number of at least 0; use 0 for no limit"]

Order = Annotated[Literal["rows"] | None, "{} is not an order; use rows, or leave it out"]


@register_pass(
    "limit_requests",
    level="plan",
    locality="rank",
    order=None,
    takes_folded=True,
    needs="ranks with more messages in flight than its limits",
)
def limit_requests(
    plan: Plan,
    remote: Limit = 2,
    local: Limit = 3,
    receives: Limit = 8,
    node: Limit = None,
    order: Order = None,
) -> Plan:
    """Limit the sends of a rank in flight, and the posted receives of a stream.

    In the order of a rank's sends to other nodes, each waits for the completion of the send that
    is `remote` places before it. The same holds for sends within the node with `local`, for sends
    of all ranks of a node to other nodes with `node`, and for receives from one rank with
    `receives`. These edges state intent. They follow the order of `prioritize` if the plan has
    one, otherwise the rows, or the nearest order in which messages can run one after another.
    Therefore they cannot cause a deadlock. Tasks of different stages are counted separately, as
    tasks of stage START must not wait for tasks of stage WAIT.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.
    remote, local : int or None
        Maximum number of sends in flight per rank, to other nodes and within its own node; 0 or
        None sets no limit.
    receives : int or None
        Maximum number of posted receives per pair of ranks; 0 or None sets no limit.
    node : int or None
        Maximum number of sends in flight per node, to other nodes; 0 or None sets no limit. It
        requires that the ranks of a node share memory, as they wait for each other.
    order : str or None
        With ``rows``, edges follow the rows and not the priorities. Each rank knows the rows of
        its own program, which can therefore be compiled alone. In the order of the rows of a
        compiled plan, messages can run one after another.

    Returns
    -------
    Plan
        A new plan, or `plan` itself if it is already within the limits.

    Raises
    ------
    AlgorithmError
        If a limit is not a number of at least 0; if the plan is one rank's program and the order
        is not ``rows``; if `node` is given with the order ``rows``, or for ranks that do not
        share memory; or if tasks wait for the start of others such that messages cannot run one
        after another.
    """
    width = {"remote": remote, "local": local, "receives": receives, "node": node}
    predecessors = _predecessors(plan, width, _order(plan, node, order))
    _require_shared(plan, predecessors[1])
    deps, n_new = plan.deps, 0
    for before in predecessors:
        deps, n = _with_edges(deps, before)
        n_new += n
    return plan.replace(deps=deps) if n_new else plan


def _order(plan: Plan, node: int | None, order: str | None) -> Ints:
    """Return the place of every task in the order of the limits."""
    if order is None:
        require_all_ranks(plan, "limit_requests")
        return serial_order(plan)
    if node:
        raise AlgorithmError(
            "passes.limit_requests.node: with order rows each rank has its own limits; "
            "limit each by remote, or leave out the order"
        )
    return np.arange(plan.n_tasks)


def _predecessors(plan: Plan, width: dict[str, int | None], place: Ints) -> Ints:
    """Return the message that each task waits for by the limits of its rank and of its node.

    The result has a row for ranks and a row for nodes; -1 means no message.
    """
    is_send, is_recv = plan.op == Op.SEND, plan.op == Op.RECV
    crosses = is_send & plan.crosses
    stream = csr.joint_key(plan.rank, plan.far_peer, plan.n_ranks * plan.n_copies)
    of_rank, of_node = found = np.full((2, plan.n_tasks), -1, dtype=np.int32)
    for name, is_limited, group, predecessor in (
        ("remote", crosses, plan.rank, of_rank),
        ("local", is_send & ~crosses, plan.rank, of_rank),
        ("receives", is_recv, stream, of_rank),
        ("node", crosses, plan.rank_node[plan.rank], of_node),
    ):
        limit = width[name]
        if limit:
            rows = np.flatnonzero(is_limited)
            order = rows[np.lexsort((place[rows], plan.stage[rows], group[rows]))]
            before, after = order[:-limit], order[limit:]
            same = (group[before] == group[after]) & (plan.stage[before] == plan.stage[after])
            predecessor[after[same]] = before[same]
    return found


def _require_shared(plan: Plan, predecessor: Ints) -> None:
    """Raise `AlgorithmError` if ranks that do not share memory would wait for each other."""
    after = np.flatnonzero(predecessor >= 0)
    apart = after[plan.rank[after] != plan.rank[predecessor[after]]]
    apart = apart[plan.shared_sizes[plan.rank_node[plan.rank[apart]]] == 0]
    if len(apart):
        one, other = (int(plan.rank[row]) for row in (predecessor[apart[0]], apart[0]))
        raise AlgorithmError(
            f"passes.limit_requests.node: ranks {one} and {other} share a node but no memory to "
            "wait for each other in; write transport: shared, or limit each by remote"
        )


def _with_edges(deps: Dependencies, predecessor: Ints) -> tuple[Dependencies, int]:
    """Return dependencies with an edge from every row's predecessor, and the number of new edges.

    A pair of tasks has one edge. An edge on the start becomes an edge on completion.
    """
    owner = deps.owner()
    is_known = deps.task == predecessor[owner]
    is_turned = is_known & ((deps.kind & ON_START) != 0)
    is_missing = predecessor >= 0
    is_missing[owner[is_known]] = False
    rows = np.flatnonzero(is_missing)
    order, indptr = csr.group_by(np.concatenate((owner, rows)), len(predecessor))
    before = np.concatenate((deps.task, predecessor[rows]))
    kind = np.concatenate((np.where(is_turned, INTENT, deps.kind), np.full(len(rows), INTENT)))
    n_new = int(is_turned.sum()) + len(rows)
    return Dependencies(indptr, before[order], kind[order]), n_new
