"""Proofs of plans, and of the level to which their results are reproducible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from collplan.planner.algorithms.registry import registry as algorithms
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.compiler.ranks import compile_ranks
from collplan.planner.errors import AlgorithmError, IrreproducibleError
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


_BOUNDED: Final = {
    "bytes_sent_per_rank": "the busiest rank sends",
    "bytes_received_per_rank": "the busiest rank receives",
    "bytes_sent_per_node": "the busiest node sends",
    "bytes_received_per_node": "the busiest node receives",
}


def require_bounds(plan: Plan) -> None:
    """Raise `AlgorithmError` if a user's algorithm moves fewer bytes than any right one must.

    Plans that are too large to prove are checked so. Other algorithms were proved before.
    """
    own = [one.name for one in plan.phases if algorithms.is_own(one.kind, one.algorithm)]
    if not own or plan.spec is None:
        return
    from collplan.planner.metrics import measure

    found = measure(plan)
    assert found.bounds is not None
    for name, words in _BOUNDED.items():
        moved, least = getattr(found, name), getattr(found.bounds, name)
        if moved < least:
            raise AlgorithmError(
                f"{', '.join(own)}: {words} {moved:,} bytes, any right plan at least {least:,} "
                f"({found.bounds.argument}); mend it, and prove it on fewer ranks"
            )


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
