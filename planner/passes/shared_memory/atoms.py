"""Atoms: what tasks touch, cut so that copies and messages map atoms one to one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.passes.shared_memory.program import Program
from collplan.planner.passes.shared_memory.values import Positions
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.verify.moves import pair_blocks


@dataclass(frozen=True, eq=False)
class Atoms:
    """Intervals of memory no access divides, and where tasks touch them.

    All buffers of all ranks lie on one line of addresses, shared buffers last.

    Parameters
    ----------
    base : ndarray of int64, shape (n_ranks, 4)
        Where buffers begin on the line.
    edges : ndarray of int64, shape (n_atoms + 1,)
        Atom i is addresses ``edges[i]:edges[i+1]``.
    rank, buffer, offset : ndarray of int64, shape (n_atoms,)
        Whose buffer each atom lies in, and where; of shared buffers nothing is said.
    reads, writes : Positions
    """

    base: Ints
    edges: Ints
    rank: Ints
    buffer: Ints
    offset: Ints
    reads: Positions
    writes: Positions

    @property
    def size(self) -> Ints:
        """Return the elements of every atom."""
        return np.diff(self.edges)


def cut(program: Program, sends: Ints, recvs: Ints) -> Atoms:
    """Cut what `program` touches so that copies and the given messages move whole atoms."""
    space = AddressSpace.of_plan(program.plan)
    rank, sides = program.columns["rank"], list[Blocks]()
    for side in (program.reads, program.writes):
        row, low, high = space.blocks(side, rank)
        sides.append((csr.indptr_of(row, len(program)), low, high))
    edges = _close(*_moves(program, sides, sends, recvs), sides)
    positions = []
    for indptr, low, high in sides:
        first = np.searchsorted(edges, low)
        lengths = np.searchsorted(edges, high) - first
        positions.append(Positions(csr.running_total(lengths)[indptr], csr.ranges(first, lengths)))
    # Of empty buffers that begin at one address the last is meant.
    own = space.start[: program.plan.buffer_sizes.size]
    flat = last_at_or_below(own, edges[:-1])
    rank_of, buffer = np.divmod(flat, int(Buffer.SHARED))
    return Atoms(space.base, edges, rank_of, buffer, edges[:-1] - own[flat], *positions)


Blocks = tuple[Ints, Ints, Ints]
"""Contiguous blocks in CSR by task: indptr, first address and the one past the last."""


def _moves(
    program: Program, sides: list[Blocks], sends: Ints, recvs: Ints
) -> tuple[tuple[Ints, Ints, Ints], Ints]:
    """Return source, destination and count of all that is moved as it is; and other cuts."""
    op = program.columns["op"]
    acting = np.flatnonzero((op == Op.COPY) | (op == Op.REDUCE))
    reduces = np.concatenate((op[acting] == Op.REDUCE, np.zeros(len(recvs), dtype=bool)))
    sources, dests = np.concatenate((acting, sends)), np.concatenate((acting, recvs))
    task, left, right, dest, count = pair_blocks(
        *_take(sides[0], sources), *_take(sides[1], dests), reduces
    )
    is_plain = ~reduces[task]
    cuts = np.concatenate((left, left + count, right[~is_plain], (right + count)[~is_plain]))
    return (left[is_plain], dest[is_plain], count[is_plain]), cuts


def _take(blocks: Blocks, rows: Ints) -> Blocks:
    indptr, low, high = blocks
    taken, index = csr.take_rows(indptr, rows)
    return taken, low[index], (high - low)[index]


def _close(moves: tuple[Ints, Ints, Ints], cuts: Ints, sides: list[Blocks]) -> Ints:
    """Return cuts such that what cuts one end of a move cuts the other, too.

    All moves keep an element's place in the collective's vector, so there are
    as many cuts in a buffer as there are different ones in that vector.
    """
    source, dest, count = moves
    ends = [end for _, low, high in sides for end in (low, high)]
    zero = np.zeros(1, dtype=np.int64)
    new = csr.sorted_unique(np.concatenate((zero, cuts, source, dest, dest + count, *ends)))
    found = [new]
    # Cuts reach one more rank of a ring with every turn, so only the new ones are carried on.
    while len(new):
        carried = [_carry(new, *pair, count) for pair in ((source, dest), (dest, source))]
        new = csr.sorted_unique(np.concatenate(carried))
        for known in found:
            new = new[~_is_in(known, new)]
        found.append(new)
        # Each array is at least twice as long as the next: there are few.
        while len(found) > 1 and len(found[-2]) < 2 * len(found[-1]):
            found[-2:] = [_merged(found[-2:])]
    return _merged(found)


def _merged(runs: list[Ints]) -> Ints:
    """Return all values of ascending arrays in order; a stable sort merges such runs."""
    return np.sort(np.concatenate(runs), kind="stable")


def _is_in(ordered: Ints, values: Ints) -> Bools:
    """Mark the values that are in an ascending array."""
    place = np.searchsorted(ordered, values)
    return np.asarray(ordered[np.minimum(place, len(ordered) - 1)] == values)


def _carry(edges: Ints, source: Ints, dest: Ints, count: Ints) -> Ints:
    """Return where the cuts inside sources would be at destinations."""
    first = np.searchsorted(edges, source, side="right")
    n = np.maximum(np.searchsorted(edges, source + count) - first, 0)
    return np.asarray(edges[csr.ranges(first, n)] + np.repeat(dest - source, n))
