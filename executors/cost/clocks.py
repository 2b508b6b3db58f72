"""The simulator's table of clocks: every core, lane, port, memory and processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.event_queue import Records
from collplan.executors.cost.queues import CLOCK, QUEUE

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan
    from collplan.specs import Network


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where each kind of resource begins in the table.

    Parameters
    ----------
    n_nodes, n_cores, n_lanes, n_ranks : int
        Nodes, cores and lanes a node, ranks.
    n_processors : int
        Processors that all cores share; 0 where each core is one.
    """

    n_nodes: int
    n_cores: int
    n_lanes: int
    n_ranks: int
    n_processors: int

    @classmethod
    def of(cls, plan: Plan, network: Network | None = None) -> Clocks:
        """Return what a plan uses of a machine."""
        n_cores = 1 + int(max(plan.core.max(initial=0), plan.rank_core.max(initial=0)))
        n_processors = 0 if network is None else network.processors or 0
        return cls(
            n_nodes=plan.n_nodes,
            n_cores=n_cores,
            n_lanes=1 + int(max(plan.lane.max(initial=0), plan.rank_lane.max(initial=0))),
            n_ranks=plan.n_ranks,
            # Cores run one task at a time: more processors than cores are never waited for.
            n_processors=min(n_processors, plan.n_nodes * n_cores),
        )

    @property
    def lane_out(self) -> int:
        """First clock of the lanes' sending side; cores come before, by node."""
        return self.n_nodes * self.n_cores

    @property
    def lane_in(self) -> int:
        """First clock of the lanes' receiving side."""
        return self.lane_out + self.n_nodes * self.n_lanes

    @property
    def port_out(self) -> int:
        """First clock of the ranks' ports into their node."""
        return self.lane_in + self.n_nodes * self.n_lanes

    @property
    def port_in(self) -> int:
        """First clock of the ranks' ports out of their node."""
        return self.port_out + self.n_ranks

    @property
    def memory(self) -> int:
        """First clock of the nodes' memories."""
        return self.port_in + self.n_ranks

    @property
    def processor(self) -> int:
        """First clock of the processors."""
        return self.memory + self.n_nodes

    @property
    def unused(self) -> int:
        """The last clock, which never moves, for what needs no core or no lane."""
        return self.processor + self.n_processors

    def make(self) -> Records:
        """Return all clocks at 0."""
        clocks = np.zeros(self.unused + 1, dtype=CLOCK)
        clocks["holder"] = clocks["first"] = clocks["rank"] = -1
        clocks["event_time"] = np.inf
        return clocks

    def make_queues(self, plan: Plan, slots: npt.NDArray[np.int64], *, offload: bool) -> Records:
        """Return the empty queues of every slot: without a lane, then out, then in.

        Parameters
        ----------
        plan : Plan
            Whose ranks they are.
        slots : ndarray of int64
            Ranks on cores, as ``rank * n_cores + core``.
        offload : bool
            Whether what arrives over a lane waits for the lane only.
        """
        rank, core = np.divmod(slots, self.n_cores)
        node = plan.rank_node[rank].astype(np.int64)
        lanes = np.arange(self.n_lanes)
        lane = np.column_stack(
            (
                np.full(len(slots), self.unused),
                self.lane_out + node[:, None] * self.n_lanes + lanes,
                self.port_out + rank,
                self.lane_in + node[:, None] * self.n_lanes + lanes,
                self.port_in + rank,
            )
        )
        core = np.repeat((node * self.n_cores + core)[:, None], lane.shape[1], axis=1)
        queues = np.empty(lane.size, dtype=QUEUE)
        queues["lane"] = lane.ravel()
        queues["core"] = core.ravel()
        if offload:
            core[:, -1 - self.n_lanes : -1] = self.unused
        queues["awaits"] = core.ravel()
        queues["rank"] = np.repeat(rank, lane.shape[1])
        queues["node"] = np.repeat(node, lane.shape[1])
        queues["first"] = queues["last"] = -1
        return queues
