"""Compilation of specs into proved plans."""

from __future__ import annotations

from functools import lru_cache

from collplan.planner.compiler.proof import require_bounds, require_runs
from collplan.planner.compiler.ranks import (
    compile_ranks,
    list_idle,
    needed_ranks,
    needs_all_ranks,
)
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes import prove, registry
from collplan.planner.passes.registry import check_choices
from collplan.planner.plan.plan import Plan
from collplan.planner.rewrite.rank_program import restrict
from collplan.specs import PassChoice, PlanSpec


def compile_plan(
    spec: PlanSpec,
    *,
    rank: int | None = None,
    idle: list[str] | None = None,
    is_proved: bool = True,
) -> Plan:
    """Compile a spec into the task graph that it describes.

    Parameters
    ----------
    spec : PlanSpec
        A spec whose decomposition is not ``auto``. `collplan.compile` resolves ``auto``.
    rank : int, optional
        Compile only this rank's program, which is its rows of the whole plan. The whole plan is
        compiled only if a pass needs all ranks, and is then verified only if `rank` is 0. In all
        other cases, `prove_spec` verifies it.
    idle : list of str, optional
        A list to which a line is appended for every pass of the spec that changes nothing. The
        line states what the pass needs.
    is_proved : bool
        Whether a plan of all ranks is verified, as it is and after each pass that changes it, if
        it has up to 100,000 tasks. Plans that are only used for estimates of cost need no proof.

    Returns
    -------
    Plan
        A plan that has the same bytes for the same spec, on any machine.

    Raises
    ------
    AlgorithmError
        If an algorithm is unknown or does not support these ranks or this operation, if a
        decomposition or pass cannot be applied, or if `rank` is not a rank of the machine.
    PlanError
        If the plan is wrong, for example because an algorithm of the user is.

    Examples
    --------
    >>> from collplan.specs import PlanSpec
    >>> allreduce = {"kind": "allreduce", "count": 8}
    >>> machine = {"ranks_per_node": 4}
    >>> spec = PlanSpec.model_validate({"machine": machine, "collective": allreduce})
    >>> compile_plan(spec).n_tasks, compile_plan(spec, rank=2).n_tasks
    (24, 6)
    """
    _require_rank(spec, rank)
    check_choices(spec.passes)
    unchanged: list[PassChoice] = []
    ranks = needed_ranks(spec, rank)
    # If every rank compiles the whole plan, the proof by rank 0 is sufficient.
    is_proved = is_proved and rank in (None, 0) and ranks is None
    plan = compile_ranks(spec, ranks, unchanged, is_proved=is_proved)
    if is_proved and prove(plan):
        require_runs(plan)
    elif is_proved and rank is None:
        require_bounds(plan)
    list_idle(idle, unchanged, spec)
    return plan if rank is None else restrict(plan, rank)


def _require_rank(spec: PlanSpec, rank: int | None) -> None:
    size = spec.machine.n_ranks
    if rank is not None and not 0 <= rank < size:
        raise AlgorithmError(f"rank: {rank} is not one of the machine's {size} ranks")


@lru_cache(maxsize=256)
def prove_spec(spec: PlanSpec) -> None:
    """Verify the plan of all ranks of a spec, once per process, if it is small.

    Ranks that compile only their own programs call this function, or have rank 0 call it for all.
    The plan of all ranks is compiled if it would have 100,000 tasks or fewer with the program of
    the middle rank, the first one or the last one on all ranks.

    Parameters
    ----------
    spec : PlanSpec
        As for `compile_plan`.

    Raises
    ------
    PlanError
        If the plan is wrong.
    """
    size = spec.machine.n_ranks
    if not needs_all_ranks(spec):
        programs = (compile_plan(spec, rank=rank) for rank in (size // 2, 0, size - 1))
        if all(size * program.n_tasks > registry.VERIFY_LIMIT for program in programs):
            return
    compile_plan(spec)
