"""Let ranks of one node pass each other data through memory they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from collplan.planner.arrays import Bools
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import register_pass
from collplan.planner.passes.shared_memory.program import Program
from collplan.planner.passes.shared_memory.rewrite import share_messages
from collplan.planner.plan.phases import is_inside
from collplan.planner.plan.plan import INTENT, Op, Plan

Roles = Annotated[Sequence[str] | None, "{} is not a list of roles; give [node]"]


@register_pass(
    "share",
    level="plan",
    locality="node",
    needs="messages between ranks of one node",
)
def share(plan: Plan, roles: Roles = None) -> Plan:
    """Turn messages inside nodes into copies out of the node's shared buffer.

    Every element is staged once, whoever reads it and however often; what its
    sender computes in scratch is computed in shared memory instead; what came
    out of shared memory is forwarded by reading where it came from; and a
    reduction reads what it is sent in place. ``transport: shared`` in a spec
    is this pass in the first place.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.
    roles : sequence of str, optional
        Only phases of these roles, as ``node``, and of roles inside them, as
        ``node.row``; all phases where it is left out.

    Returns
    -------
    Plan
        A new plan, or `plan` itself where there are no such messages.

    Raises
    ------
    AlgorithmError
        If a role is unknown, the plan is one rank's program or shares memory
        already, or its order is stated otherwise than by rounds.
    """
    is_inside_node = (plan.op <= Op.RECV) & ~plan.crosses
    if roles is None and plan.only_rank is None and not is_inside_node.any():
        return plan
    if plan.only_rank is not None:
        raise AlgorithmError(
            f"passes.share: it needs all ranks of a node, this is rank {plan.only_rank}'s program "
            "alone; compile it from its spec, or restrict the plan of all ranks"
        )
    program = Program.of(plan)
    is_shared = _inside(program) & _of_roles(program, roles)
    if not is_shared.any():
        return plan
    if program.plan.shared_sizes.any():
        raise AlgorithmError(
            "passes.share: the plan shares memory already; name all roles in one pass"
        )
    before, after, kind = program.intents
    if ((before > after) & (kind == INTENT)).any():
        raise AlgorithmError(
            "passes.share: tasks wait for others of later rounds; put it before limit_requests"
        )
    return share_messages(program, is_shared)


def _inside(program: Program) -> Bools:
    """Mark both ends of messages within nodes."""
    node, columns = program.plan.rank_node, program.columns
    is_message = columns["op"] <= Op.RECV
    peer = np.where(is_message, columns["peer"], columns["rank"])
    return np.asarray(is_message & (node[columns["rank"]] == node[peer]))


def _of_roles(program: Program, roles: Sequence[str] | None) -> Bools:
    """Mark tasks of phases with the given roles, or inside them."""
    phase = program.columns["phase"]
    if roles is None:
        return np.ones(len(phase), dtype=bool)
    names = [phase.role for phase in program.plan.phases]
    for role in roles:
        if not any(is_inside(name, role) for name in names):
            known = ", ".join(dict.fromkeys(name for name in names if name))
            there = f"its roles are {known}" if known else "it has none: write transport: shared"
            raise AlgorithmError(f"transport.{role}: this plan has no such role; {there}")
    # Where nothing has to move there are no phases: without a type, the array would be of floats.
    chosen = np.array([any(is_inside(name, role) for role in roles) for name in names], dtype=bool)
    return np.asarray(chosen[phase])
