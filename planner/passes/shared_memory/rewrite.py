"""A rewritten program: messages inside nodes become copies out of shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.passes.rebuild import become_copies, move_edges, places, rebuild, stack_edges
from collplan.planner.passes.shared_memory.atoms import Atoms, cut
from collplan.planner.passes.shared_memory.layout import MIRRORED, Room, ScratchAreas, lay_out
from collplan.planner.passes.shared_memory.program import Program, match_inside
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

ROWS_AT_ONCE: Final = 1 << 18
"""Rows of a program from which on its nodes are rewritten apart."""


def share_messages(program: Program, is_shared: Bools) -> Plan:
    """Turn messages within nodes into copies their receivers make.

    A sender's data are staged once in its part of the node's shared buffer,
    unless they lie in shared memory already: scratch that others read is moved
    there, and what came out of shared memory is read where it came from. A
    receive whose readers can all read there themselves disappears.

    Parameters
    ----------
    program : Program
        In canonical order, all ranks of every node concerned.
    is_shared : ndarray of bool, shape (n_tasks,)
        Both ends of the messages.

    Returns
    -------
    Plan
        Without those messages; dependencies are derived again.
    """
    parts = [
        _rewrite(program.take(rows), is_shared[rows], rows) for rows in _rows_of_nodes(program)
    ]
    return _joined(program, parts)


def _rows_of_nodes(program: Program) -> Iterator[Ints]:
    """Yield the rows of all nodes; of a large program some nodes at a time, to save memory.

    Nodes share nothing with each other, so each is rewritten as if it were alone.
    """
    if len(program) <= ROWS_AT_ONCE:
        yield np.arange(len(program))
        return
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
    """The rewritten tasks of some nodes.

    Parameters
    ----------
    row : ndarray of int64, shape (n_tasks,)
        The row of the program that each task was.
    columns : dict of ndarray, shape (n_tasks,)
    read, written : Pieces
    intents : Edges
        Between tasks of `row`.
    shares : ndarray of bool, shape (n_ranks,)
        Ranks of nodes in which messages are shared.
    room : Room
    """

    row: Ints
    columns: dict[str, Ints]
    read: Pieces
    written: Pieces
    intents: Edges
    shares: Bools
    room: Room


def _joined(program: Program, parts: Sequence[_Rewritten]) -> Plan:
    """Return the plan of all nodes, its tasks in the program's order."""
    columns, read, written, intents = _in_order(parts)
    chains = chain_streams(*(columns[name] for name in ("op", "rank", "peer", "stream")))
    edges = join_edges(chains, intents)
    plan = program.plan
    sizes = np.array(plan.buffer_sizes)
    shared_sizes = np.zeros(plan.n_nodes, dtype=np.int64)
    mirrors = np.full((plan.n_ranks, len(MIRRORED)), NONE, dtype=np.int64)
    for part in parts:
        sizes[part.shares, Buffer.SCRATCH] = part.room.scratch_sizes[part.shares]
        shared_sizes += part.room.shared_sizes
        mirrors = np.maximum(mirrors, part.room.mirrors)
    return rebuild(
        plan,
        read,
        written,
        edges,
        **columns,
        buffer_sizes=sizes,
        shared_sizes=shared_sizes,
        mirrors=mirrors,
        foreign=None,
    )


def _in_order(parts: Sequence[_Rewritten]) -> tuple[dict[str, Ints], Pieces, Pieces, Edges]:
    """Return the columns, reads, writes and stated edges of all parts' tasks in order."""
    if len(parts) == 1:
        only = parts[0]
        return only.columns, only.read, only.written, only.intents
    order = np.argsort(np.concatenate([part.row for part in parts]), kind="stable")
    columns = {
        name: np.concatenate([part.columns[name] for part in parts])[order] for name in COLUMNS
    }
    read = pieces.stack([part.read for part in parts]).take(order)
    written = pieces.stack([part.written for part in parts]).take(order)
    intents = stack_edges([part.intents for part in parts], [len(part.row) for part in parts])
    return columns, read, written, move_edges(intents, places(order, len(order)))


@dataclass(frozen=True, eq=False)
class _Traffic:
    """Tasks of some nodes, and the atoms they touch."""

    program: Program
    tasks: Tasks
    atoms: Atoms

    @classmethod
    def of(cls, program: Program, is_shared: Bools) -> _Traffic:
        """Return the traffic of a program, of whose messages some are shared."""
        sends, recvs = match_inside(program.columns, is_shared)
        sender, receiver = np.full((2, len(program)), NONE, dtype=np.int64)
        sender[recvs], receiver[sends] = sends, recvs
        op, rounds = (np.asarray(program.columns[name], np.int64) for name in ("op", "round"))
        tasks = Tasks(op, rounds, sender, receiver)
        return cls(program, tasks, cut(program, tasks))

    @property
    def signals(self) -> Ints:
        """Return the receives of messages of nothing, as a barrier's."""
        is_empty = np.diff(self.atoms.lives.first) == 0
        return np.flatnonzero((self.tasks.sender >= 0) & is_empty)

    @property
    def shares(self) -> Bools:
        """Mark the ranks of nodes in which messages are shared."""
        node = self.program.plan.rank_node
        ranks = self.program.columns["rank"][self.tasks.receiver >= 0]
        return np.isin(node, node[ranks])


