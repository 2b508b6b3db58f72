"""Proofs of plans, and of the level to which their results are reproducible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collplan.planner.compiler.folded import compile_folded
from collplan.planner.compiler.ranks import compile_ranks
from collplan.planner.errors import IrreproducibleError
from collplan.planner.lowering.reproducible import without_blocks
from collplan.planner.passes import find_pass, registry
from collplan.planner.plan.plan import Plan
from collplan.specs import PlanSpec
from collplan.specs.collectives.collective_base import Reproducible

if TYPE_CHECKING:
    from collplan.planner.verify import Results


def verify_plan(plan: Plan) -> None:
    """Prove that a plan computes its collective, as reproducibly as this asks for.

    See `collplan.planner.verify.verify` for what is proved of all plans. If a collective asks for
    results that are reproducible between runs, the plan must also combine every element as the
    plan of the same spec without segments, slices, blocks of algorithms and unequal shares. This
    plan depends on none of these sizes, so that no plan that passes does.

    Raises
    ------
    PlanError
        If the plan is wrong.
    """
    from collplan.planner.verify import verify

    verify(plan)
    require_runs(plan)


def require_runs(plan: Plan) -> None:
    """Raise `IrreproducibleError` if a legal plan should be reproducible between runs and is not.

    Parameters
    ----------
    plan : Plan
        A plan that `collplan.planner.verify.verify` accepts.
    """
    if plan.spec is None or plan.spec.collective.level != "runs" or uncut(plan.spec) == plan.spec:
        return
    from collplan.planner.verify import results_of

    results = results_of(plan, has_trees=True)
    assert results is not None
    if (why := _beside_uncut(plan.spec, results)) is not None:
        raise _not_of_runs(why)


def _not_of_runs(why: str) -> IrreproducibleError:
    return IrreproducibleError(
        f"{why}: collective.reproducible is runs; leave out the passes, blocks or shares that cut "
        "the vector, or ask for ranks"
    )


def proved_level(plan: Plan) -> Reproducible | None:
    """Prove a plan as `verify_plan` does; return the strongest level of `reproducible` that holds.

    For plans of more than `VERIFY_LIMIT` tasks, the level that the collective asks for is returned,
    because to find a stronger one takes several times as long as the proof. The result is None if
    the plan names no collective that combines operands with an operation that rounds.

    Raises
    ------
    PlanError
        If the plan is wrong.
    """
    from collplan.planner.verify import leaves_order_open, results_of

    if plan.n_tasks * plan.n_copies > registry.VERIFY_LIMIT:
        verify_plan(plan)
        return None if plan.spec is None else plan.spec.collective.level
    results = results_of(plan, has_trees=True)
    if plan.spec is None or results is None or results.trees is None:
        return None
    if leaves_order_open(plan):
        return "ranks"
    is_asked = plan.spec.collective.level == "runs"
    is_in_rank_tree = results.beside_rank_tree() is None
    if is_in_rank_tree and not is_asked:
        return "placements"
    why = _beside_uncut(plan.spec, results)
    if why is not None and is_asked:
        raise _not_of_runs(why)
    if why is not None:
        return "ranks"
    return "placements" if is_in_rank_tree else "runs"


def _beside_uncut(spec: PlanSpec, results: Results) -> str | None:
    """Return how a plan differs from that of its spec without sizes; None if trees are the same."""
    whole = uncut(spec)
    if whole == spec:
        return None
    from collplan.planner.verify import results_of

    is_folded = results.plan.folding is not None
    plan = compile_folded(whole) if is_folded else compile_ranks(whole, None)
    others = results_of(plan, has_trees=True)
    assert others is not None
    return results.beside(others)


def uncut(spec: PlanSpec) -> PlanSpec:
    """Return a spec without the sizes by which vectors are cut, which has the trees of all sizes.

    These are those of segments and slices, numbers of blocks, and shares other than equal ones.
    """
    passes = tuple(one for one in spec.passes if not find_pass(one.name).cuts)
    method = without_blocks(spec.method.replace(passes=passes))
    return spec.with_method(method)
