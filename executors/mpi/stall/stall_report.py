"""What a bound program waits for, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.executors.mpi.program.program import Program
    from collplan.planner.plan.plan import Plan

MOST_MESSAGES: Final = 3
"""How many messages a rank names; of the others it gives the number."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """Where a running program stands; tasks are numbered as in the program.

    Parameters
    ----------
    active : sequence of int
        Tasks whose messages are under way.
    blocked : sequence of int
        Tasks that wait for others of this rank.
    gated : sequence of int
        Tasks that wait for nothing but other ranks' progress in shared memory.
    n_left : int
        Tasks that are not over.
    is_ending : bool
        Whether all is over here, and others of the node have to complete the start.
    is_computing : bool
        Whether a task is at work, so that nothing stands still.
    """

    active: Sequence[int]
    blocked: Sequence[int]
    gated: Sequence[int]
    n_left: int
    is_ending: bool = False
    is_computing: bool = False


class Waits:
    """Say which tasks of a program wait for whom.

    Parameters
    ----------
    plan : Plan
        The whole plan or this rank's program.
    program : Program
        What the rank runs.
    """

    def __init__(self, plan: Plan, program: Program) -> None:
        self._plan, self._program = plan, program

    @property
    def peers(self) -> set[int]:
        """Return the ranks this one exchanges messages with."""
        program = self._program
        return {int(peer) for peer in np.unique(program.peer[program.op <= Op.RECV])}

    def awaited(self, at: Standstill) -> set[int]:
        """Return the ranks that messages under way come from or go to, or that gates are of."""
        sharing = self._program.sharing
        found = {int(self._program.peer[task]) for task in at.active}
        for task in at.gated:
            found.update(sharing.rank[sharing.indptr[task] : sharing.indptr[task + 1]].tolist())
        return found

    def lines(self, at: Standstill) -> list[str]:
        """Return what the program waits for, a line a kind of wait."""
        n = self._program.n_tasks
        found = [f"{n - at.n_left} of {n} tasks are done"]
        # What comes in first: that others do not take what is sent often follows from it.
        active = sorted(at.active, key=lambda task: (self._program.op[task] != Op.RECV, task))
        found += [self._message(task) for task in active[:MOST_MESSAGES]]
        found += [self._gate(task) for task in at.gated[:MOST_MESSAGES]]
        left = len(active[MOST_MESSAGES:]) + len(at.gated[MOST_MESSAGES:])
        if left:
            found[-1] += f"; {left} more"
        if at.is_ending:
            found.append("other ranks of the node have not completed this start")
        if at.blocked:
            first = min(at.blocked)
            others = f" and {len(at.blocked) - 1} more tasks" if len(at.blocked) > 1 else ""
            verb = "wait" if others else "waits"
            found.append(f"{self._name(first)}{others} {verb} for tasks of this rank")
        return found

    def _message(self, task: int) -> str:
        program = self._program
        peer, tag = program.peer[task], program.tag[task]
        if program.op[task] == Op.SEND:
            return f"send to {peer} tag {tag} ({self._where(task)}) has not been taken"
        return f"recv from {peer} tag {tag} ({self._where(task)}) has not arrived"

    def _gate(self, task: int) -> str:
        sharing = self._program.sharing
        waits = range(int(sharing.indptr[task]), int(sharing.indptr[task + 1]))
        for_whom = ", ".join(f"task #{sharing.row[i]} of rank {sharing.rank[i]}" for i in waits)
        return (
            f"{self._name(task)} ({self._where(task)}) waits in shared memory for "
            f"{for_whom or 'all ranks of the node to complete the start before'}"
        )

    def _name(self, task: int) -> str:
        return Op(int(self._program.op[task])).name.lower() + f" #{self._program.row[task]}"

    def _where(self, task: int) -> str:
        row = int(self._program.row[task])
        phase = self._plan.phases[int(self._plan.phase[row])].name
        return f"task #{row}, phase {phase}" if phase else f"task #{row}"
