"""Compilation of programs: a plan for each group of every step, then one plan of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes import find_pass, run_passes
from collplan.planner.passes.registry import VERIFY_LIMIT, check_choices
from collplan.planner.plan.pieces import pieces_of
from collplan.planner.plan.plan import Plan
from collplan.planner.programs.compose import compose
from collplan.planner.programs.composition import check_composition
from collplan.planner.programs.groups import check_ranges, spec_of_group
from collplan.specs import PlanSpec
from collplan.specs.programs.program import ProgramSpec

Compiles = Callable[[PlanSpec], Plan]
EFFECTS: Final = ("op", "rank", "peer", "tag", "stream", "duration_ns")
"""Columns of a task that say what it does, besides its memory."""


def compile_program(
    program: ProgramSpec, compiles: Compiles = compile_plan, *, is_proved: bool = True
) -> Plan:
    """Compile a program into one plan of all ranks.

    The plan has the buffers of the program one after another in its receive buffer. A task waits
    for the tasks of earlier steps that use the same elements, so that a step may start on parts of
    its data while the step before it still runs.

    Parameters
    ----------
    program : ProgramSpec
        Program whose steps have no decomposition ``auto``.
    compiles : callable
        Returns the plan of a spec. Equal specs are compiled once. If it returns folded plans, the
        plan of the program is folded, too.
    is_proved : bool
        Whether the plan is verified if it has up to 100,000 tasks. The plans of steps are proved
        where `compiles` proves them.

    Returns
    -------
    Plan
        Its phases have the names of steps, and `Plan.program` is the program.

    Raises
    ------
    SpecError
        If a range does not fit its collective.
    AlgorithmError
        As for `compile_plan`, and if passes of steps contradict each other.
    AsymmetricError
        If the plans of steps are folded, but nodes may differ in the program.
    PlanError
        If the plan of a step is wrong.
    """
    check_ranges(program)
    known: dict[PlanSpec, Plan] = {}
    plans: dict[int, list[Plan]] = {}
    for number, (step, groups) in enumerate(zip(program.steps, program.groups, strict=True)):
        if step.collective is None:
            continue
        plans[number] = []
        for ranks in groups:
            spec = spec_of_group(program, step, ranks)
            if spec not in known:
                known[spec] = compiles(spec)
            plans[number].append(known[spec])
    plan = _passed(compose(program, plans), program)
    if is_proved and plan.folding is None and plan.n_tasks <= VERIFY_LIMIT:
        check_composition(plan)
    return plan


def _passed(plan: Plan, program: ProgramSpec) -> Plan:
    """Return a plan rewritten by the passes of its program.

    Raises
    ------
    AlgorithmError
        If a pass is unknown, or changes what tasks do.
    """
    for choice in program.passes:
        check_choices([choice])
        if find_pass(choice.name).level != "plan":
            raise AlgorithmError(
                f"passes.{choice.name}: it rewrites a collective; give it to steps instead"
            )
        passed = run_passes(plan, [choice], is_proved=False)
        if changed_task(passed, plan) >= 0:
            raise AlgorithmError(
                f"passes.{choice.name}: it changes what tasks do; a program's passes only place "
                "and order tasks, as place_progress does; give this one to steps instead"
            )
        plan = passed
    return plan


def changed_task(plan: Plan, other: Plan) -> int:
    """Return the first row whose tasks do different things in two plans; -1 if there is none.

    The core, lane, stage and priority of a task may differ, which change no result.
    """
    if plan.n_tasks != other.n_tasks:
        return min(plan.n_tasks, other.n_tasks)
    differs = np.zeros(plan.n_tasks, dtype=bool)
    for name in EFFECTS:
        differs |= getattr(plan, name) != getattr(other, name)
    for one, wanted in zip(pieces_of(plan), pieces_of(other), strict=True):
        differs |= _differ(one.blocks(), wanted.blocks(), plan.n_tasks)
    return csr.first_true(differs)


def _differ(one: tuple[Ints, ...], other: tuple[Ints, ...], n_rows: int) -> Bools:
    """Return for each row whether its blocks of memory differ."""
    lengths = [np.bincount(side[0], minlength=n_rows) for side in (one, other)]
    differs: Bools = lengths[0] != lengths[1]
    kept = [~differs[side[0]] for side in (one, other)]
    rows = one[0][kept[0]]
    for column, wanted in zip(one[1:], other[1:], strict=True):
        differs[rows[column[kept[0]] != wanted[kept[1]]]] = True
    return differs
