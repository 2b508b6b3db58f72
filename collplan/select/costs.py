"""Costs of messages and local steps: times for which they hold cores, lanes, ports and memory."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.lowering.build import Placement
from collplan.planner.lowering.tables import LocalTable, MessageTable, Tables
from collplan.planner.plan.pieces import Pieces, is_constant
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.topology import fabric_of
from collplan.planner.topology.link_loads import LinkLoads
from collplan.select.cuts import Cut, longest_pieces, pieces
from collplan.select.wire import Wire
from collplan.specs import Machine, Network

PART: Final = 0.5
SHARED_PART: Final = 1.0
"""Effort of a further piece of memory, and how much more if ranks of a node share it, in tasks."""
NOT_HIDDEN: Final = 0.5
"""Share of a segmented phase's time that does not overlap with other phases."""
SPAN: Final = 1 << 40
"""More elements than any buffer has."""
WINDOW: Final = 0.75
"""Latencies that each further segment waits for, since few requests are in flight."""


@dataclass(eq=False)
class Costs:
    """Messages and local steps of a plan with their costs on a machine, in nanoseconds.

    In phases that share memory, a message inside a node is a copy by its receiver, or a reduction
    if the receiver combines it.

    Parameters
    ----------
    tables : Tables
    machine : Machine
    itemsize : int
        Size of an element in bytes.
    shared_phases : ndarray of bool, shape (n_phases,)
        Phases in which ranks of a node share memory.
    ranks : tuple of int or None
        Ranks whose messages and steps are all in the tables; other ranks may lack some. None if
        the tables are complete.
    """

    tables: Tables
    machine: Machine
    itemsize: int
    shared_phases: Bools
    ranks: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        machine, network = self.machine, self.machine.network
        messages, steps = self.tables.messages, self.tables.steps
        there = (1 + int(one.round.max(initial=-1)) for one in (messages, steps))
        self.n_rounds = max(self.tables.n_rounds, *there)
        self.n_phases = len(self.shared_phases)
        self.round, self.phase, self.source, self.dest = (
            column.astype(np.int64)
            for column in (messages.round, messages.phase, messages.source, messages.dest)
        )
        self.step_phase, self.step_rank = steps.phase.astype(np.int64), steps.rank.astype(np.int64)
        placement = Placement.of(machine)
        node, domain, lane = placement.node, placement.numa, placement.lane[self.dest]
        self.crosses = node[self.source] != node[self.dest]
        self.lane_out, self.lane_in = (
            node[end] * machine.n_lanes + lane for end in (self.source, self.dest)
        )
        near = np.where(domain[self.source] != domain[self.dest], 1, 0)
        links = _links(network)[:, np.where(self.crosses, 2, near)]
        self.slowness = np.array(machine.lane_slowness)
        links[3] *= np.where(self.crosses, self.slowness[lane], 1.0)
        self.loads = self._link_loads(node, lane)
        links[0] += 0.0 if self.loads is None else self.loads.latency_ns
        self.latency, self.overhead, self.gap, self.per_byte, self.core_per_byte, offload = links
        # The receiver reads a copy in memory that it shares with the sender.
        self.is_copy = ~self.crosses & self.shared_phases[self.phase]
        # Without offload, G holds the receiver's core.
        self.keeps_receiver = (offload == 0) & ~self.is_copy
        self.wire = Wire(
            network,
            _pairs_per_adapter(self.source[self.crosses], self.dest[self.crosses], machine),
        )
        self.n_bytes: Ints | Floats
        self.combined_bytes: Ints | Floats
        self.step_bytes: Ints | Floats
        self.n_bytes, self.combined_bytes, self.step_bytes = (
            np.asarray(side.elements) * self.itemsize
            for side in (messages.read, messages.combine, steps.write)
        )
        self.copied_bytes: Ints | Floats = _copied_in(self.tables, self.is_copy) * self.itemsize
        links[1:5, self.is_copy] = 0.0  # all but the latency
        self.core_per_byte[self.is_copy & (self.combined_bytes == 0)] = network.copy_ns_per_byte
        self.step_per_byte = np.where(
            steps.op == Op.COPY, network.copy_ns_per_byte, network.reduce_ns_per_byte
        )
        self.n_pieces, self.step_pieces = _n_pieces(messages), _n_pieces(steps)
        self.is_read_strided, self.is_write_strided = map(
            _is_strided, (messages.read, messages.write)
        )
        self.is_step_strided = _is_strided(steps.read) | _is_strided(steps.write)
        sent, taken = (self.phase, self.source), (self.phase, self.dest)
        done, arrived = (self.step_phase, self.step_rank), (self.phase, node[self.dest])
        self.cores = Places.of(self.n_phases, sent, taken, done)
        self.memories = Places.of(self.n_phases, arrived, (self.step_phase, node[self.step_rank]))
        self.lanes = [
            Places.of(self.n_phases, (self.phase, lane)) for lane in (self.lane_out, self.lane_in)
        ]
        self.ports = [Places.of(self.n_phases, end) for end in (sent, taken)]
        self.held: dict[Cut, list[Floats]] = {}

    def _link_loads(self, node: Ints, lane: Ints) -> LinkLoads | None:
        """Return the loads of a topology's links; None without one, or for a sample of ranks."""
        fabric = fabric_of(self.machine) if self.ranks is None else None
        if fabric is None:
            return None
        return LinkLoads.of(fabric, node[self.source], node[self.dest], lane)

    def scaled(self, factor: float) -> Costs:
        """Return the costs of the same messages and steps of `factor` times the size."""
        costs = copy(self)
        costs.held = {}
        for name in ("n_bytes", "combined_bytes", "copied_bytes", "step_bytes"):
            setattr(costs, name, getattr(self, name) * factor)
        return costs

    def n_tasks(self, cut: Cut) -> int:
        """Estimate the number of tasks of the plan of all ranks with cut messages."""
        of_segment, of_piece, share = self._tasks_there
        n = (pieces(self.n_bytes, cut) * of_segment).sum()
        n += (pieces(self.step_bytes, cut) * of_piece).sum()
        return int(n / share)

    @cached_property
    def _tasks_there(self) -> tuple[Ints, Ints, float]:
        """Tasks on these ranks: of a segment of every message, of a piece of every step.

        Last, the share of these ranks in all.
        """
        ranks = np.arange(self.machine.n_ranks)
        there = np.ones(len(ranks), np.bool_) if self.ranks is None else np.isin(ranks, self.ranks)
        # A message is a send, a receive, and a reduction if the receiver combines it.
        n_received = 1 * ~self.is_copy + (self.is_copy | (self.combined_bytes > 0))
        of_segment = ~self.is_copy * there[self.source] + n_received * there[self.dest]
        return of_segment, 1 * there[self.step_rank], float(there.mean())

    @property
    def longest(self) -> float:
        """Return the size of the longest message in bytes."""
        return float(self.n_bytes.max(initial=0))

    @property
    def longest_crossing(self) -> float:
        """Return the size of the longest message between nodes in bytes."""
        return float(self.n_bytes[self.crosses].max(initial=0))

    @cached_property
    def effort_of_parts(self) -> int:
        """Approximate effort that pieces of memory add to compiling, as a number of tasks.

        Every piece of a message or step but the first one adds to the effort.
        """
        n_ranks, ranks = self.machine.n_ranks, self.ranks or range(self.machine.n_ranks)
        there, steps = np.isin(self.dest, ranks), np.isin(self.step_rank, ranks)
        n_more, n_more_of_steps = (np.maximum(0, n - 1) for n in (self.n_pieces, self.step_pieces))
        effort = PART * float(n_more[there].sum() + n_more_of_steps[steps].sum())
        effort += SHARED_PART * float(n_more[there & self.is_copy].sum())
        return int(effort * n_ranks / len(ranks))

    def estimate_ns(self, cut: Cut, bound_ns: float) -> float:
        """Estimate the time of the plan with cut messages, given a lower bound.

        Whole messages: phases follow each other. A phase takes the time of its busiest lane, core
        or memory plus L + o per round, or, if that is more, the time of the longest messages of
        its rounds, one after another, with the reductions that follow them. Segments or slices:
        phases overlap, one segment per round fills the pipeline, and each further one waits for
        `WINDOW` latencies.
        """
        longest = longest_pieces(self.n_bytes, cut)
        waits, through = np.zeros((2, self.n_rounds))
        late_ns = self.crosses * (self.wire.asking_ns(self.n_bytes) + self.wire.read_ns)
        latency = self.latency + late_ns + 2 * self.overhead
        np.maximum.at(waits, self.round, latency - self.overhead)
        np.maximum.at(through, self.round, latency + longest * self._through_per_byte)
        through += self._reducing_ns(cut)
        if self.loads is not None:
            busy_ns = self.loads.most_ns(self.round, self.n_rounds, longest)[:-1]
            np.maximum(through, waits + busy_ns, out=through)
        phase_of, seen = self._rounds_seen
        waits, through = waits[seen], through[seen]
        *busy, together = self._held_ns(cut, is_sure=False).tolist()
        if cut is None:
            waited = np.bincount(phase_of, waits, len(busy))
            passed = np.bincount(phase_of, through, len(busy))
            return float(np.maximum(busy + waited, passed).sum())
        together_ns = NOT_HIDDEN * sum(busy) + (1 - NOT_HIDDEN) * bound_ns
        # Work of one core or lane in several phases does not overlap.
        together_ns = max(together_ns, float(together))
        n_more = int(pieces(self.n_bytes, cut).max(initial=1)) - 1
        together_ns += float(through.sum())
        return float(together_ns + n_more * WINDOW * latency.max(initial=0))

    def _reducing_ns(self, cut: Cut) -> Floats:
        """Return the time of the longest reduction that follows messages, for every round."""
        steps, found = self.tables.steps, np.zeros(self.n_rounds)
        reducing_ns = longest_pieces(self.step_bytes, cut) * self.step_per_byte
        np.maximum.at(found, steps.round, np.where(steps.op == Op.REDUCE, reducing_ns, 0.0))
        has_messages = np.bincount(self.round, minlength=self.n_rounds) > 0
        return np.where(has_messages, found, 0.0)

    @cached_property
    def _through_per_byte(self) -> Floats:
        """Time in ns that a byte of every message takes from end to end."""
        both: Floats = np.where(
            self.crosses,
            np.maximum(self.per_byte, self.core_per_byte),
            self.per_byte + self.core_per_byte,
        )
        network = self.machine.network
        both += (self.combined_bytes > 0) * network.reduce_ns_per_byte
        both += (self.copied_bytes > 0) * network.copy_ns_per_byte
        return both

    @cached_property
    def _rounds_seen(self) -> tuple[Ints, Ints]:
        """Phase of every round, and the round whose messages represent it.

        In tables of some ranks, rounds in which one of them receives are known. Other rounds are
        assumed to equal the last known round before them, or the first one.
        """
        phase_of, seen = np.zeros((2, self.n_rounds), dtype=np.int64)
        phase_of[self.round] = self.phase
        if self.ranks is None:
            return phase_of, np.arange(self.n_rounds)
        first = np.full(self.n_phases, self.n_rounds)
        np.minimum.at(first, self.phase, self.round)
        known = self.round[np.isin(self.dest, self.ranks)]
        seen[known] = known
        begins = first[first < self.n_rounds]
        seen[begins] = begins
        seen[:1] = begins.min(initial=self.n_rounds - 1)
        seen = np.maximum.accumulate(seen)
        return phase_of[seen], seen

    def busiest_ns(self, cut: Cut) -> float:
        """Return the time in ns for which the busiest lane, link, port, core or memory is held."""
        return float(self._held_ns(cut, is_sure=True)[-1])

    def _held_ns(self, cut: Cut, *, is_sure: bool) -> Floats:
        """Return the time in ns for which the busiest resource is held, per phase and in all.

        It is a lower bound if `is_sure`, otherwise an approximation. A message of s bytes holds

        - a link of a topology for (s - 1) / bandwidth,
        - a lane at either end, or inside a node a port of either rank, for g + (s - 1)·G,
        - the core of the sender for o + (s - 1)·O, and
        - the core of the receiver for as much, with max(O, G) in place of O unless the adapter
          writes to memory itself.

        Copies and reductions hold cores, too; rounding may shorten each by less than 1 ns. Shared
        processors are held for as long as their cores. The gap g of the last message may exceed
        the makespan, and the first bytes at either end may pass at once, as a burst.
        """
        n_segments = pieces(self.n_bytes, cut)
        moved = np.maximum(0, self.n_bytes - n_segments)
        if cut not in self.held:
            held = [
                self._memories_ns(),
                *self._lanes_ns(n_segments * self.gap + moved * self.per_byte),
            ]
            if self.loads is not None:
                held.append(self.loads.most_ns(self.phase, self.n_phases, moved)[:, None])
            self.held = {cut: [busy.max(axis=1, initial=0.0) for busy in held]}
        n_steps = pieces(self.step_bytes, cut)
        cores = self._cores_ns(n_segments, moved, n_steps, is_sure=is_sure)
        busiest = (*self.held[cut], *(busy.max(axis=1, initial=0.0) for busy in cores))
        return np.asarray(np.max(busiest, axis=0))

    def _cores_ns(
        self, n_segments: Floats, moved: Floats, n_steps: Floats, *, is_sure: bool
    ) -> list[Floats]:
        """Return the time in ns for which cores and shared processors are held.

        Costs that only some plans have are not counted in the lower bound: copies, strides,
        packets and so on. Of reads in shared memory, it counts only those by reductions.
        """
        network = self.machine.network
        core_ns = np.where(self.is_copy, 0.0, self.core_per_byte)
        own = n_segments * self.overhead
        taken_per_byte = np.where(self.keeps_receiver, np.maximum(core_ns, self.per_byte), core_ns)
        reduced_ns = np.maximum(0, network.reduce_ns_per_byte * self.combined_bytes - n_segments)
        sent_ns = own + moved * core_ns
        taken_ns = own + moved * taken_per_byte + reduced_ns
        step_ns: Floats = np.maximum(0.0, self.step_bytes * self.step_per_byte - n_steps)
        if is_sure:
            return self._busy_cores(sent_ns, taken_ns, step_ns)
        strided_ns = network.strided_ns_per_byte
        packets_ns = self.crosses * self.wire.packets_ns(self.n_bytes)
        sent_ns = sent_ns + packets_ns + strided_ns * self.n_bytes * self.is_read_strided
        sent_ns += network.copy_ns_per_byte * self.copied_bytes
        taken_ns = taken_ns + packets_ns + strided_ns * self.n_bytes * self.is_write_strided
        taken_ns += self.is_copy * moved * self.core_per_byte
        step_ns = step_ns + strided_ns * self.step_bytes * self.is_step_strided
        return self._busy_cores(sent_ns, taken_ns, step_ns)

    def _busy_cores(self, sent_ns: Floats, taken_ns: Floats, step_ns: Floats) -> list[Floats]:
        machine, network = self.machine, self.machine.network
        cores = self.cores.sums(sent_ns, taken_ns, step_ns)
        if self.ranks is not None and not network.processors:
            return [cores]
        n_processors = min(machine.n_ranks, network.processors or machine.n_ranks)
        return [cores, cores.sum(axis=1, keepdims=True) / n_processors]

    def _lanes_ns(self, wire_ns: Floats) -> list[Floats]:
        """Return the time in ns for which messages that need `wire_ns` hold lanes and ports."""
        after_ns = np.zeros((self.n_phases + 1, 1))
        np.maximum.at(after_ns[:, 0], self.phase, self.gap - self.overhead)
        after_ns[-1] = after_ns.max()
        # The slowest lane takes the longest time for its burst.
        bursts_ns = 2 * self.wire.burst_ns * self.slowness.max()
        crossing, inside = wire_ns * self.crosses, wire_ns * ~self.crosses
        held = [lane.sums(crossing) - after_ns - bursts_ns for lane in self.lanes]
        return held + [port.sums(inside) - after_ns for port in self.ports]

    def _memories_ns(self) -> Floats:
        """Return the time in ns for which copies, reductions and arrivals hold nodes' memory."""
        arrived = self.n_bytes * ~(self.crosses | self.is_copy) + self.combined_bytes
        moved = self.memories.sums(arrived, self.step_bytes)
        return np.asarray(moved * self.machine.network.memory_ns_per_byte)


