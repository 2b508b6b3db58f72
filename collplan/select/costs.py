"""Costs of messages and local steps: how long they keep cores, lanes, ports and memory."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.lowering.build import Placement
from collplan.planner.lowering.lower import LocalTable, MessageTable, Tables
from collplan.planner.plan.pieces import Pieces, is_constant
from collplan.planner.plan.plan import Buffer, Op
from collplan.specs import Machine, Network

Floats = npt.NDArray[np.float64]

PART: Final = 0.1
SHARED_PART: Final = 0.35
"""Effort of a piece of memory, and of one that ranks of a node share, in tasks."""
NOT_HIDDEN: Final = 0.5
"""Share of a segmented phase's time that does not overlap with other phases."""
SPAN: Final = 1 << 40
"""More elements than any buffer has."""
WINDOW: Final = 0.75
"""Latencies that each further segment waits for, since few requests are in flight."""


@dataclass(frozen=True, eq=False)
class Costs:
    """Messages and local steps of a plan with their costs on a machine, in nanoseconds.

    Parameters
    ----------
    machine : Machine
    ranks : tuple of int or None
        All messages and steps of these ranks are there, and some of others; None for all.
    n_rounds : int
    round, phase, source, dest : ndarray of int64, shape (n_messages,)
    n_bytes, combined_bytes, n_pieces : ndarray of int64
        What every message carries, what is reduced of it when it has come, and between
        how many pieces of memory it moves.
    latency, overhead, gap, per_byte, core_per_byte : ndarray of float64
        L, o, g, G and O of every message's link; of a copy in shared memory, the
        last is the copy's.
    crosses, keeps_receiver, is_copy : ndarray of bool
        Whether it leaves its node; whether G keeps the receiver's core, as of links
        without offload; whether its receiver reads it in memory that the two share.
    lane_out, lane_in : ndarray of int64
        Lanes of the nodes that send and receive it, where it crosses.
    late_ns, send_more_ns, receive_more_ns : ndarray of float64
        What some machines add to its latency, for handshakes and adapters, and to the
        time of the cores at its ends, for strides, packets, and copies into memory that
        its receiver can read.
    step_phase, step_rank, step_bytes, step_pieces : ndarray of int64, shape (n_steps,)
    step_ns, step_more_ns : ndarray of float64
    """

    machine: Machine
    ranks: tuple[int, ...] | None
    n_rounds: int
    round: Ints
    phase: Ints
    source: Ints
    dest: Ints
    n_bytes: Ints
    combined_bytes: Ints
    n_pieces: Ints
    latency: Floats
    overhead: Floats
    gap: Floats
    per_byte: Floats
    core_per_byte: Floats
    crosses: Bools
    keeps_receiver: Bools
    is_copy: Bools
    lane_out: Ints
    lane_in: Ints
    late_ns: Floats
    send_more_ns: Floats
    receive_more_ns: Floats
    step_phase: Ints
    step_rank: Ints
    step_bytes: Ints
    step_pieces: Ints
    step_ns: Floats
    step_more_ns: Floats

    @classmethod
    def of(
        cls,
        tables: Tables,
        machine: Machine,
        itemsize: int,
        shared_phases: Bools,
        ranks: tuple[int, ...] | None = None,
    ) -> Costs:
        """Look up what every message and step costs on `machine`.

        Messages inside nodes, in phases marked as shared, are copies that their
        receivers make, or reductions where they combine what comes.
        """
        messages, steps, network = tables.messages, tables.steps, machine.network
        placement = Placement.of(machine)
        domain = placement.numa
        source, dest = (end.astype(np.int64) for end in (messages.source, messages.dest))
        node, lane = placement.node, placement.lane[dest]
        crosses = node[source] != node[dest]
        kind = np.where(crosses, 2, np.where(domain[source] != domain[dest], 1, 0))
        links = _links(network)[:, kind]
        latency, overhead, gap, per_byte, core_per_byte, offload = links
        is_copy = ~crosses & shared_phases[messages.phase]
        n_bytes, combined = (
            np.asarray(side.elements) * itemsize for side in (messages.read, messages.combine)
        )
        wire = Wire(network, _pairs_per_adapter(source[crosses], dest[crosses], machine))
        strided_ns, packets_ns = network.strided_ns_per_byte, crosses * wire.packets_ns(n_bytes)
        links[1:5, is_copy] = 0.0  # all but the latency
        core_per_byte[is_copy & (combined == 0)] = network.copy_ns_per_byte
        return cls(
            machine=machine,
            ranks=ranks,
            n_rounds=1 + max(int(one.round.max(initial=-1)) for one in (messages, steps)),
            round=messages.round.astype(np.int64),
            phase=messages.phase,
            source=source,
            dest=dest,
            n_bytes=n_bytes,
            combined_bytes=combined,
            n_pieces=_n_pieces(messages),
            latency=latency,
            overhead=overhead,
            gap=gap,
            per_byte=per_byte,
            core_per_byte=core_per_byte,
            crosses=crosses,
            keeps_receiver=(offload == 0) & ~is_copy,
            is_copy=is_copy,
            lane_out=node[source] * machine.lanes + lane,
            lane_in=node[dest] * machine.lanes + lane,
            late_ns=crosses * (wire.asking_ns(n_bytes) + wire.read_ns),
            send_more_ns=packets_ns
            + strided_ns * n_bytes * _is_strided(messages.read)
            + network.copy_ns_per_byte * itemsize * _copied_in(messages, is_copy),
            receive_more_ns=packets_ns + strided_ns * n_bytes * _is_strided(messages.write),
            **_costs_of_steps(steps, network, itemsize),
        )

    @cached_property
    def by_phase(self) -> dict[int, Costs]:
        """Costs of every phase alone."""
        found = {}
        for phase in np.union1d(self.phase, self.step_phase).tolist():
            sent, done = self.phase == phase, self.step_phase == phase
            rows = {}
            for field in fields(self)[3:]:
                column = getattr(self, field.name)
                rows[field.name] = column[done if field.name.startswith("step") else sent]
            found[phase] = replace(self, **rows)
        return found

    def n_tasks(self, segment: int | None) -> int:
        """Estimate the number of tasks of the whole plan, in segments of `segment` bytes."""
        n_segments = pieces(self.n_bytes, segment)
        # A send, a receive, and a reduction where what comes is combined.
        of_sender = n_segments * ~self.is_copy
        of_receiver = n_segments * (~self.is_copy * 1 + (self.is_copy | (self.combined_bytes > 0)))
        n_pieces = pieces(self.step_bytes, segment)
        if self.ranks is None:
            return int(of_sender.sum() + of_receiver.sum() + n_pieces.sum())
        n_ranks = self.machine.n_ranks
        there = np.zeros(n_ranks, dtype=np.bool_)
        there[list(self.ranks)] = True
        n = of_sender[there[self.source]].sum() + of_receiver[there[self.dest]].sum()
        n += n_pieces[there[self.step_rank]].sum()
        return int(n * n_ranks / len(self.ranks))

    def effort_of_parts(self) -> int:
        """Return about how much the pieces of memory add to the effort of compiling, in tasks.

        Messages and steps move between pieces, and shared memory is cut wherever some
        piece begins or ends.
        """
        n_ranks, ranks = self.machine.n_ranks, self.ranks or range(self.machine.n_ranks)
        there = np.isin(self.dest, ranks)
        steps = np.isin(self.step_rank, ranks)
        n_pieces = np.concatenate((self.n_pieces[there], self.step_pieces[steps]))
        effort = PART * float(np.maximum(0, n_pieces - 1).sum())
        sizes = self.n_bytes / np.maximum(1, self.n_pieces)
        if self.is_copy.any() and sizes.any():
            least = np.percentile(sizes[sizes > 0], 5)
            effort += SHARED_PART * float(self.n_bytes[there & self.is_copy].sum()) / least
        return int(effort * n_ranks / len(ranks))

    def estimate_ns(self, segment: int | None) -> float:
        """Estimate the time of the plan, in segments of `segment` bytes.

        Phases follow each other. A phase takes as long as its busiest lane, core or
        memory, and L + o per round; or as long as the longest messages of its rounds,
        one after another. In segments phases overlap, one segment per round fills the
        pipeline, and each further segment waits for `WINDOW` latencies.
        """
        longest = self.n_bytes if segment is None else np.minimum(self.n_bytes, segment)
        waits, through = np.zeros((2, self.n_rounds))
        latency = self.latency + self.late_ns + 2 * self.overhead
        np.maximum.at(waits, self.round, latency - self.overhead)
        both = np.where(
            self.crosses,
            np.maximum(self.per_byte, self.core_per_byte),
            self.per_byte + self.core_per_byte,
        )
        both += (self.combined_bytes > 0) * self.machine.network.reduce_ns_per_byte
        np.maximum.at(through, self.round, latency + longest * both)
        phase_of = np.zeros(self.n_rounds, dtype=np.int64)
        phase_of[self.round] = self.phase
        if self.ranks is not None:
            # Rounds in which these ranks do nothing are like the last before in which they do.
            seen = np.zeros(self.n_rounds, dtype=np.int64)
            seen[self.round] = self.round
            seen = np.maximum.accumulate(seen)
            waits, through, phase_of = waits[seen], through[seen], phase_of[seen]
        busy = {
            phase: costs.busiest_ns(segment, is_estimate=True)
            for phase, costs in self.by_phase.items()
        }
        if segment is None:
            return sum(
                max(busy_ns + float(waits[own].sum()), float(through[own].sum()))
                for busy_ns, own in ((ns, phase_of == phase) for phase, ns in busy.items())
            )
        together_ns = NOT_HIDDEN * sum(busy.values()) + (1 - NOT_HIDDEN) * self.busiest_ns(segment)
        # Nothing hides what one core or lane does in several phases.
        together_ns = max(together_ns, self.busiest_ns(segment, is_estimate=True))
        n_more = int(pieces(self.n_bytes, segment).max(initial=1)) - 1
        return together_ns + float(through.sum()) + n_more * WINDOW * float(latency.max(initial=0))

    def busiest_ns(self, segment: int | None, *, is_estimate: bool = False) -> float:
        """Return how long the busiest lane, port, core or memory is held, whatever the order.

        Of a message of s bytes a lane takes g + (s - 1)·G at either end, inside a
        node a port of either rank as much; a core o + (s - 1)·O where it is sent
        and, for O the greater of O and G unless an adapter writes to memory itself,
        where it comes; besides what copies and reductions take, less than a
        nanosecond of each lost to rounding. Processors that cores share are held as
        long as cores are. Of the last message a lane's g may go on when all is done,
        beyond the receiver's o; the first bytes pass at once, as a burst. What is read
        in shared memory costs no more for sure than the reductions that read it.
        What only some plans pay counts in an estimate: copies, `send_more_ns`, and so on.
        """
        network, n_ranks = self.machine.network, self.machine.n_ranks
        n_segments, crosses = pieces(self.n_bytes, segment), self.crosses
        steps = np.maximum(0, self.n_bytes - n_segments)
        core_ns = np.where(self.is_copy, 0.0, self.core_per_byte)
        taken_ns = self.core_per_byte if is_estimate else core_ns
        taken_ns = np.where(self.keeps_receiver, np.maximum(taken_ns, self.per_byte), taken_ns)
        reduces = np.maximum(0, network.reduce_ns_per_byte * self.combined_bytes - n_segments)
        own = n_segments * self.overhead
        # Of nothing, bincount makes integers.
        cores = np.zeros(n_ranks)
        cores += np.bincount(self.source, own + steps * core_ns, n_ranks)
        cores += np.bincount(self.dest, own + steps * taken_ns + reduces, n_ranks)
        step_ns = np.maximum(0, self.step_ns - pieces(self.step_bytes, segment))
        cores += np.bincount(self.step_rank, step_ns, n_ranks)
        if is_estimate:
            cores += np.bincount(self.source, self.send_more_ns, n_ranks)
            cores += np.bincount(self.dest, self.receive_more_ns, n_ranks)
            cores += np.bincount(self.step_rank, self.step_more_ns, n_ranks)
        n_processors = min(n_ranks, network.processors or n_ranks)
        held = [cores, cores.sum(keepdims=True) / n_processors, self._memories_ns()]
        wire = n_segments * self.gap + steps * self.per_byte
        after_ns = float((self.gap - self.overhead).max(initial=0.0))
        burst_ns = network.burst_bytes * network.network.G_ns_per_byte
        for lane, rank in ((self.lane_out, self.source), (self.lane_in, self.dest)):
            held.append(np.bincount(lane[crosses], wire[crosses]) - after_ns - burst_ns)
            held.append(np.bincount(rank[~crosses], wire[~crosses]) - after_ns)
        return max(float(busy.max(initial=0.0)) for busy in held)

    def _memories_ns(self) -> Floats:
        """Return how long bytes that are copied, reduced or come keep every node's memory."""
        machine, node = self.machine, Placement.of(self.machine).node
        arrived = self.n_bytes * ~(self.crosses | self.is_copy) + self.combined_bytes
        moved = np.zeros(machine.nodes)
        moved += np.bincount(node[self.dest], arrived, machine.nodes)
        moved += np.bincount(node[self.step_rank], self.step_bytes, machine.nodes)
        return np.asarray(moved * machine.network.memory_ns_per_byte)


