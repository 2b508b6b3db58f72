"""Atoms: what tasks read and write, cut so that copies and messages map atoms one to one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.passes.shared_memory.program import Program
from collplan.planner.passes.shared_memory.trace import Trace, trace
from collplan.planner.passes.shared_memory.values import COPY, FOREVER, Lives, Reads, Tasks
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.hazards import Accesses
from collplan.planner.plan.plan import NONE, Buffer, Op


@dataclass(frozen=True, eq=False)
class Atoms:
    """Intervals of memory, each from one write of it until the next, that no access divides.

    Atoms that are copies of one another have one size. What memory holds at first
    comes first, then what tasks write, in their order. Memory that is used again is
    other atoms, which other accesses cut. All buffers of all ranks lie on one line of
    addresses, shared buffers last.

    Parameters
    ----------
    base : ndarray of int64, shape (n_ranks, 4)
        Where buffers begin on the line.
    address, size : ndarray of int64, shape (n_atoms,)
    rank, buffer, offset : ndarray of int64, shape (n_atoms,)
        Whose buffer each atom lies in, and where; of shared buffers nothing is said.
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


def cut(program: Program, tasks: Tasks) -> Atoms:
    """Cut what `program` touches so that copies and shared messages move whole atoms."""
    space = AddressSpace.of_plan(program.plan)
    rank = program.columns["rank"]
    sides = [
        _halved(*space.blocks(program.reads, rank), program.columns["op"] == Op.REDUCE),
        space.blocks(program.writes, rank),
    ]
    # One edge more, as there are none where nothing is accessed.
    ends = [end for _, low, high in sides for end in (low, high)]
    edges = csr.Numbering.of(np.concatenate((space.base[rank[:1], Buffer.SEND], *ends)))
    accesses = (
        Accesses(csr.indptr_of(row, len(rank)), edges.number(low), edges.number(high))
        for row, low, high in sides
    )
    return _atoms_of(trace(tasks, *accesses, edges.values), tasks, space)


def _halved(row: Ints, low: Ints, high: Ints, reduces: Bools) -> tuple[Ints, Ints, Ints]:
    """Cut the blocks of reductions in which the right operand lies behind the left one."""
    total = csr.running_total(high - low)
    indptr = csr.indptr_of(row, len(reduces))
    middle = ((total[indptr[:-1]] + total[indptr[1:]]) // 2)[row]
    both = np.flatnonzero(reduces[row] & (total[:-1] < middle) & (middle < total[1:]))
    if not len(both):
        return row, low, high
    at = (low + middle - total[:-1])[both]
    return np.insert(row, both, row[both]), np.insert(low, both + 1, at), np.insert(high, both, at)


def _atoms_of(traced: Trace, tasks: Tasks, space: AddressSpace) -> Atoms:
    """Cut all stretches where a stretch of the same origins begins or ends.

    So the elements of an atom have been made, copied, read and overwritten together.
    """
    by_read, by_write, by_writing = traced.indptr
    writings = _Writings.of(traced)
    part = csr.ranges(writings.part, writings.count)
    begin, _, at, _ = traced.writings.T
    address = writings.cuts.values[part] + np.repeat(at - begin, writings.count)
    # A task's writings lie in one buffer each, but what memory holds at first in all of them.
    own = space.start[: space.base.shape[0] * int(Buffer.SHARED)]
    # Of empty buffers that begin at one address the last is meant.
    flat = np.repeat(last_at_or_below(own, at), writings.count)
    flat[: writings.count[0]] = last_at_or_below(own, address[: writings.count[0]])
    rank = flat // int(Buffer.SHARED)
    end = np.full(len(part), FOREVER)
    atom, count = writings.atoms_in(writings.overwritten)
    end[csr.ranges(atom, count)] = np.repeat(csr.row_numbers(by_write), count)
    writer = np.append(NONE, csr.row_numbers(by_writing))
    # The last entry is that of writing 0, number -1.
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
    """Stretches of a trace, of which some are less than their writing.

    Parameters
    ----------
    writing : ndarray of int64, shape (n,)
        The writing of every stretch.
    rows : ndarray of int64, shape (n_less,)
        The stretches that are less than it.
    first, last : ndarray of int64, shape (n_less,)
        Their first origin and the one past the last.
    """

    writing: Ints
    rows: Ints
    first: Ints
    last: Ints

    @classmethod
    def of(cls, table: Ints, writings: Ints) -> _Stretches:
        """Compare stretches with the writings that they are from."""
        writing, first, last = table.T
        is_less = (first != writings[:, 0][writing]) | (last != writings[:, 1][writing])
        rows = np.flatnonzero(is_less)
        return cls(writing, rows, first[rows], last[rows])


@dataclass(frozen=True, eq=False)
class _Writings:
    """Writings of a trace in parts, the origins from one end of a stretch to the next.

    Parameters
    ----------
    cuts : Numbering, of n_parts + 1 values
        Part i is origins ``cuts.values[i]:cuts.values[i+1]``.
    part, count : ndarray of int64, shape (n_writings,)
        The first part of each writing, and how many it has: an atom each.
    found, overwritten : _Stretches
    """

    cuts: csr.Numbering
    part: Ints
    count: Ints
    found: _Stretches
    overwritten: _Stretches

    @classmethod
    def of(cls, traced: Trace) -> _Writings:
        """Cut the writings of a trace."""
        first, last, _, is_whole = traced.writings.T
        found = _Stretches.of(traced.found, traced.writings)
        overwritten = _Stretches.of(traced.overwritten, traced.writings)
        # Copies of whole stretches end where these do.
        own = np.flatnonzero(is_whole == 0)
        ends = (first[own], last[own], found.first, found.last, overwritten.first, overwritten.last)
        cuts = csr.Numbering.of(np.concatenate(ends))
        return cls(cuts, *_locate(cuts, first, last), found, overwritten)

    def atoms_in(self, stretches: _Stretches) -> tuple[Ints, Ints]:
        """Return the first atom of every stretch, and how many there are."""
        writing, rows = stretches.writing, stretches.rows
        atom, count = csr.running_total(self.count)[writing], self.count[writing]
        part, count[rows] = _locate(self.cuts, stretches.first, stretches.last)
        atom[rows] += part - self.part[writing[rows]]
        return atom, count


def _locate(cuts: csr.Numbering, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the first part between cuts of every interval, and how many parts it has."""
    first = cuts.number(low)
    count = (low < high).astype(np.int64)
    # Most have one, and to search for their ends takes longer than to look at the next cut.
    more = np.flatnonzero(cuts.values.take(first + 1, mode="clip") < high)
    count[more] = cuts.number(high[more]) - first[more]
    return first, count
