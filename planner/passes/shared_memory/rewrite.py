"""Rewriting of programs: messages inside nodes become copies out of shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.passes.shared_memory.atoms import Atoms, cut
from collplan.planner.passes.shared_memory.layout import MIRRORED, Room, ScratchAreas, lay_out
from collplan.planner.passes.shared_memory.program import NodeTasks, match_inside
from collplan.planner.passes.shared_memory.values import (
    FOREVER,
    Tasks,
    find_needless,
    find_places,
)
from collplan.planner.plan import pieces
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import COLUMNS, NONE, Buffer, Op, Plan
from collplan.planner.plan.ragged import INTENT
from collplan.planner.plan.tags import Edges, chain_streams, join_edges
from collplan.planner.rewrite.rebuild import become_copies, move_edges, places, rebuild

ROWS_AT_ONCE: Final = 1 << 14
"""Number of rows from which the nodes of a program are rewritten separately."""


def share_messages(program: NodeTasks, is_shared: Bools) -> Plan:
    """Replace messages inside nodes by copies that their receivers execute.

    The data of a sender is staged once in its part of the node's shared buffer, unless it is in
    shared memory already. Scratch that other ranks read is moved there, and data that came out
    of shared memory is read at its origin. If all readers of received data can read it in shared
    memory themselves, the receive is removed.

    Parameters
    ----------
    program : NodeTasks
        Program in canonical order, with all ranks of every node concerned.
    is_shared : ndarray of bool, shape (n_tasks,)
        Marks both ends of the messages to replace.

    Returns
    -------
    Plan
        Plan without these messages, with newly derived dependencies.
    """
    if len(program) <= ROWS_AT_ONCE:
        return _joined([_rewrite(program, is_shared, np.arange(len(program)))])
    parts = (
        _rewrite(program.take(rows), is_shared[rows], rows) for rows in _rows_of_nodes(program)
    )
    return _joined(list(parts))


def _rows_of_nodes(program: NodeTasks) -> Iterator[Ints]:
    """Generate the rows of some nodes at a time, which needs less memory than all of them.

    Nodes share no memory with each other, so each of them can be rewritten alone.
    """
    node = program.plan.rank_node[program.columns["rank"]]
    by_node = np.argsort(node, kind="stable")
    ends = np.cumsum(np.bincount(node, minlength=program.plan.n_nodes))
    begin = 0
    for end in ends:
        if end - begin >= ROWS_AT_ONCE or end == len(program):
            if end > begin:
                yield np.sort(by_node[begin:end])
            begin = end


@dataclass(frozen=True, eq=False)
class _Rewritten:
    """Rewritten tasks of some nodes.

    Parameters
    ----------
    program : NodeTasks
    row : ndarray of int64, shape (n_tasks,)
        Row of each task in the original program.
    shares : ndarray of bool, shape (n_ranks,)
        Whether the node of each rank has shared messages.
    room : Room
        Layout of shared memory and scratch.
    """

    program: NodeTasks
    row: Ints
    shares: Bools
    room: Room


def _joined(parts: Sequence[_Rewritten]) -> Plan:
    """Return the plan of all nodes, with tasks in the order of the program."""
    program = NodeTasks.stack([part.program for part in parts])
    if len(parts) > 1:
        program = program.take(
            np.argsort(np.concatenate([part.row for part in parts]), kind="stable")
        )
    plan, columns = program.plan, program.columns
    chains = chain_streams(*(columns[name] for name in ("op", "rank", "peer", "stream")))
    sizes = np.array(plan.buffer_sizes)
    shared_sizes = np.zeros(plan.n_nodes, dtype=np.int64)
    mirrors = np.full((plan.n_ranks, len(MIRRORED)), NONE, dtype=np.int64)
    for part in parts:
        sizes[part.shares, Buffer.SCRATCH] = part.room.scratch_sizes[part.shares]
        shared_sizes += part.room.shared_sizes
        mirrors = np.maximum(mirrors, part.room.mirrors)
    return rebuild(
        plan,
        program.reads,
        program.writes,
        join_edges(chains, program.intents),
        **columns,
        buffer_sizes=sizes,
        shared_sizes=shared_sizes,
        mirrors=mirrors,
        foreign=None,
    )


@dataclass(frozen=True, eq=False)
class _Traffic:
    """Tasks of some nodes, and the atoms that they access."""

    program: NodeTasks
    tasks: Tasks
    atoms: Atoms

    @classmethod
    def of(cls, program: NodeTasks, is_shared: Bools) -> _Traffic:
        """Return the traffic of a program with some shared messages."""
        sends, recvs = match_inside(program.columns, is_shared)
        sender, receiver = np.full((2, len(program)), NONE, dtype=np.int64)
        sender[recvs], receiver[sends] = sends, recvs
        op, rounds = (np.asarray(program.columns[name], np.int64) for name in ("op", "round"))
        tasks = Tasks(op, rounds, sender, receiver)
        return cls(program, tasks, cut(program, tasks))

    @property
    def signals(self) -> Ints:
        """Return the receives of empty messages, such as those of a barrier."""
        is_empty = np.diff(self.atoms.lives.first) == 0
        return np.flatnonzero((self.tasks.sender >= 0) & is_empty)

    @property
    def shares(self) -> Bools:
        """Mark the ranks of nodes that have shared messages."""
        node = self.program.plan.rank_node
        ranks = self.program.columns["rank"][self.tasks.receiver >= 0]
        return np.isin(node, node[ranks])


@dataclass(frozen=True, eq=False)
class _Scratch:
    """Areas of scratch, and whether each of them moves to shared memory."""

    areas: ScratchAreas
    is_moved: Bools

    @classmethod
    def of(cls, traffic: _Traffic) -> _Scratch:
        """Select the areas with data that their own rank has produced and other ranks read."""
        atoms = traffic.atoms
        areas = ScratchAreas.of(atoms, traffic.program)
        sent = np.flatnonzero(traffic.tasks.receiver[atoms.reads.owner] >= 0)
        atom = atoms.reads.atom[sent]
        first = atoms.lives.origin[atom]
        is_own = (areas.of_atom[atom] >= 0) & (atoms.rank[first] == atoms.rank[atom])
        is_moved = np.zeros(len(areas.size), dtype=bool)
        is_moved[areas.of_atom[atom[is_own]]] = True
        return cls(areas, is_moved)

    @property
    def relocated(self) -> Bools:
        """Mark the atoms in areas that move to shared memory."""
        # Atoms outside all areas have the number -1, which selects the last entry.
        return np.append(self.is_moved, False)[self.areas.of_atom]


@dataclass(frozen=True, eq=False)
class _Sources:
    """Places from which shared data is read.

    Parameters
    ----------
    place : ndarray of int64, shape (n_reads,)
        See `Places`.
    instead : ndarray of int64, shape (n_reads,)
        Read of a shared send whose place is to be read instead; -1 for none.
    is_needless : ndarray of bool, shape (n_tasks,)
        Whether the task is a receive that is removed.
    is_staged : ndarray of bool, shape (n_reads,)
        Whether the data of the read is copied to a slot.
    """

    place: Ints
    instead: Ints
    is_needless: Bools
    is_staged: Bools

    @classmethod
    def of(cls, traffic: _Traffic, relocated: Bools) -> _Sources:
        """Find the places, given the atoms that are in shared memory."""
        tasks, reads, lives = traffic.tasks, traffic.atoms.reads, traffic.atoms.lives
        places = find_places(tasks, reads, lives, relocated)
        is_final = traffic.atoms.buffer < Buffer.SCRATCH
        is_needless, instead = find_needless(tasks, reads, lives, places, is_final)
        senders = tasks.sender[(tasks.sender >= 0) & ~is_needless]
        _, copied = _entries_of(reads.indptr, senders)
        used = places.place[np.concatenate((copied, instead[instead >= 0]))]
        is_staged = np.zeros(len(places.place), dtype=bool)
        is_staged[-1 - used[used < 0]] = True
        return cls(places.place, instead, is_needless, is_staged)


@dataclass(frozen=True, eq=False)
class _Accesses:
    """Atoms or slots that tasks read or write; ``-1 - k`` stands for the slot of read k."""

    n_tasks: int
    owner: Ints
    code: Ints

    def totals(self, count: Ints) -> tuple[Ints, Ints]:
        """Return the number of elements per task, and the number before each access in its task."""
        running = csr.running_total(count)
        first = csr.indptr_of(self.owner, self.n_tasks)
        return np.diff(running[first]), running[:-1] - running[first[self.owner]]


def _rewrite(program: NodeTasks, is_shared: Bools, rows: Ints) -> _Rewritten:
    """Return the rewritten tasks of some nodes, whose rows in the whole program are `rows`."""
    traffic = _Traffic.of(program, is_shared)
    scratch = _Scratch.of(traffic)
    sources = _Sources.of(traffic, scratch.relocated)
    row, reads, writes = _list_tasks(traffic, sources)
    room, slot = _lay_out(traffic, scratch, sources, np.concatenate((reads.code, writes.code)))
    tasks, shares = traffic.tasks, traffic.shares
    columns = {name: program.columns[name][row] for name in COLUMNS}
    become_copies(columns, ((tasks.sender >= 0) | (tasks.receiver >= 0))[row])
    reduces = columns["op"] == Op.REDUCE
    read = _pieces(reads, traffic.atoms, scratch, room, slot, reduces)
    written = _pieces(writes, traffic.atoms, scratch, room, slot, np.zeros_like(reduces))
    # Nodes without shared messages keep their tasks unchanged, because one node's program must
    # not depend on the messages of other nodes.
    is_new = shares[columns["rank"]]
    if len(traffic.signals) or not is_new.all():
        number = np.where(is_new, np.arange(len(row)), len(row) + row)
        written = pieces.stack((written, program.writes)).take(number)
        number[np.isin(row, traffic.signals)] = len(row) + len(program)
        read = pieces.stack((read, program.reads, _LOOK)).take(number)
    rewritten = NodeTasks(columns, read, written, _intents(traffic, row), program.plan)
    return _Rewritten(rewritten, rows[row], shares, room)


def _list_tasks(traffic: _Traffic, sources: _Sources) -> tuple[Ints, _Accesses, _Accesses]:
    """Return the rows that remain, unchanged or as copies, and the data that they access."""
    tasks, reads = traffic.tasks, traffic.atoms.reads
    is_send, is_recv = tasks.receiver >= 0, tasks.sender >= 0
    stages = np.zeros(len(tasks.op), dtype=bool)
    stages[reads.owner[sources.is_staged]] = True
    # An empty message is a signal, of which both ends remain.
    stages |= np.diff(reads.indptr) == 0
    row = np.flatnonzero(np.where(is_send, stages, ~sources.is_needless))
    # The copy of a receiver reads the data of the send in shared memory.
    source = np.where(is_recv, tasks.sender, np.arange(len(is_recv)))[row]
    owner, position = _entries_of(reads.indptr, source)
    place, instead = sources.place, sources.instead
    read = np.where(instead >= 0, place[instead], reads.atom)[position]
    read = np.where(is_recv[row[owner]], place[position], read)
    stages_it, is_staged = is_send[row[owner]], sources.is_staged[position]
    kept, slots = ~stages_it | is_staged, np.flatnonzero(stages_it & is_staged)
    own, written = _entries_of(traffic.atoms.lives.first, row)
    owners = np.concatenate((own, owner[slots]))
    codes = np.concatenate((written, -1 - position[slots]))
    order = np.argsort(owners, kind="stable")
    return (
        row,
        _Accesses(len(row), owner[kept], read[kept]),
        _Accesses(len(row), owners[order], codes[order]),
    )


def _lay_out(
    traffic: _Traffic, scratch: _Scratch, sources: _Sources, touched: Ints
) -> tuple[Room, Ints]:
    """Return the layout of shared memory, and the offset of every staged read.

    `touched` has the atoms and slots that tasks still access.
    """
    program, atoms, areas = traffic.program, traffic.atoms, scratch.areas
    plan = program.plan
    staged = np.flatnonzero(sources.is_staged)
    atom = atoms.reads.atom[staged]
    rank, buffer = atoms.rank[atom], atoms.buffer[atom]
    # A mirror may be the same memory as its buffer, so it holds only final contents of the buffer.
    is_mirrored = (buffer < Buffer.SCRATCH) & (atoms.lives.end[atom] == FOREVER)
    mirrored = np.zeros((plan.n_ranks, len(MIRRORED)), dtype=np.int64)
    homes = (rank[is_mirrored], buffer[is_mirrored])
    mirrored[homes] = plan.buffer_sizes[homes]
    size = np.where(is_mirrored, 0, atoms.size[atom])
    n_slots = np.bincount(rank, size, plan.n_ranks).astype(np.int64)
    area = areas.of_atom[touched[touched >= 0]]
    is_used = np.bincount(area[area >= 0], minlength=len(areas.size)) > 0
    room = lay_out(areas, is_used, scratch.is_moved, mirrored, n_slots, plan)
    slot = np.full(len(sources.place), NONE, dtype=np.int64)
    slot[staged] = room.slots[rank] + csr.group_offsets(rank, size)
    slot[staged[is_mirrored]] = room.mirrors[homes] + atoms.offset[atom[is_mirrored]]
    return room, slot


def _pieces(
    accesses: _Accesses, atoms: Atoms, scratch: _Scratch, room: Room, slot: Ints, reduces: Bools
) -> Pieces:
    """Return accesses as pieces; the two operands of a reduction are kept separate."""
    atom, is_slot, areas = accesses.code.copy(), accesses.code < 0, scratch.areas
    staged = -1 - atom[is_slot]
    atom[is_slot] = atoms.reads.atom[staged]
    area = areas.of_atom[atom]
    in_area = (area >= 0) & ~is_slot
    buffer, offset = atoms.buffer[atom], atoms.offset[atom]
    own = area[in_area]
    buffer[in_area] = np.where(scratch.is_moved[own], int(Buffer.SHARED), int(Buffer.SCRATCH))
    offset[in_area] = (room.area - areas.low)[own] + atoms.address[atom[in_area]]
    buffer[is_slot], offset[is_slot] = Buffer.SHARED, slot[staged]
    count = atoms.size[atom]
    # Each task has two rows: the left operand, or all pieces, and the right operand.
    total, before = accesses.totals(count)
    is_right = reduces[accesses.owner] & (2 * before >= total[accesses.owner])
    halves = np.bincount(2 * accesses.owner + is_right, minlength=2 * accesses.n_tasks)
    both = pieces.contiguous(csr.running_total(halves), buffer, offset, count)
    return both.merged(np.arange(0, 2 * accesses.n_tasks + 1, 2))


def _intents(traffic: _Traffic, row: Ints) -> Edges:
    """Return the stated edges whose ends both remain, and one edge for every signal."""
    program, signals = traffic.program, traffic.signals
    place = places(row, len(program))
    before, after, kind = program.intents
    stream = program.columns["stream"]
    apart = (stream[after] < 0) | (stream[before] != stream[after])
    stated = move_edges((before[apart], after[apart], kind[apart]), place)
    awaited = np.full(len(signals), INTENT, dtype=np.int8)
    return join_edges(stated, (place[traffic.tasks.sender[signals]], place[signals], awaited))


def _entries_of(indptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the index in `rows` and the entry number of all entries of rows, row after row."""
    indptr, taken = csr.take_rows(indptr, rows)
    return csr.row_numbers(indptr), taken


_LOOK = pieces.contiguous(
    np.array([0, 1]), np.array([Buffer.SHARED], dtype=np.int8), np.zeros(1, int), np.zeros(1, int)
)
"""Empty read of shared memory by the receiver of a signal, which shows where the signal is from."""