@dataclass(frozen=True, eq=False)
class _Scratch:
    """Areas of scratch, and which of them move to shared memory."""

    areas: ScratchAreas
    is_moved: Bools

    @classmethod
    def of(cls, traffic: _Traffic) -> _Scratch:
        """Move the areas that hold what a rank itself has made and others read."""
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
        """Mark the atoms that move to shared memory."""
        # The last entry is that of atoms outside all areas, number -1.
        return np.append(self.is_moved, False)[self.areas.of_atom]


@dataclass(frozen=True, eq=False)
class _Sources:
    """Places from which shared data are read.

    Parameters
    ----------
    place : ndarray of int64, shape (n_reads,)
        As of `Places`.
    instead : ndarray of int64, shape (n_reads,)
        The position of a shared send from whose place to read instead, or -1.
    is_needless : ndarray of bool, shape (n_tasks,)
        Receives that disappear.
    is_staged : ndarray of bool, shape (n_reads,)
        Positions whose data are copied to a slot.
    """

    place: Ints
    instead: Ints
    is_needless: Bools
    is_staged: Bools

    @classmethod
    def of(cls, traffic: _Traffic, relocated: Bools) -> _Sources:
        """Find the places, given the atoms that lie in shared memory."""
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
    """Atoms or slots that tasks read or write; ``-1 - k`` is the slot of staged position k."""

    n_tasks: int
    owner: Ints
    code: Ints

    def totals(self, count: Ints) -> tuple[Ints, Ints]:
        """Return the elements of every task, and those of its own before each access."""
        running = csr.running_total(count)
        first = csr.indptr_of(self.owner, self.n_tasks)
        return np.diff(running[first]), running[:-1] - running[first[self.owner]]


def _rewrite(program: Program, is_shared: Bools, rows: Ints) -> _Rewritten:
    """Return the rewritten tasks of some nodes; `rows` are theirs among those of all nodes."""
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
    # Nodes without shared messages keep their tasks: one cannot see from there
    # whether others share.
    is_new = shares[columns["rank"]]
    if len(traffic.signals) or not is_new.all():
        number = np.where(is_new, np.arange(len(row)), len(row) + row)
        written = pieces.stack((written, program.writes)).take(number)
        number[np.isin(row, traffic.signals)] = len(row) + len(program)
        read = pieces.stack((read, program.reads, _LOOK)).take(number)
    return _Rewritten(rows[row], columns, read, written, _intents(traffic, row), shares, room)


def _list_tasks(traffic: _Traffic, sources: _Sources) -> tuple[Ints, _Accesses, _Accesses]:
    """Return the rows that stay, as they are or as copies, and what they read and write."""
    tasks, reads = traffic.tasks, traffic.atoms.reads
    is_send, is_recv = tasks.receiver >= 0, tasks.sender >= 0
    stages = np.zeros(len(tasks.op), dtype=bool)
    stages[reads.owner[sources.is_staged]] = True
    # A message of nothing is a signal: both its ends stay.
    stages |= np.diff(reads.indptr) == 0
    row = np.flatnonzero(np.where(is_send, stages, ~sources.is_needless))
    # What a send reads the copy of its receiver reads in shared memory.
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
    """Return the layout of shared memory, and the offset of every staged position.

    `touched` are the atoms and slots that tasks still access.
    """
    program, atoms, areas = traffic.program, traffic.atoms, scratch.areas
    plan = program.plan
    staged = np.flatnonzero(sources.is_staged)
    atom = atoms.reads.atom[staged]
    rank, buffer = atoms.rank[atom], atoms.buffer[atom]
    # A mirror holds what its buffer holds in the end: the two may be one memory.
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
    """Return accesses as pieces; a reduction's operands are kept apart."""
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
    # Two rows per task: a left operand, or all there is, and a right one.
    total, before = accesses.totals(count)
    is_right = reduces[accesses.owner] & (2 * before >= total[accesses.owner])
    halves = np.bincount(2 * accesses.owner + is_right, minlength=2 * accesses.n_tasks)
    both = pieces.contiguous(csr.running_total(halves), buffer, offset, count)
    return both.merged(np.arange(0, 2 * accesses.n_tasks + 1, 2))


def _intents(traffic: _Traffic, row: Ints) -> Edges:
    """Return the stated edges that still have both ends, and one for every signal."""
    program, signals = traffic.program, traffic.signals
    place = places(row, len(program))
    before, after, kind = program.intents
    stream = program.columns["stream"]
    apart = (stream[after] < 0) | (stream[before] != stream[after])
    stated = move_edges((before[apart], after[apart], kind[apart]), place)
    awaited = np.full(len(signals), INTENT, dtype=np.int8)
    return join_edges(stated, (place[traffic.tasks.sender[signals]], place[signals], awaited))


def _entries_of(indptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the place in `rows` of each entry of these rows, and the entries, row after row."""
    indptr, taken = csr.take_rows(indptr, rows)
    return csr.row_numbers(indptr), taken


_LOOK = pieces.contiguous(
    np.array([0, 1]), np.array([Buffer.SHARED], dtype=np.int8), np.zeros(1, int), np.zeros(1, int)
)
"""The read of a signal's receiver: no elements, but in shared memory, which shows its origin."""
