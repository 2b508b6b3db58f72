"""Proof that the plan of a program has the effect of its steps, one after another.

The proof has three parts. The plan of each step is proved by itself. The program's plan has
exactly the tasks of these plans, each on the elements that the program names. And of two tasks that
use the same element, of which one writes it, that of the earlier step ends before the other starts,
in every execution. So every execution leaves in all buffers what the steps leave one after another.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.proof import verify_plan
from collplan.planner.errors import StepError
from collplan.planner.plan.plan import Plan
from collplan.planner.programs.compile import changed_task, compile_program
from collplan.planner.programs.composition import check_composition, step_of
from collplan.specs import PlanSpec

_SIZES: Final = ("itemsize", "buffer_sizes", "shared_sizes", "rank_node")


def prove_program(plan: Plan) -> None:
    """Prove that a program's plan has the effect of its steps, one after another.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks that `compile_program` returned, perhaps changed since.

    Raises
    ------
    PlanError
        If the plan is wrong. The message names the steps and the tasks.
    """
    program = plan.program
    assert program is not None

    def proved(spec: PlanSpec) -> Plan:
        found = compile_plan(spec, is_proved=False)
        verify_plan(found)
        return found

    expected = compile_program(program, proved, is_proved=False)
    _require_tasks(plan, expected)
    check_composition(plan)


def _require_tasks(plan: Plan, expected: Plan) -> None:
    """Raise `StepError` unless a plan has the tasks and the memory of another one."""
    if plan.n_tasks != expected.n_tasks:
        raise StepError(
            f"the plan has {plan.n_tasks} tasks, its steps have {expected.n_tasks}; "
            "compile the program again"
        )
    for name in _SIZES:
        if not np.array_equal(getattr(plan, name), getattr(expected, name)):
            raise StepError(f"{name} is not that of the program; compile the program again")
    if (row := changed_task(plan, expected)) >= 0:
        raise StepError(
            f"step {step_of(expected, row)}: {plan.task(row)}, but its collective has "
            f"{expected.task(row)}; compile the program again"
        )
