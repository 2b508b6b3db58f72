"""Proofs of plans, whether they are of a collective or of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collplan.api.compiling import plan_of
from collplan.api.sources import Source
from collplan.planner.compiler.proof import proved_level, verify_plan
from collplan.planner.plan.plan import Plan
from collplan.specs.syntax.calling import explains_calls

if TYPE_CHECKING:
    from collplan.specs.collectives.collective_base import Reproducible


@explains_calls("verify")
def verify(source: Source) -> None:
    """Prove that a plan computes its collective, or that it has the effect of its program's steps.

    See `collplan.planner.compiler.proof.verify_plan` and
    `collplan.planner.programs.proof.prove_program`.

    Parameters
    ----------
    source : Plan, PlanSpec, ProgramSpec, mapping, str or Path
        A plan of all ranks, or a spec or a program of which to make one, or the path of any file
        with one of them.

    Raises
    ------
    CollplanError
        If the source is not valid.
    PlanError
        If the plan is wrong.
    """
    plan = source if isinstance(source, Plan) else plan_of(source)
    if plan.program is None:
        verify_plan(plan)
        return
    from collplan.planner.programs import prove_program

    prove_program(plan)


def level_of(plan: Plan) -> Reproducible | None:
    """Prove a plan as `verify` does; return the level of `reproducible` that holds, if any.

    See `collplan.planner.compiler.proof.proved_level`. A program has no such level.
    """
    if plan.program is None:
        return proved_level(plan)
    verify(plan)
    return None
