"""What a decomposition would cost, from its messages alone: closed forms, no simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Bools, Ints
from collplan.planner.lowering.build import Placement
from collplan.planner.lowering.lower import LocalTable, MessageTable
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.specs import Machine

Floats = npt.NDArray[np.float64]

CONGESTION = 1.05
"""What messages of any length in no order take a lane more than segments in windows."""

LOST_OVERLAP = 0.25
"""How much of the lesser of wire and core time is not hidden behind the greater."""

RENDEZVOUS = 2.0
"""How much longer a byte keeps cores in a message above the eager limit: on emulated clusters."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Messages and local steps with what each costs on a machine, in nanoseconds.

    Parameters
    ----------
    round : ndarray of int64, shape (n_messages,)
    n_bytes : ndarray of int64
    latency, overhead, gap, per_byte, core_per_byte : ndarray of float64
        L, o, g, G and O of every message's link; inside a node G keeps the core.
    lane_out, lane_in : ndarray of int64
        Which lane and direction carries it; the last number inside a node.
    source, dest : ndarray of int64
    step_round, step_rank : ndarray of int64, shape (n_steps,)
    step_ns : ndarray of float64
    keeps_receiver : ndarray of bool, shape (n_messages,)
        Whether G keeps the receiver's core, as of links without offload.
    is_copy : ndarray of bool, shape (n_messages,)
        Whether its receiver reads it in memory that the two share.
    n_lanes, n_ranks, n_rounds, eager_limit_bytes : int
    n_processors : int
        What the ranks' cores really are: as many as ranks, or fewer where they share.
    """

    round: Ints
    n_bytes: Ints
    latency: Floats
    overhead: Floats
    gap: Floats
    per_byte: Floats
    core_per_byte: Floats
    lane_out: Ints
    lane_in: Ints
    source: Ints
    dest: Ints
    step_round: Ints
    step_rank: Ints
    step_ns: Floats
    keeps_receiver: Bools
    is_copy: Bools
    n_lanes: int
    n_ranks: int
    n_rounds: int
    eager_limit_bytes: int
    n_processors: int

    @classmethod
    def of(
        cls,
        messages: MessageTable,
        steps: LocalTable,
        machine: Machine,
        itemsize: int,
        shared_phases: Bools | None = None,
    ) -> Workload:
        """Look up what every message and step costs on `machine`.

        Messages inside nodes, in phases marked as shared, are copies that their
        receivers make, or reductions where they combine what comes.
        """
        placement, network = Placement.of(machine), machine.network
        source, dest = (end.astype(np.int64) for end in (messages.source, messages.dest))
        node, domain = placement.node, np.array(machine.rank_to_numa)
        crosses = node[source] != node[dest]
        kind = np.where(crosses, 2, np.where(domain[source] != domain[dest], 1, 0))
        links = [network.numa, network.node, network.network]
        table = np.array(
            [(k.L_ns, k.o_ns, k.g_ns, k.G_ns_per_byte, k.O_ns_per_byte) for k in links]
        )
        copies = np.array([not k.offload for k in links])
        is_copy = np.zeros(len(kind), dtype=np.bool_)
        if shared_phases is not None:
            is_copy = ~crosses & shared_phases[messages.phase]
        copy_ns = np.where(messages.combine.elements > 0, 0.0, network.copy_ns_per_byte)
        n_lanes = machine.nodes * machine.lanes
        lane = placement.lane[dest]
        per_byte = np.array([network.copy_ns_per_byte, network.reduce_ns_per_byte])
        n_rounds = 1 + max(int(messages.round.max(initial=-1)), int(steps.round.max(initial=-1)))
        return cls(
            round=messages.round.astype(np.int64),
            n_bytes=messages.read.elements * itemsize,
            latency=table[kind, 0],
            overhead=np.where(is_copy, 0.0, table[kind, 1]),
            gap=np.where(is_copy, 0.0, table[kind, 2]),
            per_byte=np.where(is_copy, 0.0, table[kind, 3]),
            core_per_byte=np.where(
                is_copy, copy_ns, table[kind, 4] + np.where(crosses, 0.0, table[kind, 3])
            ),
            keeps_receiver=copies[kind] & ~is_copy,
            is_copy=is_copy,
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
            eager_limit_bytes=network.eager_limit_bytes,
            n_processors=min(machine.n_ranks, network.processors or machine.n_ranks),
        )

    def price_ns(self, segment_bytes: int | None = None) -> float:
        """Return about how long the workload takes.

        Unsegmented, rounds follow each other, and each takes as long as its
        latency and its busiest lane and core::

            T = Σ_rounds (L + 2o + max_lanes Σ (κsG + g) + max_cores Σ (o + sO))

        Segmented, everything overlaps: the busiest lane or core of the whole
        counts, `LOST_OVERLAP` of the other, and one segment a round fills the
        pipeline::

            T = max(wire, core) + λ min(wire, core) + Σ_rounds (L + 2o + SG)

        κ is `CONGESTION`; inside a node G keeps the core as O does. Above the
        eager limit a message or segment is three to a core, for its handshake,
        and its bytes count `RENDEZVOUS` times.

        Parameters
        ----------
        segment_bytes : int, optional
            Greatest segment S; None for whole messages.
        """
        if segment_bytes is None:
            return self._rounds_ns()
        n_segments = np.maximum(1, -(-self.n_bytes // segment_bytes))
        first = np.minimum(self.n_bytes, segment_bytes)
        through = self.latency + 2 * self.overhead + first * self.per_byte
        fill = np.zeros(self.n_rounds)
        np.maximum.at(fill, self.round, through)
        wire = self._lane_ns(self.n_bytes * self.per_byte + n_segments * self.gap)
        core = self._core_ns(n_segments, first)
        # Of nothing, bincount counts in integers whatever its weights are.
        cores = np.bincount(self.source, core, self.n_ranks).astype(np.float64)
        # Without offload what comes over a lane keeps the core as long as the lane.
        lasts = self.n_bytes * self.per_byte * self.keeps_receiver
        cores += np.bincount(self.dest, np.maximum(core, lasts), self.n_ranks)
        cores += np.bincount(self.step_rank, self.step_ns, self.n_ranks)
        lanes = max(np.bincount(end, wire).max(initial=0) for end in (self.lane_out, self.lane_in))
        busiest = cores.max(initial=0)
        if self.n_processors < self.n_ranks:
            # What the busiest rank does waits for what all do.
            busiest += cores.sum() / self.n_processors
        low, high = sorted((float(lanes), float(busiest)))
        return high + LOST_OVERLAP * low + float(fill.sum())

    def _rounds_ns(self) -> float:
        latency = np.zeros(self.n_rounds)
        np.maximum.at(latency, self.round, self.latency + 2 * self.overhead)
        wire = self._lane_ns(CONGESTION * self.n_bytes * self.per_byte + self.gap)
        lanes = [
            self._most(self.round, end, self.n_lanes + 1, wire).sum()
            for end in (self.lane_out, self.lane_in)
        ]
        core = self._core_ns(1, self.n_bytes)
        busy = np.maximum(
            self._most(self.round, self.source, self.n_ranks, core),
            self._most(self.round, self.dest, self.n_ranks, core),
        )
        busy += self._most(self.step_round, self.step_rank, self.n_ranks, self.step_ns)
        together = 2.0 * np.bincount(self.round, core, self.n_rounds)
        together += np.bincount(self.step_round, self.step_ns, self.n_rounds)
        busy = np.maximum(busy, together / self.n_processors)
        return float(latency.sum() + max(lanes) + busy.sum())

    def _core_ns(self, n_segments: Ints | int, segment_bytes: Ints) -> Floats:
        """Return how long each message, in so many segments, keeps the cores at its ends."""
        is_long = segment_bytes > self.eager_limit_bytes
        per_byte = np.where(is_long, RENDEZVOUS, 1) * self.core_per_byte
        tasks = np.where(is_long, 3, 1) * n_segments
        return np.asarray(tasks * self.overhead + self.n_bytes * per_byte)

    def _lane_ns(self, on_wire: Floats) -> Floats:
        """Return what messages take of lanes: inside a node nothing."""
        return np.where(self.lane_out == self.n_lanes, 0.0, on_wire)

    def _most(self, round_: Ints, end: Ints, width: int, load: Floats) -> Floats:
        """Return, round by round, the greatest load of any end."""
        sums = np.bincount(round_ * width + end, load, self.n_rounds * width).astype(np.float64)
        return np.asarray(sums.reshape(self.n_rounds, width).max(axis=1, initial=0))