def _costs_of_steps(steps: LocalTable, network: Network, itemsize: int) -> dict[str, Any]:
    """Return the columns of local steps."""
    n_bytes = np.asarray(steps.write.elements) * itemsize
    is_copy = steps.op == Op.COPY
    per_byte = np.where(is_copy, network.copy_ns_per_byte, network.reduce_ns_per_byte)
    is_strided = _is_strided(steps.read) | _is_strided(steps.write)
    return {
        "step_phase": steps.phase,
        "step_rank": steps.rank.astype(np.int64),
        "step_bytes": n_bytes,
        "step_pieces": _n_pieces(steps),
        "step_ns": np.asarray(n_bytes * per_byte, dtype=np.float64),
        "step_more_ns": network.strided_ns_per_byte * n_bytes * is_strided,
    }


def _links(network: Network) -> Floats:
    """Return L, o, g, G, O and whether it offloads, of links in a domain, a node and between."""
    links = network.numa, network.node, network.network
    return np.array(
        [(k.L_ns, k.o_ns, k.g_ns, k.G_ns_per_byte, k.O_ns_per_byte, k.offload) for k in links]
    ).T


def _copied_in(messages: MessageTable, is_copy: Bools) -> Ints:
    """Return how many elements senders copy to shared memory, per message.

    Receivers cannot read the buffers of callers. What lies there from the beginning is
    copied for the first message that reads it; what has come by messages is shared already.
    """
    n_elements = np.zeros(len(is_copy), dtype=np.int64)
    if not is_copy.any():
        return n_elements
    # Messages are in the order of their rounds: the first of a place is the earliest.
    sent, row, place = _in_buffers_of_callers(messages.source, messages.read)
    is_read = is_copy[row]
    place, first = np.unique(place[is_read], return_index=True)
    row, elements = row[is_read][first], sent.elements[is_read][first]
    _, arrival, written = _in_buffers_of_callers(messages.dest, messages.write)
    written, first = np.unique(written, return_index=True)
    since = messages.round[arrival[first]]
    known = np.searchsorted(written, place)
    was_there = np.ones(len(place), dtype=np.bool_)
    found = np.flatnonzero(np.isin(place, written, assume_unique=True))
    was_there[found] = since[known[found]] >= messages.round[row[found]]
    np.add.at(n_elements, row[was_there], elements[was_there])
    return n_elements


