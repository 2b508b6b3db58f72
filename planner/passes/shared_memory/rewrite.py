"""Write a program anew: messages inside a node become copies out of shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.csr import inverse, row_numbers, running_total, take_rows
from collplan.planner.passes.shared_memory.atoms import Atoms, Positions, cut
from collplan.planner.passes.shared_memory.kernels import (
    FOREVER,
    find_needless,
    find_places,
    number_values,
)
from collplan.planner.passes.shared_memory.layout import MIRRORED, Room, ScratchAreas, lay_out
from collplan.planner.passes.shared_memory.program import Program, match_inside
from collplan.planner.plan import pieces as csr
from collplan.planner.plan.hazards import derive_dependencies
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import COLUMNS, INTENT, NONE, Buffer, Op, Plan
from collplan.planner.plan.tags import Edges, chain_streams, join_edges

ROWS_AT_ONCE: Final = 1 << 14
"""Rows of a program from which on its nodes are rewritten apart."""
_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


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
        Without those messages; dependencies are derived anew.
    """
    parts = []
    for rows in _rows_of_nodes(program):
        own = program.take(rows)
        sends, recvs = match_inside(own.columns, is_shared[rows])
        atoms = cut(own, sends, recvs)
        parts.append(_Sharing(own, sends, recvs, atoms).rewritten(rows))
    return _joined(program, parts)


def _rows_of_nodes(program: Program) -> Iterator[Ints]:
    """Yield the rows of all nodes, some nodes at a time, whose data a processor's cache may hold.

    Nodes share nothing with each other, so each is rewritten as if it were alone.
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
    """What some nodes' tasks became.

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
    begins = running_total([len(part.row) for part in parts])
    order = np.argsort(np.concatenate([_NO_ROWS, *(part.row for part in parts)]), kind="stable")
    place = inverse(order)
    columns = {
        name: np.concatenate([column[:0], *(part.columns[name] for part in parts)])[order]
        for name, column in program.columns.items()
    }
    nothing = program.reads.take(_NO_ROWS)
    read = csr.stack([nothing, *(part.read for part in parts)]).take(order)
    written = csr.stack([nothing, *(part.written for part in parts)]).take(order)
    before, after, kind = (
        np.concatenate(columns_of)
        for columns_of in zip(
            (_NO_ROWS, _NO_ROWS, np.zeros(0, dtype=np.int8)),
            *(_moved(part.intents, begin) for part, begin in zip(parts, begins, strict=False)),
            strict=True,
        )
    )
    intents = place[before], place[after], kind
    chains = chain_streams(*(columns[name] for name in ("op", "rank", "peer", "stream")))
    edges = join_edges(chains, intents)
    read_extents, write_extents, patterns = csr.to_extents(read, written)
    plan = program.plan
    sizes = np.array(program.buffer_sizes)
    shared_sizes = np.zeros(plan.n_nodes, dtype=np.int64)
    mirrors = np.full((plan.n_ranks, len(MIRRORED)), NONE, dtype=np.int64)
    for part in parts:
        sizes[part.shares, Buffer.SCRATCH] = part.room.scratch_sizes[part.shares]
        shared_sizes += part.room.shared_sizes
        mirrors = np.maximum(mirrors, part.room.mirrors)
    return plan.replace(
        **columns,
        reads=read_extents,
        writes=write_extents,
        patterns=patterns,
        deps=derive_dependencies(columns["rank"], read, written, plan.rank_node, edges),
        buffer_sizes=sizes,
        shared_sizes=shared_sizes,
        mirrors=mirrors,
        only_rank=None,
        foreign=None,
    )


def _moved(edges: Edges, begin: int) -> Edges:
    """Return edges between rows of which the first is row `begin` of all."""
    before, after, kind = edges
    return before + begin, after + begin, kind


