"""Computations of a program that its caller runs while a thread has the background."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collplan.planner.plan.plan import Op, Stage

if TYPE_CHECKING:
    from collplan.executors.mpi.program.program import Program
    from collplan.planner.plan.plan import Plan

Mask = npt.NDArray[np.bool_]


def own_computations(plan: Plan, program: Program, rank: int) -> Mask:
    """Return which tasks compute in the background on the rank's own core.

    They stand for what the application does there between its start and its wait.
    """
    in_background = program.stage == Stage.BACKGROUND
    on_own_core = plan.core[program.row] == plan.rank_core[rank]
    computes: Mask = (program.op == Op.COMPUTE) & in_background & on_own_core
    return computes


def why_not_apart(program: Program, computes: Mask) -> str | None:
    """Return why a rank's own computations cannot run beside a thread, if they cannot.

    While a thread has the background, its caller cannot know what has ended there.
    """
    is_after_start = (program.stage == Stage.START) | computes
    is_before_wait = (program.stage == Stage.WAIT) | computes
    tied = computes & (program.sharing.waits | (program.sharing.own_flag >= 0))
    for successors in (program.on_start, program.on_completion):
        before = np.repeat(np.arange(program.n_tasks), np.diff(successors.indptr))
        after = successors.task
        tied[after[computes[after] & ~is_after_start[before]]] = True
        tied[before[computes[before] & ~is_before_wait[after]]] = True
    if not tied.any():
        return None
    task = int(program.row[np.flatnonzero(tied)[0]])
    return (
        f"compute #{task} on the rank's own core waits for tasks in the background, or they for "
        "it; beside a thread only what is between start and wait can be computed"
    )


def left_to_caller(program: Program, is_threads: Mask) -> tuple[Program, int]:
    """Return a program without its caller's computations, and how long those take in ns.

    Parameters
    ----------
    program : Program
        What a rank runs.
    is_threads : ndarray of bool, shape (n_tasks,)
        Which tasks its thread runs.
    """
    computes = (program.op == Op.COMPUTE) & (program.stage == Stage.BACKGROUND) & ~is_threads
    # They end when the caller has the start again, and takes no more time for them.
    stage = np.where(computes, np.int8(Stage.WAIT), program.stage)
    duration_ns = np.where(computes, 0, program.duration_ns)
    total_ns = int(program.duration_ns[computes].sum())
    return replace(program, stage=stage, duration_ns=duration_ns), total_ns
