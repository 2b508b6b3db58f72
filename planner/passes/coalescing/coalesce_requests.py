"""Make one message of several that travel together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.arrays.csr import joint_key, run_bounds
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.coalescing.packing import pack_messages, remap_messages
from collplan.planner.passes.registry import register_pass
from collplan.planner.passes.scheduling.message_graph import MessageGraph, require_all_ranks
from collplan.planner.plan.merge_tasks import join_tasks
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

Staging = Literal["remap", "pack", "layout"]
STAGINGS: Final[tuple[str, ...]] = get_args(Staging)
"""What can become of blocks that lie apart."""


@register_pass(
    "coalesce_requests",
    level="plan",
    locality="node",
    when="ready",
    needs="ranks that send another rank several messages together, "
    "as in an alltoall with decomposition: hierarchical and transport: shared",
)
def coalesce_requests(
    plan: Plan,
    staging: Annotated[Staging, "{} is none; use remap, pack, layout"] = "remap",
    when: Annotated[Literal["round", "ready"], "{} is neither; use round or ready"] = "round",
) -> Plan:
    """Make one message of those with one source and destination that travel together.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of those of some nodes.
    staging : str
        What becomes of blocks that lie apart. ``layout``: the message has
        several extents, under MPI a derived datatype. ``pack``: a copy puts
        them together in scratch before the send, another takes them apart
        after the receive. ``remap``: where they lie in one scratch or shared
        buffer, and in no other message, the buffer is permuted so that each
        message is one interval, and the copies there are do the rearranging;
        elsewhere as ``layout``. Within a message blocks keep their order, so
        copies move runs as long as the blocks were.
    when : str
        Which messages of a pair of ranks travel together: those of one phase and
        ``round``, or all that are ``ready`` together, that is after as many
        messages, one after the other, from the start. The latter needs a plan of
        all ranks; rows are put in the order in which they become ready.

    Returns
    -------
    Plan
        A new plan, or `plan` itself where every message travels alone.

    Raises
    ------
    AlgorithmError
        If `staging` or `when` is unknown; if the plan is a program that waits
        for others, or with ``ready`` any rank's alone; or if something between
        two such messages waits for the first, as where landing slots are used
        again within a round.

    References
    ----------
    Tran et al., "OHIO", 2024: request coalescing, and its figure 5 for ``remap``.
    """
    require_whole_nodes(plan, "coalesce_requests")
    if when == "ready":
        require_all_ranks(plan, "coalesce_requests")
    order, bounds = _groups(plan) if when == "round" else _ready_groups(plan)
    lengths = np.diff(bounds)
    if (lengths == 1).all():
        return plan
    merged = join_tasks(plan, order, bounds, "coalesce_requests")
    rows = np.flatnonzero(lengths > 1)
    if staging == "layout":
        return merged
    return remap_messages(merged, rows) if staging == "remap" else pack_messages(merged, rows)


def require_whole_nodes(plan: Plan, name: str) -> None:
    """Raise `AlgorithmError` where pass `name` is given a program that waits for others."""
    if len(plan.foreign) or len(plan.foreign.awaited):
        raise AlgorithmError(
            f"passes.{name}: rank {plan.only_rank}'s program shares memory with others of its "
            "node, which must be seen; compile it from its spec, or restrict the plan of all ranks"
        )


def _groups(plan: Plan) -> tuple[Ints, Ints]:
    """Return rows in an order that keeps messages that become one together, and the groups' bounds.

    Within a group tags ascend, as they do at both ends; groups are in the
    order of their last rows.
    """
    n = plan.n_tasks
    n_rounds, n_stages = int(plan.round.max(initial=0)) + 1, int(plan.stage.max(initial=0)) + 1
    rows = np.flatnonzero(plan.op <= Op.RECV)
    when = joint_key(joint_key(plan.phase, plan.round, n_rounds), plan.stage, n_stages)[rows]
    pair = joint_key(plan.rank[rows], plan.peer[rows], plan.n_ranks)
    keys = (when, pair, plan.op[rows])
    order = np.lexsort((rows, *keys))
    # Rows ascend within a group: its last entry is its last row.
    bounds = run_bounds(*(key[order] for key in keys))
    last = np.arange(n)
    last[rows[order]] = np.repeat(rows[order[bounds[1:] - 1]], np.diff(bounds))
    by_group = np.lexsort((np.arange(n), plan.tag, last))
    return by_group, run_bounds(last[by_group])


def _ready_groups(plan: Plan) -> tuple[Ints, Ints]:
    """Return the same for messages that are ready together; rows by when they are ready.

    No message leads to another of the same level, so none waits for itself
    as part of a greater one.
    """
    graph = MessageGraph.of(plan)
    is_message = (plan.op <= Op.RECV).astype(np.int64)
    level = graph.levels(is_message)[graph.node]
    # The first row of each group stands for it; others stand for themselves.
    rows = np.flatnonzero(is_message)
    pair = joint_key(plan.rank[rows], plan.peer[rows], plan.n_ranks)
    keys = (plan.op[rows], plan.stage[rows], level[rows], pair)
    order = np.lexsort((rows, *keys))
    bounds = run_bounds(*(key[order] for key in keys))
    first = np.arange(plan.n_tasks)
    first[rows[order]] = np.repeat(rows[order[bounds[:-1]]], np.diff(bounds))
    by_group = np.lexsort((np.arange(plan.n_tasks), plan.tag, first, is_message, level))
    return by_group, run_bounds(first[by_group])
