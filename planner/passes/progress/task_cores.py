"""Cores of tasks: what runs inside calls on the ranks' own, the rest where it is put."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.progress.cores import CorePlacement
from collplan.planner.plan.plan import Op, Plan, Stage


def placement_of(plan: Plan, name: str) -> CorePlacement:
    """Return the cores of a plan's machine, for pass `name`.

    Raises
    ------
    AlgorithmError
        If the plan has no machine.
    """
    if plan.spec is None:
        raise AlgorithmError(
            f"passes.{name}: an imported schedule has no machine, whose free cores it needs; "
            "compile a spec"
        )
    return CorePlacement.of(plan.spec.machine)


def move_to_cores(plan: Plan, placement: CorePlacement, progress: Ints, stage: Ints) -> Plan:
    """Return the plan with ranks on application cores and background tasks where they progress.

    Parameters
    ----------
    plan : Plan
    placement : CorePlacement
    progress : ndarray of int64, shape (n_tasks,)
        The core of every background task that is no computation.
    stage : ndarray, shape (n_tasks,)
        The new stage of every task.

    Returns
    -------
    Plan
        `plan` itself where nothing changes.
    """
    is_progress = (stage == Stage.BACKGROUND) & (plan.op != Op.COMPUTE)
    core = np.where(is_progress, progress, placement.application[plan.rank])
    columns = {"core": core, "stage": stage, "rank_core": placement.application}
    if all(np.array_equal(getattr(plan, name), column) for name, column in columns.items()):
        return plan
    return plan.replace(**columns)
