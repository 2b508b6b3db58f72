"""Put the progress of communication on the cores that hold no ranks."""

from __future__ import annotations

from typing import Annotated, Final

from collplan.planner.passes.progress.cores import POLICIES, Policy, move_to_cores, placement_of
from collplan.planner.passes.registry import register_pass
from collplan.planner.plan.plan import Plan

UNKNOWN_POLICY: Final = f"there is no {{}}; use one of {', '.join(POLICIES)}"


@register_pass(
    "place_progress",
    level="plan",
    locality="rank",
    needs="messages, and free cores: machine.cores above the ranks of a node",
)
def place_progress(plan: Plan, policy: Annotated[Policy, UNKNOWN_POLICY] = "odd_even") -> Plan:
    """Run every rank's background tasks on the communication core that a policy gives it.

    Ranks move apart, too, so that a node's free cores are spread over its NUMA
    domains. What runs inside start and wait, and computation, stays with its
    rank. A node without free cores keeps everything on the ranks' own.

    Parameters
    ----------
    plan : Plan
        Of all ranks, or one rank's program.
    policy : {"bind", "numa", "odd_even"}
        The rank's own core; the nearest free core of its NUMA domain; or the
        free cores of its node in turn, which lets the two ends of a message
        between neighbours run at the same time.

    Returns
    -------
    Plan
        A new plan, or `plan` itself where all is in its place already.

    Raises
    ------
    AlgorithmError
        If there is no such policy, or the plan has no machine.

    References
    ----------
    Denis, Jaeger, Jeannot, Pérache, Taboada: Study on progress threads placement
    and dedicated cores for overlapping MPI nonblocking collectives on manycore
    processor, 2019, equations 1 and 2.
    """
    placement = placement_of(plan, "place_progress")
    return move_to_cores(plan, placement, placement.progress(policy)[plan.rank], plan.stage)
