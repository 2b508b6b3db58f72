"""What a decomposition would cost, from its messages alone: closed forms, no simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from planner.arrays import Ints
from planner.builder import Placement
from planner.lowering import LocalTable, MessageTable
from planner.plan import Op

if TYPE_CHECKING:
    from specs import Machine

Floats = npt.NDArray[np.float64]

CONGESTION = 1.05
"""What messages of any length in no order take a lane more than segments in windows."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Messages and local steps with what each costs on a machine, in nanoseconds.

    Parameters
    ----------
    round : ndarray of int64, shape (n_messages,)
    n_bytes : ndarray of int64
    latency, overhead, gap, per_byte : ndarray of float64
        L, o, g and G of every message's link.
    lane_out, lane_in : ndarray of int64
        Which lane and direction carries it; the last number inside a node.
    source, dest : ndarray of int64
    step_round, step_rank : ndarray of int64, shape (n_steps,)
    step_ns : ndarray of float64
    n_lanes, n_ranks, n_rounds : int
    """

    round: Ints
    n_bytes: Ints
    latency: Floats
    overhead: Floats
    gap: Floats
    per_byte: Floats
    lane_out: Ints
    lane_in: Ints
    source: Ints
    dest: Ints
    step_round: Ints
    step_rank: Ints
    step_ns: Floats
    n_lanes: int
    n_ranks: int
    n_rounds: int

    @classmethod
    def of(
        cls, messages: MessageTable, steps: LocalTable, machine: Machine, itemsize: int
    ) -> Workload:
        """Look up what every message and step costs on `machine`."""
        placement, network = Placement.of(machine), machine.network
        source, dest = (end.astype(np.int64) for end in (messages.source, messages.dest))
        node, domain = placement.node, np.array(machine.rank_to_numa)
        crosses = node[source] != node[dest]
        kind = np.where(crosses, 2, np.where(domain[source] != domain[dest], 1, 0))
        links = [network.numa, network.node, network.network]
        table = np.array([(k.L_ns, k.o_ns, k.g_ns, k.G_ns_per_byte) for k in links])
        n_lanes = machine.nodes * machine.lanes
        lane = placement.lane[dest]
        per_byte = np.array([network.copy_ns_per_byte, network.reduce_ns_per_byte])
        n_rounds = 1 + max(int(messages.round.max(initial=-1)), int(steps.round.max(initial=-1)))
        return cls(
            round=messages.round.astype(np.int64),
            n_bytes=messages.read.elements * itemsize,
            latency=table[kind, 0],
            overhead=table[kind, 1],
            gap=table[kind, 2],
            per_byte=table[kind, 3],
            lane_out=np.where(crosses, node[source] * machine.lanes + lane, n_lanes),
            lane_in=np.where(crosses, node[dest] * machine.lanes + lane, n_lanes),
            source=source,
            dest=dest,
            step_round=steps.round.astype(np.int64),
            step_rank=steps.rank.astype(np.int64),
            step_ns=steps.write.elements * itemsize * per_byte[np.where(steps.op == Op.COPY, 0, 1)],
            n_lanes=n_lanes,
            n_ranks=machine.n_ranks,
            n_rounds=n_rounds,
        )

    def price_ns(self, segment_bytes: int | None = None) -> float:
        """Return about how long the workload takes.

        Unsegmented, rounds follow each other, and each takes as long as its
        latency and its busiest lane and core::

            T = Σ_rounds (L + 2o + max_lanes Σ (κsG + g) + max_cores Σ (o + s·G_node))

        Segmented, everything overlaps: the busiest lane or core of the whole
        counts, and the rounds of one segment each fill the pipeline. κ is
        `CONGESTION`.

        Parameters
        ----------
        segment_bytes : int, optional
            Greatest segment; None for whole messages.
        """
        if segment_bytes is None:
            return self._rounds_ns(self.n_bytes, self.step_ns)
        n_segments = np.maximum(1, -(-self.n_bytes // segment_bytes))
        first = np.minimum(self.n_bytes, segment_bytes)
        longest = max(1, int(n_segments.max(initial=1)))
        fill = self._rounds_ns(first, self.step_ns / longest)
        return self._busiest_ns(n_segments) + fill

    def _rounds_ns(self, n_bytes: Ints, step_ns: Floats) -> float:
        on_wire = n_bytes * self.per_byte
        is_local = self.lane_out == self.n_lanes
        lanes = np.where(is_local, 0.0, CONGESTION * on_wire + self.gap)
        cores = self.overhead + np.where(is_local, on_wire, 0.0)
        latency = np.zeros(self.n_rounds)
        np.maximum.at(latency, self.round, self.latency + 2 * self.overhead)
        total = latency.sum()
        for end, width, load in (
            (self.lane_out, self.n_lanes + 1, lanes),
            (self.lane_in, self.n_lanes + 1, lanes),
        ):
            total = max(total, latency.sum() + self._most(self.round, end, width, load).sum())
        busy = np.maximum(
            self._most(self.round, self.source, self.n_ranks, cores),
            self._most(self.round, self.dest, self.n_ranks, cores),
        )
        busy += self._most(self.step_round, self.step_rank, self.n_ranks, step_ns)
        return float(total + busy.sum())

    def _busiest_ns(self, n_segments: Ints) -> float:
        on_wire = self.n_bytes * self.per_byte
        is_local = self.lane_out == self.n_lanes
        lanes = np.where(is_local, 0.0, on_wire + n_segments * self.gap)
        cores = n_segments * self.overhead + np.where(is_local, on_wire, 0.0)
        core = np.bincount(self.source, cores, self.n_ranks)
        core += np.bincount(self.dest, cores, self.n_ranks)
        core += np.bincount(self.step_rank, self.step_ns, self.n_ranks)
        out, into = (
            np.bincount(end, lanes).max(initial=0) for end in (self.lane_out, self.lane_in)
        )
        return float(max(out, into, core.max(initial=0)))

    def _most(self, round_: Ints, end: Ints, width: int, load: Floats) -> Floats:
        """Return, round by round, the greatest load of any end."""
        sums = np.bincount(round_ * width + end, load, self.n_rounds * width)
        return np.asarray(sums.reshape(self.n_rounds, width).max(axis=1, initial=0))