def _in_buffers_of_callers(rank: Ints, pieces: Pieces) -> tuple[Pieces, Ints, Ints]:
    """Return the pieces in callers' buffers, one per row, with their old rows and their places."""
    kept = np.flatnonzero(pieces.buffer < Buffer.SCRATCH)
    columns = (np.asarray(column)[kept] for column in pieces.columns())
    alone, row = Pieces(np.arange(len(kept) + 1), *columns), pieces.owner[kept]
    buffer = csr.joint_key(rank[row], alone.buffer, Buffer.SCRATCH)
    return alone, row, csr.joint_key(buffer, alone.offset, SPAN)


def _is_strided(pieces: Pieces) -> Bools:
    """Mark the rows of more pieces than one."""
    n = np.diff(pieces.indptr)
    if is_constant(pieces.repeat):
        return np.asarray(n > 1)
    return np.asarray((n > 1) | (csr.row_sums(pieces.indptr, pieces.repeat > 1) > 0))


def _n_pieces(table: MessageTable | LocalTable) -> Ints:
    """Return how many pieces every row reads or writes, repetitions one by one."""
    n = np.zeros(len(table.round), dtype=np.int64)
    for side in (table.read, table.write):
        if is_constant(side.repeat):
            n_of_side = np.diff(side.indptr) * int(side.repeat[:1].sum())
        else:
            n_of_side = csr.row_sums(side.indptr, side.repeat)
        n = np.maximum(n, n_of_side)
    return n