@dataclass(frozen=True, eq=False)
class Places:
    """Places, such as cores, at which several kinds of work are done, by phase.

    Parameters
    ----------
    n_phases, n_places : int
    keys : tuple of ndarray of int64
        For each kind of work, ``phase * n_places + place`` of every item.
    """

    n_phases: int
    n_places: int
    keys: tuple[Ints, ...]

    @classmethod
    def of(cls, n_phases: int, *works: tuple[Ints, Ints]) -> Places:
        """Return the places of several kinds of work, given as pairs of phases and places."""
        has_work = np.zeros(max((int(place.max(initial=0)) for _, place in works)) + 1, np.bool_)
        for _, place in works:
            has_work[place] = True
        number = np.cumsum(has_work) - 1
        n_places = max(1, int(number[-1]) + 1)
        return cls(n_phases, n_places, tuple(phase * n_places + number[at] for phase, at in works))

    def sums(self, *amounts: Floats | Ints) -> Floats:
        """Return the sums of work by phase (row) and place; the last row is for all phases."""
        rows = np.zeros((self.n_phases + 1, self.n_places))
        for key, amount in zip(self.keys, amounts, strict=True):
            sums = np.bincount(key, amount, self.n_phases * self.n_places)
            rows[:-1] += sums.reshape(-1, self.n_places)
        rows[-1] = rows[:-1].sum(axis=0)
        return rows


