"""How long alltoalls by messages take: flat ones from counts alone, others phase by phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.csr import row_sums
from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.lowering.build import Placement
from collplan.planner.lowering.lower import LocalTable, MessageTable
from collplan.planner.lowering.select import state
from collplan.planner.lowering.tables import tables_of
from collplan.planner.plan.pieces import Pieces, is_constant
from collplan.select.message_cost import Wire
from collplan.select.queues import Floats

if TYPE_CHECKING:
    from collplan.specs import Machine

MATCHING = 0.6
"""How much longer n messages in no order take a lane, over √n: the lanes at both ends must
be free, and of few messages few find both."""


def flat_ns(machine: Machine, n_bytes: float, *, is_in_place: bool = False) -> float:
    """Return about how long all blocks take straight away, in any order.

    Parameters
    ----------
    machine : Machine
    n_bytes : float
        Of a block.
    is_in_place : bool
        Whether what is sent must be kept from what comes.
    """
    network, n_ranks = machine.network, machine.n_ranks
    placement = Placement.of(machine)
    node, lane = placement.node.astype(np.int64), placement.lane.astype(np.int64)
    place = node * machine.numa_domains + np.array(machine.rank_to_numa)
    near, inside = np.bincount(place)[place] - 1, np.bincount(node)[node] - 1
    across = n_ranks - 1 - inside
    rail = node * machine.lanes + lane
    n_rails = machine.nodes * machine.lanes
    into = np.bincount(rail, across, n_rails)
    by_lane = np.bincount(lane, minlength=machine.lanes)
    there = np.bincount(rail, minlength=n_rails).reshape(-1, machine.lanes)
    out = np.bincount(node, minlength=machine.nodes)[:, None] * (by_lane - there)
    wire, size = Wire(network, int(out.max(initial=0))), np.array([float(n_bytes)])
    cores = across * (wire.core_ns(size) + wire.arrival_ns(size))
    works = across * 2 * wire.core_ns(size)
    ports = np.zeros(n_ranks)
    for link, n in ((network.numa, near), (network.node, inside - near)):
        more = max(n_bytes - 1, 0.0)
        per_message = 2 * link.o_ns + more * (
            link.O_ns_per_byte + max(link.O_ns_per_byte, link.G_ns_per_byte)
        )
        cores, works = cores + n * per_message, works + n * per_message
        ports += n * (link.g_ns + more * link.G_ns_per_byte)
    copied = n_bytes * (1 + is_in_place * n_ranks) * network.copy_ns_per_byte
    passes = float(wire.lane_ns(size)[0])
    lanes = max(into.max() * passes, out.max() * (passes + wire.reading_ns))
    turns = into.max() * max(1.0, n_bytes / (network.turn_bytes or n_bytes or 1.0))
    lanes *= 1 + MATCHING / max(1.0, turns) ** 0.5
    if lanes:
        lanes += wire.latency_ns + network.network.o_ns + wire.asking_ns(size)[0] - wire.burst_ns
    n_processors = min(network.processors or n_ranks, n_ranks)
    held = (cores + copied).max(), (works + copied).sum() / n_processors, ports.max()
    return float(max(lanes, *held))


def phases_ns(blueprint: Blueprint) -> float:
    """Return about how long a blueprint takes whose phases follow each other.

    In a phase of messages that wait for nothing the busiest core or lane counts;
    in others rounds follow each other, too.

    Raises
    ------
    AlgorithmError
        If the spec names an algorithm that cannot serve.
    """
    spec = blueprint.spec
    messages, steps = tables_of(blueprint)
    loads = _Loads.of(messages, steps, spec.machine, spec.collective.itemsize)
    at_once = np.array([part.algorithm.at_once for part in state(blueprint)] or [True])
    width = loads.n_rounds
    sent = messages.phase.astype(np.int64) * width + np.where(
        at_once[messages.phase], 0, messages.round
    )
    done = steps.phase.astype(np.int64) * width + np.where(at_once[steps.phase], 0, steps.round)
    keys = np.unique(np.concatenate((sent, done)))
    return sum(loads.round_ns(sent == key, done == key) for key in keys)


@dataclass(frozen=True, eq=False)
class _Loads:
    """What messages and steps ask of cores and lanes, one entry each."""

    machine: Machine
    wire: Wire
    source: Ints
    dest: Ints
    crosses: Bools
    out: Ints
    into: Ints
    sends: Floats
    comes: Floats
    passes: Floats
    latency: Floats
    step_rank: Ints
    step_ns: Floats
    n_rounds: int

    @classmethod
    def of(
        cls, messages: MessageTable, steps: LocalTable, machine: Machine, itemsize: int
    ) -> _Loads:
        """Look up what every message and step costs on `machine`."""
        network, placement = machine.network, Placement.of(machine)
        node, lane = placement.node.astype(np.int64), placement.lane.astype(np.int64)
        domain = np.array(machine.rank_to_numa)
        source, dest = messages.source.astype(np.int64), messages.dest.astype(np.int64)
        n_bytes = (messages.read.elements * itemsize).astype(np.float64)
        crosses = node[source] != node[dest]
        pairs = np.unique(source[crosses] * machine.n_ranks + dest[crosses]) // machine.n_ranks
        most = int(np.bincount(node[pairs], minlength=1).max())
        wire = Wire(network, -(-most // machine.lanes))
        links = network.numa, network.node
        kind = (domain[source] != domain[dest]).astype(np.int64)
        table = np.array([(k.L_ns, k.o_ns, k.O_ns_per_byte, k.G_ns_per_byte) for k in links])
        latency, overhead, per_byte, gap = (column[kind] for column in table.T)
        more, own = np.maximum(n_bytes - 1, 0.0), network.network.o_ns
        inside = overhead + more * np.maximum(per_byte, gap)
        strided = n_bytes * network.strided_ns_per_byte
        step_bytes = steps.write.elements * float(itemsize)
        is_strided = _is_strided(steps.write) | _is_strided(steps.read)
        return cls(
            machine=machine,
            wire=wire,
            source=source,
            dest=dest,
            crosses=crosses,
            out=node[source] * machine.lanes + lane[dest],
            into=node[dest] * machine.lanes + lane[dest],
            sends=np.where(crosses, wire.core_ns(n_bytes), overhead + more * per_byte)
            + strided * _is_strided(messages.read),
            comes=np.where(crosses, wire.arrival_ns(n_bytes), inside)
            + strided * _is_strided(messages.write),
            passes=wire.lane_ns(n_bytes),
            latency=np.where(crosses, wire.latency_ns - own + wire.asking_ns(n_bytes), latency),
            step_rank=steps.rank.astype(np.int64),
            step_ns=step_bytes
            * (network.copy_ns_per_byte + network.strided_ns_per_byte * is_strided),
            n_rounds=1 + max(int(messages.round.max(initial=0)), int(steps.round.max(initial=0))),
        )

    def round_ns(self, sent: Bools, done: Bools) -> float:
        """Return how long some messages take that begin together, and steps with them."""
        n_ranks, wire = self.machine.n_ranks, self.wire
        sends = np.bincount(self.source[sent], self.sends[sent], n_ranks).astype(np.float64)
        cores = sends + np.bincount(self.dest[sent], self.comes[sent], n_ranks)
        steps = np.bincount(self.step_rank[done], self.step_ns[done], n_ranks)
        n_processors = min(self.machine.network.processors or n_ranks, n_ranks)
        shared = float((cores + steps).sum() / n_processors)
        first = max(float(sends.max()), float(sends.sum()) / n_processors)
        chosen = sent & self.crosses
        lanes = 0.0
        for end, more in ((self.out, wire.reading_ns), (self.into, 0.0)):
            held = np.bincount(end[chosen], self.passes[chosen] + more)
            lanes = max(lanes, float(held.max(initial=0.0)) - wire.burst_ns)
        latency = float(self.latency[sent].max(initial=0.0))
        longest = float(self.comes[sent].max(initial=0.0))
        ends = 2 * self.machine.network.network.o_ns if lanes > 0 else 0.0
        lanes += latency + ends
        busiest = max(lanes, first + latency + longest, float(cores.max()), shared)
        return busiest + float(steps.max())


def _is_strided(pieces: Pieces) -> Bools:
    """Tell which rows are of more pieces than one."""
    n = np.diff(pieces.indptr)
    if is_constant(pieces.repeat):
        return np.asarray(n > 1)
    return np.asarray((n > 1) | (row_sums(pieces.indptr, pieces.repeat > 1) > 0))
