"""Check of the order in which the steps of a program use its memory."""

from __future__ import annotations

import re
from typing import Final

from collplan.planner.arrays import csr
from collplan.planner.errors import PlanError, RaceError
from collplan.planner.plan.hazards import cut_into_atoms, derive_hazards
from collplan.planner.plan.pieces import pieces_of
from collplan.planner.plan.plan import Plan
from collplan.planner.programs.compose import step_rows
from collplan.planner.verify import verify
from collplan.planner.verify.order import Execution

_ROW: Final = re.compile(r"#(\d+) rank")


def check_composition(plan: Plan) -> None:
    """Check that a program's plan is legal, and that steps use each element in their order.

    Parameters
    ----------
    plan : Plan
        The plan of a program, for all ranks.

    Raises
    ------
    PlanError
        As for `collplan.planner.verify.verify`. The message also names the steps.
    """
    try:
        verify(plan)
        _require_order(plan)
    except PlanError as error:
        raise type(error)(f"{error}{_steps_in(plan, str(error))}") from None


def _require_order(plan: Plan) -> None:
    """Raise `RaceError` if a later step may use an element before an earlier one has.

    The plan has no races: one of two conflicting tasks ends before the other starts in every
    execution. It remains to show that this is the task of the earlier row.
    """
    end = Execution.of(plan).completion
    accesses = cut_into_atoms(plan.rank, *pieces_of(plan), plan.rank_node)
    indptr, before = derive_hazards(*accesses)
    after = csr.row_numbers(indptr)
    if (bad := csr.first_true(end[before] > end[after])) >= 0:
        one, other = plan.task(int(after[bad])), plan.task(int(before[bad]))
        raise RaceError(f"{one} precedes {other}, which belongs to an earlier step")


def _steps_in(plan: Plan, text: str) -> str:
    """Return the steps of the tasks that a message names, to be put behind it."""
    rows = [int(row) for row in _ROW.findall(text)]
    names = dict.fromkeys(step_of(plan, row) for row in rows if row < plan.n_tasks)
    return f" (steps: {', '.join(names)})" if names else ""


def step_of(plan: Plan, row: int) -> str:
    """Return the name of the step to which a task belongs."""
    program = plan.program
    assert program is not None
    found = next(one for one in step_rows(plan) if one.first <= row < one.end)
    return program.steps[found.number].name