def _links(network: Network) -> Floats:
    """Return L, o, g, G, O and offload of the links in a NUMA domain, in a node and between."""
    links = network.numa, network.node, network.network
    return np.array(
        [(k.L_ns, k.o_ns, k.g_ns, k.G_ns_per_byte, k.O_ns_per_byte, k.offload) for k in links]
    ).T


def _copied_in(tables: Tables, is_copy: Bools) -> Ints:
    """Return the number of elements that the sender of each message copies to shared memory.

    Receivers cannot read callers' buffers. Elements in them are copied for the first message that
    reads them, unless they are unchanged copies of elements in shared memory.
    """
    messages, steps = tables.messages, tables.steps
    n_elements = np.zeros(len(is_copy), dtype=np.int64)
    if not is_copy.any():
        return n_elements
    sent, row, place = _in_buffers_of_callers(messages.source, messages.read)
    elements, is_read = sent.elements, is_copy[row]
    row, place, elements = row[is_read], place[is_read], elements[is_read]
    _, arrival, arrived = _in_buffers_of_callers(messages.dest, messages.write)
    _, step, made = _in_buffers_of_callers(steps.rank, steps.write)
    # Arrivals of a round are read in later rounds.
    turns = (2 * messages.round[row], 2 * messages.round[arrival] + 1, 2 * steps.round[step] + 1)
    places = np.concatenate((place, arrived, made))
    order = np.lexsort((np.concatenate(turns), places))
    is_as_it_was = is_copy & (csr.lengths_of(messages.combine.indptr) == 0)
    # After a first read, or a copy out of shared memory, no further copy is needed.
    is_there = np.ones(len(places), dtype=np.bool_)
    is_there[len(row) :] = np.append(is_as_it_was[arrival], np.zeros(len(step), dtype=np.bool_))
    is_there = is_there[order]
    is_there[1:] = is_there[:-1] & ~csr.run_starts(places[order])[1:]
    is_there[:1] = False
    copied = order[~is_there]
    copied = copied[copied < len(row)]
    np.add.at(n_elements, row[copied], elements[copied])
    return n_elements


