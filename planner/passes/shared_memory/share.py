"""Pass that lets the ranks of a node exchange data through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from collplan.planner.arrays import Bools
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import register_pass
from collplan.planner.passes.shared_memory.program import NodeTasks, canonical_order
from collplan.planner.passes.shared_memory.rewrite import share_messages
from collplan.planner.plan.phases import is_inside
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import INTENT

Roles = Annotated[Sequence[str] | None, "{} is not a list of roles; give [node]"]


@register_pass(
    "share",
    level="plan",
    locality="node",
    needs="messages between ranks of one node",
)
def share(plan: Plan, roles: Roles = None) -> Plan:
    """Turn messages inside nodes into copies out of the node's shared buffer.

    Every element is staged once, regardless of the number of its readers. Data that its sender
    computes in scratch is computed in shared memory instead. Data that came out of shared memory
    is forwarded by reading it at its origin. A reduction reads data that it receives in place.
    In a spec, ``transport: shared`` is equivalent to this pass at the beginning of `passes`.

    Parameters
    ----------
    plan : Plan
        Plan of all ranks.
    roles : sequence of str, optional
        Roles of the phases to change, such as ``node``. Phases of roles inside these, such as
        ``node.row``, are included. By default, all phases are changed.

    Returns
    -------
    Plan
        New plan, or `plan` itself if there are no such messages.

    Raises
    ------
    AlgorithmError
        If a role is unknown, if the plan is the program of one rank or shares memory already, or
        if tasks wait for tasks of later rounds.
    """
    if plan.only_rank is not None:
        raise AlgorithmError(
            f"passes.share: it needs all ranks of a node, this is rank {plan.only_rank}'s program "
            "alone; compile it from its spec, or restrict the plan of all ranks"
        )
    is_shared = (plan.op <= Op.RECV) & ~plan.crosses & _of_roles(plan, roles)
    if not is_shared.any():
        return plan
    if plan.shared_sizes.any():
        raise AlgorithmError(
            "passes.share: the plan shares memory already; name all roles in one pass"
        )
    order = canonical_order(plan.rank, plan.round, plan.op)
    program = NodeTasks.of(plan).take(order)
    before, after, kind = program.intents
    if ((before > after) & (kind == INTENT)).any():
        raise AlgorithmError(
            "passes.share: tasks wait for others of later rounds; put it before limit_requests"
        )
    return share_messages(program, is_shared[order])


def _of_roles(plan: Plan, roles: Sequence[str] | None) -> Bools:
    """Mark tasks of phases that have the given roles, or roles inside them."""
    if roles is None:
        return np.ones(plan.n_tasks, dtype=bool)
    names = [phase.role for phase in plan.phases]
    for role in roles:
        if not any(is_inside(name, role) for name in names):
            known = ", ".join(dict.fromkeys(name for name in names if name))
            there = f"its roles are {known}" if known else "it has none: write transport: shared"
            raise AlgorithmError(f"transport.{role}: this plan has no such role; {there}")
    # A plan without tasks has no phases; without a dtype, the empty array would be of floats.
    chosen = np.array([any(is_inside(name, role) for role in roles) for name in names], dtype=bool)
    return np.asarray(chosen[plan.phase])