class _Sharing:
    """Decides what lies where, then writes the tasks."""

    def __init__(self, program: Program, sends: Ints, recvs: Ints, atoms: Atoms) -> None:
        self.program, self.atoms = program, atoms
        n, n_atoms = len(program), len(atoms.edges) - 1
        self.sender, self.receiver = np.full((2, n), NONE, dtype=np.int64)
        self.sender[recvs], self.receiver[sends] = sends, recvs
        self.rank = np.asarray(program.columns["rank"], dtype=np.int64)
        self.op = np.asarray(program.columns["op"], dtype=np.int64)
        self.n_atoms = n_atoms
        # Messages of nothing, as a barrier's, by their receives.
        self.signals = recvs[np.diff(atoms.writes.indptr)[recvs] == 0]
        self._find_buffers()
        node = program.plan.rank_node
        self.shares = np.isin(node, node[self.rank[sends]])
        self.found, self.end, self.origin = number_values(
            self.op, self.sender, *_columns(atoms.reads), *_columns(atoms.writes), n_atoms
        )
        self._relocate()
        self._place()

    def _find_buffers(self) -> None:
        """Find every atom's rank, buffer and offset."""
        own = self.atoms.base[:, : Buffer.SHARED].ravel()
        # Of empty buffers that begin at one address the last is meant.
        flat = np.searchsorted(own, self.atoms.edges[:-1], side="right") - 1
        self.atom_rank, self.atom_buffer = np.divmod(flat, int(Buffer.SHARED))
        self.atom_offset = self.atoms.edges[:-1] - own[flat]

    def _relocate(self) -> None:
        """Move scratch areas to shared memory that hold a rank's own values others read."""
        atoms, reads = self.atoms, self.atoms.reads
        blocks = [self._scratch_blocks(p) for p in (self.program.reads, self.program.writes)]
        self.areas = ScratchAreas.of(
            atoms,
            self.atom_rank,
            self.atom_buffer == Buffer.SCRATCH,
            tuple(np.concatenate(side) for side in zip(*blocks, strict=True)),  # type: ignore[arg-type]
        )
        sent = np.flatnonzero(self.receiver[reads.owner] >= 0)
        made_in = np.concatenate((np.arange(self.n_atoms), atoms.writes.atom))
        atom, first = reads.atom[sent], made_in[self.origin[self.found[sent]]]
        is_own = (self.areas.of_atom[atom] >= 0) & (self.atom_rank[first] == self.atom_rank[atom])
        self.is_moved = np.zeros(len(self.areas.size), dtype=bool)
        self.is_moved[self.areas.of_atom[atom[is_own]]] = True
        self.relocated = np.zeros(self.n_atoms, dtype=bool)
        inside = self.areas.of_atom >= 0
        self.relocated[inside] = self.is_moved[self.areas.of_atom[inside]]

    def _scratch_blocks(self, pieces: Pieces) -> tuple[Ints, Ints]:
        row, buffer, low, high = pieces.blocks()
        own = (buffer == Buffer.SCRATCH) & (high > low)
        start = self.atoms.base[self.rank[row[own]], Buffer.SCRATCH]
        return start + low[own], start + high[own]

    def _place(self) -> None:
        """Decide from where everybody reads, what is staged, and who need not receive."""
        reads, writes = (_columns(side) for side in (self.atoms.reads, self.atoms.writes))
        values = (self.found, self.end, self.origin)
        self.place, until, needed = find_places(
            self.op, self.sender, self.receiver, self.relocated, self.n_atoms,
            *reads, *writes, *values,
        )  # fmt: skip
        self.is_needless, self.instead = find_needless(
            self.op, np.asarray(self.program.columns["round"], dtype=np.int64),
            self.sender, self.receiver, self.atom_buffer[writes[1]] < Buffer.SCRATCH, self.n_atoms,
            *reads, writes[0], self.atoms.writes.owner, self.found, self.end, until, needed,
        )  # fmt: skip
        kept = np.flatnonzero((self.sender >= 0) & ~self.is_needless)
        _, copied = _positions_of(self.atoms.reads.indptr, self.sender[kept])
        used = np.concatenate((self.place[copied], self.place[self.instead[self.instead >= 0]]))
        self.is_staged = np.zeros(len(self.place), dtype=bool)
        self.is_staged[-1 - used[used < 0]] = True

    def rewritten(self, rows: Ints) -> _Rewritten:
        """Return the tasks anew; `rows` are the program's among those of all nodes."""
        row, reads, writes = self._tasks()
        room, slot = self._room(reads, writes)
        is_copy = ((self.sender >= 0) | (self.receiver >= 0))[row]
        columns = {name: self.program.columns[name][row] for name in COLUMNS}
        columns["op"] = np.where(is_copy, Op.COPY, columns["op"])
        for name in ("peer", "tag", "stream", "lane"):
            columns[name] = np.where(is_copy, NONE, columns[name])
        read = self._pieces(reads, room, slot, columns["op"] == Op.REDUCE)
        written = self._pieces(writes, room, slot, np.zeros(len(row), dtype=bool))
        # Nodes without shared messages keep their tasks: one cannot see from there
        # whether others share.
        number = np.where(self.shares[columns["rank"]], np.arange(len(row)), len(row) + row)
        written = csr.stack((written, self.program.writes)).take(number)
        number[np.isin(row, self.signals)] = len(row) + len(self.program)
        read = csr.stack((read, self.program.reads, _LOOK)).take(number)
        intents = self._intents(row)
        return _Rewritten(rows[row], columns, read, written, intents, self.shares, room)

    def _tasks(self) -> tuple[Ints, _Places, _Places]:
        """Return the rows that stay, as they are or as copies, and what they read and write."""
        reads, writes = self.atoms.reads, self.atoms.writes
        is_send, is_recv = self.receiver >= 0, self.sender >= 0
        stages = np.zeros(len(self.op), dtype=bool)
        stages[reads.owner[self.is_staged]] = True
        # A message of nothing is a signal: both its ends stay.
        stages |= np.diff(reads.indptr) == 0
        row = np.flatnonzero(np.where(is_send, stages, ~self.is_needless))
        # What a send reads the copy of its receiver reads in shared memory.
        owner, position = _positions_of(reads.indptr, np.where(is_recv, self.sender, np.arange(
            len(self.op)))[row])  # fmt: skip
        read = np.where(self.instead >= 0, self.place[self.instead], reads.atom)[position]
        read = np.where(is_recv[row[owner]], self.place[position], read)
        stages_it = is_send[row[owner]]
        kept = ~stages_it | self.is_staged[position]
        slots = np.flatnonzero(stages_it & kept)
        own, written = _positions_of(writes.indptr, row)
        owners = np.concatenate((own, owner[slots]))
        places = np.concatenate((writes.atom[written], -1 - position[slots]))
        order = np.argsort(owners, kind="stable")
        return (
            row,
            _Places(len(row), owner[kept], read[kept]),
            _Places(len(row), owners[order], places[order]),
        )

    def _room(self, reads: _Places, writes: _Places) -> tuple[Room, Ints]:
        """Return what lies where in shared memory, and the offset of every staged position."""
        plan = self.program.plan
        staged = np.flatnonzero(self.is_staged)
        atom = self.atoms.reads.atom[staged]
        rank, buffer = self.atom_rank[atom], self.atom_buffer[atom]
        # A mirror holds what its buffer holds in the end: the two may be one memory.
        is_mirrored = (buffer < Buffer.SCRATCH) & (self.end[self.found[staged]] == FOREVER)
        mirrored = np.zeros((plan.n_ranks, len(MIRRORED)), dtype=np.int64)
        places = (rank[is_mirrored], buffer[is_mirrored])
        mirrored[places] = self.program.buffer_sizes[places]
        size = np.where(is_mirrored, 0, self.atoms.size[atom])
        by_rank = np.argsort(rank, kind="stable")
        begin = running_total(size[by_rank])
        first = begin[np.searchsorted(rank[by_rank], np.arange(plan.n_ranks + 1))]
        touched = np.concatenate((reads.code, writes.code))
        area = self.areas.of_atom[touched[touched >= 0]]
        is_used = np.bincount(area[area >= 0], minlength=len(self.areas.size)) > 0
        room = lay_out(
            self.areas, is_used, self.is_moved, mirrored, np.diff(first), plan.rank_node,
            plan.n_nodes, plan.itemsize,
        )  # fmt: skip
        slot = np.full(len(self.place), NONE, dtype=np.int64)
        slot[staged[by_rank]] = room.slots[rank[by_rank]] + begin[:-1] - first[rank[by_rank]]
        places = (rank[is_mirrored], buffer[is_mirrored])
        slot[staged[is_mirrored]] = room.mirrors[places] + self.atom_offset[atom[is_mirrored]]
        return room, slot

    def _pieces(self, places: _Places, room: Room, slot: Ints, reduces: Bools) -> Pieces:
        """Return places as pieces; a reduction's operands are kept apart."""
        atom, is_slot = places.code.copy(), places.code < 0
        staged = -1 - atom[is_slot]
        atom[is_slot] = self.atoms.reads.atom[staged]
        area = self.areas.of_atom[atom]
        in_area = (area >= 0) & ~is_slot
        buffer, offset = self.atom_buffer[atom], self.atom_offset[atom]
        buffer[in_area] = np.where(
            self.is_moved[area[in_area]], int(Buffer.SHARED), int(Buffer.SCRATCH)
        )
        offset[in_area] = (room.area - self.areas.low)[area[in_area]]
        offset[in_area] += self.atoms.edges[atom[in_area]]
        buffer[is_slot], offset[is_slot] = Buffer.SHARED, slot[staged]
        count = self.atoms.size[atom]
        # Two rows a task: a left operand, or all there is, and a right one.
        total, before = places.totals(count)
        is_right = reduces[places.owner] & (2 * before >= total[places.owner])
        halves = np.bincount(2 * places.owner + is_right, minlength=2 * places.n_tasks)
        both = csr.contiguous(running_total(halves), buffer, offset, count)
        return both.merged(np.arange(0, len(both) + 1, 2))

    def _intents(self, row: Ints) -> Edges:
        """Return the stated edges that still have both ends, and one for every signal."""
        place = np.full(len(self.program), NONE, dtype=np.int64)
        place[row] = np.arange(len(row))
        before, after, kind = self.program.intents
        stream = self.program.columns["stream"]
        chains = (stream[after] >= 0) & (stream[before] == stream[after])
        kept = (place[before] >= 0) & (place[after] >= 0) & ~chains
        signals = self.signals
        return (
            np.concatenate((place[before[kept]], place[self.sender[signals]])),
            np.concatenate((place[after[kept]], place[signals])),
            np.concatenate((kind[kept], np.full(len(signals), INTENT, dtype=np.int8))),
        )


_LOOK = csr.contiguous(
    np.array([0, 1]), np.array([Buffer.SHARED], dtype=np.int8), np.zeros(1, int), np.zeros(1, int)
)
"""What the receiver of a signal reads: nothing, but in shared memory, so that everybody sees
where it comes from."""


@dataclass(frozen=True, eq=False)
class _Places:
    """Where tasks read or write: an atom, or ``-1 - k`` for the slot of staged position k."""

    n_tasks: int
    owner: Ints
    code: Ints

    def totals(self, count: Ints) -> tuple[Ints, Ints]:
        """Return the elements of every task, and those of its own before each place."""
        running = running_total(count)
        first = np.searchsorted(self.owner, np.arange(self.n_tasks + 1))
        return np.diff(running[first]), running[:-1] - running[first[self.owner]]


def _positions_of(indptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the positions of some tasks, one task after another, and which task's each is."""
    taken, positions = take_rows(indptr, rows)
    return row_numbers(taken), positions


def _columns(positions: Positions) -> tuple[Ints, Ints]:
    return positions.indptr, positions.atom
