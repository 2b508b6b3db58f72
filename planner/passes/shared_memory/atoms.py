"""Atoms: units of the data that tasks access, which copies and messages move as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.passes.shared_memory.program import NodeTasks
from collplan.planner.passes.shared_memory.trace import Trace, trace
from collplan.planner.passes.shared_memory.values import COPY, FOREVER, Lives, Reads, Tasks
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.hazards import Accesses
from collplan.planner.plan.plan import NONE, Buffer, Op


@dataclass(frozen=True, eq=False)
class Atoms:
    """Intervals of memory between two writes, which no access divides.

    An atom is the content of an interval from one write until the next one, so memory that is
    written again has other atoms, with other bounds. An atom and its copies have the same size.
    The atoms of the initial content of memory come first, then those that tasks write, in the
    order of tasks. All buffers of all ranks are in one address space, with shared buffers last.

    Parameters
    ----------
    base : ndarray of int64, shape (n_ranks, 4)
        First address of every buffer.
    address, size : ndarray of int64, shape (n_atoms,)
        First address and number of elements of each atom.
    rank, buffer, offset : ndarray of int64, shape (n_atoms,)
        Location of each atom in the buffers; undefined in shared buffers.
    lives : Lives
    reads : Reads
    """

    base: Ints
    address: Ints
    size: Ints
    rank: Ints
    buffer: Ints
    offset: Ints
    lives: Lives
    reads: Reads


def cut(program: NodeTasks, tasks: Tasks) -> Atoms:
    """Divide the memory that `program` accesses so that copies and messages move whole atoms.

    Parameters
    ----------
    program : NodeTasks
    tasks : Tasks
        Columns of its tasks.

    Returns
    -------
    Atoms
    """
    space = AddressSpace.of_plan(program.plan)
    rank = program.columns["rank"]
    sides = [
        _halved(*space.blocks(program.reads, rank), program.columns["op"] == Op.REDUCE),
        space.blocks(program.writes, rank),
    ]
    # The first address is added, because there are no edges if the program accesses nothing.
    ends = [end for _, low, high in sides for end in (low, high)]
    edges = csr.Numbering.of(np.concatenate((space.base[rank[:1], Buffer.SEND], *ends)))
    accesses = (
        Accesses(csr.indptr_of(row, len(rank)), edges.number(low), edges.number(high))
        for row, low, high in sides
    )
    return _atoms_of(trace(tasks, *accesses, edges.values), tasks, space)


def _halved(row: Ints, low: Ints, high: Ints, reduces: Bools) -> tuple[Ints, Ints, Ints]:
    """Divide the blocks of reductions that contain parts of both operands."""
    total = csr.running_total(high - low)
    indptr = csr.indptr_of(row, len(reduces))
    middle = ((total[indptr[:-1]] + total[indptr[1:]]) // 2)[row]
    both = np.flatnonzero(reduces[row] & (total[:-1] < middle) & (middle < total[1:]))
    if not len(both):
        return row, low, high
    at = (low + middle - total[:-1])[both]
    return np.insert(row, both, row[both]), np.insert(low, both + 1, at), np.insert(high, both, at)


def _atoms_of(traced: Trace, tasks: Tasks, space: AddressSpace) -> Atoms:
    """Divide all stretches at the ends of stretches of the same origins.

    The elements of an atom are then produced, copied, read and overwritten together.
    """
    by_read, by_write, by_writing = traced.indptr
    writings = _Writings.of(traced)
    part = csr.ranges(writings.part, writings.count)
    begin, _, at, _ = traced.writings.T
    address = writings.cuts.values[part] + np.repeat(at - begin, writings.count)
    # Each writing of a task lies in one buffer, but the initial content covers all buffers.
    own = space.start[: space.base.shape[0] * int(Buffer.SHARED)]
    # If several buffers begin at one address, all but the last are empty; choose the last.
    flat = np.repeat(last_at_or_below(own, at), writings.count)
    flat[: writings.count[0]] = last_at_or_below(own, address[: writings.count[0]])
    rank = flat // int(Buffer.SHARED)
    end = np.full(len(part), FOREVER)
    atom, count = writings.atoms_in(writings.overwritten)
    end[csr.ranges(atom, count)] = np.repeat(csr.row_numbers(by_write), count)
    writer = np.append(NONE, csr.row_numbers(by_writing))
    # The last entry belongs to writing 0, whose writer is -1.
    is_new = np.append((tasks.op != COPY) & (tasks.sender < 0), True)[writer]
    made = np.flatnonzero(np.repeat(is_new, writings.count))
    origin = np.empty(len(writings.cuts.values), dtype=np.int64)
    origin[part[made]] = made
    atom, count = writings.atoms_in(writings.found)
    return Atoms(
        space.base,
        address,
        csr.lengths_of(writings.cuts.values)[part],
        rank,
        flat - rank * int(Buffer.SHARED),
        address - own[flat],
        Lives(
            csr.running_total(writings.count)[by_writing],
            np.repeat(writer, writings.count),
            end,
            origin[part],
        ),
        Reads(csr.running_total(count)[by_read], csr.ranges(atom, count)),
    )


@dataclass(frozen=True, eq=False)
class _Stretches:
    """Stretches of a trace, some of which are smaller than their writing.

    Parameters
    ----------
    writing : ndarray of int64, shape (n,)
        Writing of every stretch.
    rows : ndarray of int64, shape (n_less,)
        Stretches that are smaller than their writing.
    first, last : ndarray of int64, shape (n_less,)
        First origin of each of them, and the origin past the last.
    """

    writing: Ints
    rows: Ints
    first: Ints
    last: Ints

    @classmethod
    def of(cls, table: Ints, writings: Ints) -> _Stretches:
        """Compare stretches with their writings."""
        writing, first, last = table.T
        is_less = (first != writings[:, 0][writing]) | (last != writings[:, 1][writing])
        rows = np.flatnonzero(is_less)
        return cls(writing, rows, first[rows], last[rows])


@dataclass(frozen=True, eq=False)
class _Writings:
    """Writings of a trace, divided into parts at the ends of stretches.

    Parameters
    ----------
    cuts : Numbering, of n_parts + 1 values
        Part i has the origins ``cuts.values[i]:cuts.values[i+1]``.
    part, count : ndarray of int64, shape (n_writings,)
        First part of each writing, and its number of parts, each of which is one atom.
    found, overwritten : _Stretches
        Stretches that tasks read and overwrite.
    """

    cuts: csr.Numbering
    part: Ints
    count: Ints
    found: _Stretches
    overwritten: _Stretches

    @classmethod
    def of(cls, traced: Trace) -> _Writings:
        """Divide the writings of a trace into parts."""
        first, last, _, is_whole = traced.writings.T
        found = _Stretches.of(traced.found, traced.writings)
        overwritten = _Stretches.of(traced.overwritten, traced.writings)
        # A copy of a whole stretch has the ends of this stretch, which is in `found`.
        own = np.flatnonzero(is_whole == 0)
        ends = (first[own], last[own], found.first, found.last, overwritten.first, overwritten.last)
        cuts = csr.Numbering.of(np.concatenate(ends))
        return cls(cuts, *_locate(cuts, first, last), found, overwritten)

    def atoms_in(self, stretches: _Stretches) -> tuple[Ints, Ints]:
        """Return the first atom and the number of atoms of every stretch."""
        writing, rows = stretches.writing, stretches.rows
        atom, count = csr.running_total(self.count)[writing], self.count[writing]
        part, count[rows] = _locate(self.cuts, stretches.first, stretches.last)
        atom[rows] += part - self.part[writing[rows]]
        return atom, count


def _locate(cuts: csr.Numbering, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the first part of every interval, and the number of its parts."""
    first = cuts.number(low)
    count = (low < high).astype(np.int64)
    # Most intervals have one part, and a look at the next cut is faster than a search for the end.
    more = np.flatnonzero(cuts.values.take(first + 1, mode="clip") < high)
    count[more] = cuts.number(high[more]) - first[more]
    return first, count