def _pairs_per_adapter(source: Ints, dest: Ints, machine: Machine) -> int:
    """Return how many pairs of ranks talk over the busiest adapter, if adapters count them."""
    if machine.network.nic is None:
        return 0
    pairs = np.unique(source * machine.n_ranks + dest) // machine.n_ranks
    node = Placement.of(machine).node
    return -(-int(np.bincount(node[pairs], minlength=1).max()) // machine.lanes)


def pieces(n_bytes: Ints, size: int | None) -> Ints:
    """Return into how many segments of `size` bytes messages or steps are cut."""
    return np.ones_like(n_bytes) if size is None else np.maximum(1, -(-n_bytes // size))


@dataclass(frozen=True)
class Wire:
    """Costs of messages between nodes on a network whose adapters cache queue pairs.

    Parameters
    ----------
    network : Network
    n_pairs : int
        Pairs of ranks that talk over the busiest adapter.
    """

    network: Network
    n_pairs: int = 0

    @property
    def latency_ns(self) -> float:
        """Latency of a message: o + L, and reading its queue pair."""
        link = self.network.network
        return link.o_ns + link.L_ns + self.read_ns

    @property
    def burst_ns(self) -> float:
        """Time of an idle lane's first bytes, which pass at once."""
        return self.network.burst_bytes * self.network.network.G_ns_per_byte

    def core_ns(self, n_bytes: Floats) -> Floats:
        """Return how long a message keeps the core at either end, whoever moves its bytes."""
        link = self.network.network
        works = link.o_ns + np.maximum(n_bytes - 1, 0) * link.O_ns_per_byte
        return np.asarray(works + self.packets_ns(n_bytes))

    def packets_ns(self, n_bytes: Floats | Ints) -> Floats:
        """Return how long further packets keep the core at either end, if it makes them."""
        nic = self.network.nic
        if nic is None or nic.transport != "ud":
            return np.zeros(len(n_bytes))
        return np.asarray((np.maximum(1, np.ceil(n_bytes / nic.packet_bytes)) - 1) * nic.packet_ns)

    def arrival_ns(self, n_bytes: Floats) -> Floats:
        """Return how long a message keeps the core that receives it."""
        link, works = self.network.network, self.core_ns(n_bytes)
        if link.offload:
            return works
        return np.maximum(works, link.o_ns + np.maximum(n_bytes - 1, 0) * link.G_ns_per_byte)

    def lane_ns(self, n_bytes: Floats) -> Floats:
        """Return how long a message keeps a lane at either end."""
        link = self.network.network
        return np.asarray(link.g_ns + np.maximum(n_bytes - 1, 0) * link.G_ns_per_byte)

    @property
    def reading_ns(self) -> float:
        """Time for which a message's queue pair occupies the sending lane."""
        nic = self.network.nic
        return 0.0 if nic is None else self.read_ns / nic.reads_at_once

    def asking_ns(self, n_bytes: Floats | Ints) -> Floats:
        """Return how long a message above the eager limit asks before it sets out."""
        link = self.network.network
        asks = self.network.handshake & (n_bytes > self.network.eager_limit_bytes)
        return np.asarray(np.where(asks, 2 * (link.o_ns + link.L_ns), 0.0))

    @property
    def read_ns(self) -> float:
        """Return how long an adapter reads a message's queue pair, if it does not hold it."""
        nic = self.network.nic
        if nic is None:
            return 0.0
        if nic.transport == "dc":
            return nic.reconnect_ns
        is_missing = nic.transport == "rc" and self.n_pairs > nic.connections
        return nic.miss_ns if is_missing else 0.0
