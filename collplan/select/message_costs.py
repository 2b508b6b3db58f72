"""Costs of each message and local step of a plan on a machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.lowering.tables import LocalTable, MessageTable, Tables
from collplan.planner.plan.assembly import RankPlaces
from collplan.planner.plan.pieces import Pieces, is_constant
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.topology import fabric_of
from collplan.planner.topology.link_loads import LinkLoads
from collplan.select.wire import Wire
from collplan.specs import Machine, Network

PART: Final = 0.5
SHARED_PART: Final = 1.0
"""Effort, in tasks, of each further piece of memory (`PART`), and addition if ranks share it."""
SPAN: Final = 1 << 40
"""Number that is larger than the number of elements of any buffer."""


@dataclass(eq=False)
class MessageCosts:
    """Costs of each message and local step on a machine, in nanoseconds.

    In phases that share memory, a message inside a node is a copy by its receiver, or a reduction
    if the receiver combines it.

    Parameters
    ----------
    tables : Tables
        Messages and local steps of the plan.
    machine : Machine
        Machine of the ranks.
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
        self.round, self.phase, self.source, self.dest = (
            column.astype(np.int64)
            for column in (messages.round, messages.phase, messages.source, messages.dest)
        )
        self.step_phase, self.step_rank = steps.phase.astype(np.int64), steps.rank.astype(np.int64)
        placement = RankPlaces.of(machine)
        node, domain, lane = placement.node, placement.numa, placement.lane[self.dest]
        self.node, self.lane = node, lane
        self.crosses = node[self.source] != node[self.dest]
        near = np.where(domain[self.source] != domain[self.dest], 1, 0)
        links = _links(network)[:, np.where(self.crosses, 2, near)]
        slowness = np.array(machine.lane_slowness)
        links[3] *= np.where(self.crosses, slowness[lane], 1.0)
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
        self.n_bytes, self.combined_bytes, self.step_bytes = (
            np.asarray(side.elements * self.itemsize, dtype=np.float64)
            for side in (messages.read, messages.combine, steps.write)
        )
        copied = _copied_in(self.tables, self.is_copy) * self.itemsize
        self.copied_bytes = np.asarray(copied, dtype=np.float64)
        links[1:5, self.is_copy] = 0.0  # all but the latency
        self.core_per_byte[self.is_copy & (self.combined_bytes == 0)] = network.copy_ns_per_byte
        self.step_per_byte: Floats = np.where(
            steps.op == Op.COPY, network.copy_ns_per_byte, network.reduce_ns_per_byte
        )
        self.is_read_strided, self.is_write_strided = map(
            _is_strided, (messages.read, messages.write)
        )
        self.is_step_strided = _is_strided(steps.read) | _is_strided(steps.write)

    def _link_loads(self, node: Ints, lane: Ints) -> LinkLoads | None:
        """Return the loads of a topology's links; None without one, or for a sample of ranks."""
        fabric = fabric_of(self.machine) if self.ranks is None else None
        if fabric is None:
            return None
        return LinkLoads.of(fabric, node[self.source], node[self.dest], lane)

    @cached_property
    def is_there(self) -> Bools:
        """Mark the ranks whose messages and steps are all in the tables, shape (n_ranks,)."""
        if self.ranks is None:
            return np.ones(self.machine.n_ranks, np.bool_)
        found = np.zeros(self.machine.n_ranks, np.bool_)
        found[list(self.ranks)] = True
        return found

    @cached_property
    def tasks_there(self) -> tuple[Ints, Ints, float]:
        """Tasks on the ranks of `is_there`: per segment of every message, per piece of every step.

        The third value is the fraction of these ranks among all ranks.
        """
        there = self.is_there
        # A message is a send, a receive, and a reduction if the receiver combines it.
        n_received = 1 * ~self.is_copy + (self.is_copy | (self.combined_bytes > 0))
        of_segment = ~self.is_copy * there[self.source] + n_received * there[self.dest]
        return of_segment, 1 * there[self.step_rank], float(there.mean())

    @cached_property
    def effort_of_parts(self) -> int:
        """Approximate effort that pieces of memory add to compiling, as a number of tasks.

        Every piece of a message or step but the first one adds to the effort.
        """
        pieces = _n_pieces(self.tables.messages), _n_pieces(self.tables.steps)
        n_more, n_more_of_steps = (np.maximum(0, n - 1) for n in pieces)
        n_more = n_more * self.is_there[self.dest]
        effort = PART * float(n_more.sum() + n_more_of_steps[self.is_there[self.step_rank]].sum())
        effort += SHARED_PART * float(n_more[self.is_copy].sum())
        return int(effort / self.is_there.mean())

    @cached_property
    def through_per_byte(self) -> Floats:
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
    node = RankPlaces.of(machine).node
    return -(-int(np.bincount(node[pairs], minlength=1).max()) // machine.n_lanes)
