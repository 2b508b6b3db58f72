"""Progress of communication on cores without ranks."""

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

    Ranks are placed so that the free cores of a node are distributed over its NUMA domains. Tasks
    inside start and wait, and computations, run on the rank's own core. In a node without free
    cores, all tasks do.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or the program of one rank.
    policy : {"bind", "numa", "odd_even"}, default "odd_even"
        - ``bind``: the rank's own core.
        - ``numa``: the nearest free core of the rank's NUMA domain (equation 1).
        - ``odd_even``: the free cores of the node in turn, so that both ends of a message between
          successive ranks can progress at the same time (the purpose of equation 2).

    Returns
    -------
    Plan
        A new plan, or `plan` itself if nothing changes.

    Raises
    ------
    AlgorithmError
        If the policy is unknown, or the plan was imported, so that it has no machine.

    References
    ----------
    Denis, Jaeger, Jeannot, Pérache, Taboada: Study on progress threads placement
    and dedicated cores for overlapping MPI nonblocking collectives on manycore
    processor, 2019, equations 1 and 2.
    """
    placement = placement_of(plan, "place_progress")
    return move_to_cores(plan, placement, placement.progress(policy)[plan.rank], plan.stage)
