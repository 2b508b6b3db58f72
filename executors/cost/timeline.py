"""What a simulation returns: when every task runs, and why not earlier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.layout import core_to_numa

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Timeline:
    """When every task of a plan runs, and what it waited for.

    Parameters
    ----------
    start_ns, end_ns : ndarray of float64, shape (n_tasks,)
        A receive starts when it is posted and ends when the message is in and
        the core is done with it. A send ends when its core is free again, or,
        above the eager limit, when its receive has matched.
    core_busy_ns : ndarray of float64, shape (n_nodes, n_cores)
        Time each core is held.
    lane_busy_ns : ndarray of float64, shape (n_nodes, n_lanes, 2)
        Time each lane sends, and receives.
    simulate_s : float
        Seconds the simulation took, preparation included, compiling of kernels not.
    cause : ndarray of int32, shape (n_tasks,)
        The task that let each task start at `start_ns`: a predecessor, or the
        one that held its core or lane before; -1 for those that start at 0,
        ``-2 - s`` for one whose core or lane send s held until it matched.
    arrival_cause : ndarray of int32, shape (n_tasks,)
        For every send, what its message waited for at the receiver: the task
        that held the core or lane (as in `cause`), or the send itself where
        nothing did.
    is_rendezvous : ndarray of bool, shape (n_tasks,)
        Sends that ended when their receive matched.
    is_asking : ndarray of bool, shape (n_tasks,)
        Sends that had to ask their receiver first. `cause` is ``-2 - c`` for one
        that set out as soon as the answer was there: c is the predecessor of its
        request, -1 where it had none, or its receive, if that was posted late.
    partner : ndarray of int32, shape (n_tasks,)
        The other end of every message.
    flags_ns : tuple of float
        After how long another rank's task on the same core, in the same NUMA domain
        and on the same node sees that a task is done: the latencies of those links.
    is_allocated : bool
        Whether copies of buffers to their mirrors took no time.
    pcie_reads : ndarray of int64, shape (n_nodes, n_lanes), or None
        How often each adapter read a queue pair over PCIe: for those not in its
        cache, and for those connected to another peer. None where the network
        has no `nic`: adapters hold all.
    """

    start_ns: Floats
    end_ns: Floats
    core_busy_ns: Floats
    lane_busy_ns: Floats
    simulate_s: float
    cause: Ints
    arrival_cause: Ints
    is_rendezvous: npt.NDArray[np.bool_]
    is_asking: npt.NDArray[np.bool_]
    partner: Ints
    plan: Plan
    flags_ns: tuple[float, float, float] = (0.0, 0.0, 0.0)
    is_allocated: bool = False
    pcie_reads: npt.NDArray[np.int64] | None = None

    @cached_property
    def makespan_s(self) -> float:
        """Seconds from the start to the end of the last task."""
        return self.makespan_ns / 1e9

    @cached_property
    def makespan_ns(self) -> float:
        """The same in ns: whole and exact where the parameters are whole."""
        return float(self.end_ns.max(initial=0.0))

    def flag_ns(self, before: int, row: int) -> float:
        """Return after how long the core of task `row` sees that task `before` is done."""
        plan = self.plan
        if plan.rank[before] == plan.rank[row]:
            return 0.0
        one, other = int(plan.core[before]), int(plan.core[row])
        if one == other:
            return self.flags_ns[0]
        return self.flags_ns[1 if self._numa[one] == self._numa[other] else 2]

    @cached_property
    def _numa(self) -> Ints:
        return core_to_numa(self.plan)
