"""Limit the messages that each rank has in flight, by edges that the proof covers."""

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

    A send starts when the one `remote` (or `local`) before it has completed, and
    of all its node's ranks to other nodes the one `node` before it;
    a receive when the one `receives` before it from the same rank has. The
    edges state intent, on completion. They follow the order of `prioritize`
    where the plan has it, else the rows, or the nearest order in which
    messages can run one after another; so they never make tasks wait for each
    other. Tasks of another stage are counted apart: nothing inside a start
    waits for what only a wait runs.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.
    remote, local : int or None
        Sends in flight per rank, to other nodes and within its own; 0 or None
        sets no limit.
    receives : int or None
        Receives posted per pair of ranks; 0 or None sets no limit.
    node : int or None
        Sends in flight per node, to other nodes; 0 or None sets no limit. Ranks
        of a node can wait for each other where they share memory only.
    order : str or None
        With ``rows``, edges follow the rows, whatever the priorities. Each rank knows the rows
        of its own program, so that can be compiled alone. In the rows of a compiled plan,
        messages can run one after another.

    Returns
    -------
    Plan
        A new plan, or `plan` itself where it keeps the limits already.

    Raises
    ------
    AlgorithmError
        If a limit is not a number of at least 0, the plan is one rank's
        program without an order of rows, `node` has such an order, or joins ranks that share no
        memory, or tasks wait for the start of others such that messages cannot run one after
        another.
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
    """Return the place of every task in the order that limits follow."""
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
    """Return the message each waits for by its rank's limits, and by its node's; -1 for none."""
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
    """Raise `AlgorithmError` where ranks would wait for each other that share no memory."""
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
    """Return dependencies with an edge from every row's predecessor, and how many are new.

    A pair has one edge: one on completion says all, and one on start is turned into one.
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
