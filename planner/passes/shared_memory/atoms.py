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
    # Where nothing is accessed there is an edge, too.
    ends = [end for _, low, high in sides for end in (low, high)]
    edges = csr.sorted_unique(np.concatenate((space.base[rank[:1], Buffer.SEND], *ends)))
    accesses = [
        Accesses(csr.indptr_of(row, len(rank)), *(np.searchsorted(edges, end) for end in block))
        for row, *block in sides
    ]
    return _atoms_of(trace(tasks, *accesses, edges), tasks, space)


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
    """Cut all stretches wherever one of the same origins ends."""
    found, overwritten, writings = traced.found, traced.overwritten, traced.writings
    ends = [table[:, column] for table in (found, overwritten) for column in (1, 2)]
    cuts = csr.sorted_unique(np.concatenate((*ends, writings[:, 0], writings[:, 1])))
    part, count = _between(cuts, writings[:, :2])
    first = csr.running_total(count)
    to_atom = first[:-1] - part
    part = csr.ranges(part, count)
    address = cuts[part] + np.repeat(writings[:, 2] - writings[:, 0], count)
    # A task's writings lie in one buffer each, but what memory holds at first in all of them.
    own = space.start[: space.base.shape[0] * int(Buffer.SHARED)]
    # Of empty buffers that begin at one address the last is meant.
    flat = np.repeat(last_at_or_below(own, writings[:, 2]), count)
    flat[: count[0]] = last_at_or_below(own, address[: count[0]])
    rank, buffer = np.divmod(flat, int(Buffer.SHARED))
    by_read, by_write, by_writing = traced.indptr
    read, n_read = _between(cuts, found[:, 1:])
    atom = csr.ranges(read + to_atom[found[:, 0]], n_read)
    last, n_last = _between(cuts, overwritten[:, 1:])
    end = np.full(len(part), FOREVER)
    ended = csr.ranges(last + to_atom[overwritten[:, 0]], n_last)
    end[ended] = np.repeat(csr.row_numbers(by_write), n_last)
    writer = np.repeat(np.append(NONE, csr.row_numbers(by_writing)), count)
    copies = (tasks.op == COPY) | (tasks.sender >= 0)
    made = np.flatnonzero(~(copies[writer] & (writer >= 0)))
    origin = np.empty(len(cuts), dtype=np.int64)
    origin[part[made]] = made
    return Atoms(
        space.base,
        address,
        csr.lengths_of(cuts)[part],
        rank,
        buffer,
        address - own[flat],
        Lives(first[by_writing], writer, end, origin[part]),
        Reads(csr.running_total(n_read)[by_read], atom),
    )


def _between(cuts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the first part between cuts that lies in each stretch, and how many do."""
    first = np.searchsorted(cuts, ends[:, 0])
    return first, np.searchsorted(cuts, ends[:, 1]) - first
