"""The proof that a plan computes its collective, or a counterexample."""

from __future__ import annotations

from collplan.planner.errors import PlanError
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.format_check import check_format
from collplan.planner.plan.pieces import pieces_of
from collplan.planner.plan.plan import Plan
from collplan.planner.verify.agreed_calls import without_calls
from collplan.planner.verify.barrier import check_barrier
from collplan.planner.verify.contents import (
    Results,
    check_contents,
    check_operations,
    leaves_order_open,
    require_own_order,
    require_rank_tree,
)
from collplan.planner.verify.moves import check_overlaps, element_moves
from collplan.planner.verify.order import Execution, check_stages
from collplan.planner.verify.races import check_races
from collplan.planner.verify.restarts import check_mirrors, check_restarts, gated_tasks
from collplan.planner.verify.spec_check import check_spec

__all__ = ["Results", "leaves_order_open", "results_of", "verify"]


def verify(plan: Plan) -> None:
    """Prove that a plan is legal and computes its collective.

    If an operation rounds, all ranks must get the same bits. A plan whose collective asks for
    results that are reproducible between placements must also combine them in the rank tree. For
    those that are reproducible between runs, see `collplan.planner.compiler.proof.verify_plan`.

    The following is checked, in this order:

    1. The columns are well-formed and agree with the spec.
    2. Every send has exactly one receive of the same size. All members of a group make the same
       calls.
    3. The plan does not deadlock, with eager sends or with rendezvous.
    4. Tasks inside START depend on no later stage. Only WAIT tasks depend on WAIT tasks.
    5. Conflicting accesses are ordered in every execution, within one start and between two
       consecutive starts.
    6. The postcondition holds: every contribution arrives exactly once, and in rank order unless
       the operation is commutative. An imported schedule without a collective has none.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Raises
    ------
    PlanError
        The subclass tells what is wrong. The message names the tasks, a minimal cycle, or the
        element and its contents.
    """
    results_of(plan)


def results_of(plan: Plan, *, has_trees: bool = False) -> Results | None:
    """Prove a plan as `verify` does, and return its results; None if none are promised.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.
    has_trees : bool
        Whether to return the trees of combinations of all results of an operation that rounds.

    Raises
    ------
    PlanError
        As for `verify`.
    """
    if plan.only_rank is not None:
        raise PlanError(
            f"this is rank {plan.only_rank}'s program alone; only the plan of all ranks has a proof"
        )
    check_format(plan)
    if plan.spec is not None:
        check_spec(plan, plan.spec)
    require_own_order(plan)
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
        return None
    check_operations(plan)
    if not plan.spec.collective.has_data:
        check_barrier(plan, execution)
        return None
    in_rank_tree = plan.spec.collective.level == "placements"
    results = check_contents(plan, space, moves, has_trees=has_trees or in_rank_tree)
    if in_rank_tree:
        require_rank_tree(results)
    return results
