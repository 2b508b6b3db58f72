"""What runs inside start waits for no later stage, and nothing but a wait waits for a wait.

A start that waited for another rank's background tasks could wait for ever: that
rank may be at whatever its program does before it comes back to the collective.
And what runs in the background must be able to end before anybody waits.
"""

from __future__ import annotations

import numpy as np

from collplan.planner.errors import StageError
from collplan.planner.plan.matching import Rows
from collplan.planner.plan.plan import Plan, Stage, Task


def check_stages(plan: Plan, sends: Rows, recvs: Rows) -> None:
    """Raise `StageError` where a task waits for one of a later stage.

    Parameters
    ----------
    plan : Plan
    sends, recvs : ndarray
        Rows of the two ends of every message. Each end waits for the other to
        start, as a send may wait for its receive (rendezvous).

    Raises
    ------
    StageError
        Naming the two tasks. Tasks inside start wait for others inside start
        only; tasks inside wait are waited for by others inside wait only.
    """
    if (plan.stage == Stage.BACKGROUND).all():
        return
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    first = np.concatenate((plan.deps.task, sends, recvs))
    second = np.concatenate((after, recvs, sends))
    is_later = plan.stage[first] > plan.stage[second]
    if is_later.any():
        i = int(np.argmax(is_later))
        how = "waits for" if i < len(after) else "is one message with"
        one, other = plan.task(int(second[i])), plan.task(int(first[i]))
        raise StageError(f"{one} runs {_when(one)}, but {how} {other}, which runs {_when(other)}")


def _when(task: Task) -> str:
    return (
        "in the background"
        if task.stage is Stage.BACKGROUND
        else f"inside {task.stage.name.lower()}"
    )
