"""The proof: a plan computes its collective, or here is the counter-example."""

from __future__ import annotations

from collplan.planner.errors import PlanError
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.format_check import check_format
from collplan.planner.plan.pieces import pieces_of
from collplan.planner.plan.plan import Plan
from collplan.planner.verify.agreed_calls import without_calls
from collplan.planner.verify.barrier import check_barrier
from collplan.planner.verify.contents import check_contents, check_operations
from collplan.planner.verify.moves import check_overlaps, element_moves
from collplan.planner.verify.order import Execution, check_stages
from collplan.planner.verify.races import check_races
from collplan.planner.verify.restarts import check_mirrors, check_restarts, gated_tasks
from collplan.planner.verify.spec_check import check_spec

__all__ = ["verify"]


def verify(plan: Plan) -> None:
    """Prove that a plan is legal and computes its collective.

    In turn: columns are well-formed; every send has one receive of its size; all members of a
    group agree on what they call; nothing deadlocks, eager or rendezvous; what runs inside start
    waits for no later stage, and nothing but a wait for a wait; conflicting accesses are ordered
    whenever messages arrive, in one start and from one start into the next;
    the postcondition holds, with every contribution exactly once, and in rank
    order unless the operation commutes. A schedule without a collective
    (imported) has no postcondition.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Raises
    ------
    PlanError
        The subclass says what is wrong, the message where: the tasks, a
        minimal cycle, or the element and what it holds.
    """
    if plan.only_rank is not None:
        raise PlanError(
            f"this is rank {plan.only_rank}'s program alone; only the plan of all ranks has a proof"
        )
    check_format(plan)
    if plan.spec is not None:
        check_spec(plan, plan.spec)
    plan = without_calls(plan)
    execution = Execution.of(plan)
    check_stages(plan, execution)
    accesses = pieces_of(plan)
    check_races(plan, execution, accesses)
    check_restarts(plan, execution, gated_tasks(plan))
    space = AddressSpace.of_plan(plan)
    moves = element_moves(plan, space, execution, accesses)
    check_overlaps(plan, moves)
    check_mirrors(plan, space, moves)
    if plan.spec is None:
        return
    check_operations(plan)
    if not plan.spec.collective.has_data:
        check_barrier(plan, execution)
    else:
        check_contents(plan, space, moves)