def _in_buffers_of_callers(rank: Ints, pieces: Pieces) -> tuple[Pieces, Ints, Ints]:
    """Return the pieces in callers' buffers, one per row, with their former rows and places."""
    kept = np.flatnonzero(pieces.buffer < Buffer.SCRATCH)
    columns = (np.asarray(column)[kept] for column in pieces.columns())
    alone, row = Pieces(np.arange(len(kept) + 1), *columns), pieces.owner[kept]
    buffer = csr.joint_key(rank[row], alone.buffer, Buffer.SCRATCH)
    return alone, row, csr.joint_key(buffer, alone.offset, SPAN)


def _is_strided(pieces: Pieces) -> Bools:
    """Mark the rows that have several pieces."""
    n = np.diff(pieces.indptr)
    if is_constant(pieces.repeat):
        return np.asarray(n > 1)
    return np.asarray((n > 1) | (csr.row_sums(pieces.indptr, pieces.repeat > 1) > 0))


def _n_pieces(table: MessageTable | LocalTable) -> Ints:
    """Return the number of pieces that every row accesses; repetitions are counted one by one."""
    n = np.zeros(len(table.round), dtype=np.int64)
    for side in (table.read, table.write):
        if is_constant(side.repeat):
            n_of_side = np.diff(side.indptr) * int(side.repeat[:1].sum())
        else:
            n_of_side = csr.row_sums(side.indptr, side.repeat)
        n = np.maximum(n, n_of_side)
    return n


def _pairs_per_adapter(source: Ints, dest: Ints, machine: Machine) -> int:
    """Return the number of pairs of ranks that use the busiest adapter, if adapters count them."""
    if machine.network.nic is None:
        return 0
    pairs = np.unique(source * machine.n_ranks + dest) // machine.n_ranks
    node = Placement.of(machine).node
    return -(-int(np.bincount(node[pairs], minlength=1).max()) // machine.n_lanes)
