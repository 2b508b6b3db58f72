"""Dependencies, which are always derived from the memory that tasks read and write."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.machine_code.kernel import compile_with, inner
from collplan.planner.plan.address_space import buffer_owner
from collplan.planner.plan.pieces import Pieces, is_constant
from collplan.planner.plan.plan import Buffer, Plan
from collplan.planner.plan.ragged import INTENT, Dependencies
from collplan.planner.plan.tags import Edges


class Accesses(NamedTuple):
    """Contiguous accesses in CSR by task. Atoms are intervals that no access divides.

    Access j covers the atoms ``low[j]:high[j]``. Atoms are numbered across all buffers of all
    ranks.
    """

    indptr: Ints
    low: Ints
    high: Ints


def cut_into_atoms(
    owner: Ints, reads: Pieces, writes: Pieces, rank_node: Ints
) -> tuple[Accesses, Accesses, int]:
    """Divide the memory that tasks access into atoms.

    Parameters
    ----------
    owner : ndarray, shape (n_tasks,)
        Rank of every task.
    reads, writes : Pieces
        One row per task. Reads of buffers that no task writes are omitted, as they conflict with
        no access.
    rank_node : ndarray, shape (n_ranks,)
        Node of every rank, for shared buffers.

    Returns
    -------
    reads, writes : Accesses
    n_atoms : int
    """
    written = np.zeros(len(Buffer), dtype=bool)
    written[writes.buffer] = True
    reads = _without_gaps(owner, reads.select(written[reads.buffer]), writes, rank_node)
    rows, sides = [], []
    for pieces in (reads, writes):
        row, buffer, low, high = pieces.blocks()
        rows.append(row)
        sides.append((buffer, buffer_owner(owner[row], buffer, rank_node), low, high))
    n_nodes = int(rank_node.max(initial=0)) + 1
    # Nodes may be empty, so there may be more of them than ranks.
    atoms, n_atoms = _number_atoms(sides, max(len(rank_node), n_nodes), n_nodes)
    read, write = (
        Accesses(csr.indptr_of(row, len(owner)), low, high)
        for row, (low, high) in zip(rows, atoms, strict=True)
    )
    return read, write, n_atoms


def _without_gaps(owner: Ints, reads: Pieces, writes: Pieces, rank_node: Ints) -> Pieces:
    """Return strided reads as whole intervals if no write fits between their blocks.

    A write that overlaps such an interval also overlaps one of its blocks. So the conflicts stay
    the same, and a column of a block of rows is one access instead of many.
    """
    if is_constant(reads.repeat) or not (reads.repeat > 1).any():
        return reads
    n_owners = max(len(rank_node), int(rank_node.max(initial=0)) + 1)
    least = np.full(len(Buffer) * n_owners, np.iinfo(np.int64).max)
    read, written = (
        csr.joint_key(
            side.buffer, buffer_owner(owner[side.owner], side.buffer, rank_node), n_owners
        )
        for side in (reads, writes)
    )
    np.minimum.at(least, written, writes.count)
    gap = reads.stride - reads.count
    whole = (reads.repeat > 1) & (gap >= 0) & (gap < least[read])
    return reads.made_whole(whole, reads.count + reads.stride * (reads.repeat - 1))


Sides = list[tuple[Any, Any, Any, Any]]
"""Buffer, owner (a rank or a node), low and high of every access, for reads and for writes."""


def _in_units(sides: Sides) -> Sides:
    """Return accesses in units of the greatest common divisor of all offsets and lengths."""
    unit = 0
    for side in sides:
        for ends in side[2:]:
            # A unit of one element is found soon, or the ends are few units apart.
            unit = int(np.gcd.reduce(ends, initial=unit)) if unit != 1 else 1
    if unit < 2:
        return sides
    return [(buffer, owner, low // unit, high // unit) for buffer, owner, low, high in sides]


def _number_atoms(sides: Sides, n_owners: int, n_nodes: int) -> tuple[list[tuple[Ints, Ints]], int]:
    """Return the first atom of every access, the one past its last, and the number of atoms."""
    sides = _in_units(sides)
    n_accesses = sum(len(side[0]) for side in sides)
    span = 1 + max(int(side[3].max(initial=0)) for side in sides)
    # Most often, all ranks divide their buffers in the same way: they share the edges of atoms.
    places = [csr.joint_key(side[0], end, span) for side in sides for end in side[2:]]
    edges = csr.Numbering.of(np.concatenate(places))
    bounds = np.searchsorted(edges.values, np.arange(len(Buffer) + 1) * span)
    width, owners = csr.lengths_of(bounds), np.full(len(Buffer), n_owners)
    owners[Buffer.SHARED] = n_nodes
    base = csr.running_total(width * owners)
    first = base[:-1] - bounds[:-1]
    starts = [first[buffer] + owner * width[buffer] for buffer, owner, *_ in sides]
    ends = [starts[i // 2] + edges.number(place) for i, place in enumerate(places)]
    n_atoms = int(base[-1])
    if n_atoms > 8 * n_accesses + (1 << 16):
        # Ranks divide them differently, so only edges that they have are numbered.
        own = csr.Numbering.of(np.concatenate(ends))
        ends, n_atoms = [own.number(end) for end in ends], len(own.values)
    return [(ends[0], ends[1]), (ends[2], ends[3])], n_atoms


def derive_dependencies(
    owner: Ints,
    reads: Pieces,
    writes: Pieces,
    rank_node: Ints,
    intents: Edges | None = None,
) -> Dependencies:
    """Order every pair of conflicting accesses like their rows.

    Parameters
    ----------
    owner, reads, writes, rank_node
        As for `cut_into_atoms`.
    intents : (before, after, kind), optional
        Edges that state scheduling intent, which are kept.
    """
    return _with_intents(*_hazards(owner, reads, writes, rank_node), intents)


def without_hazards(n_tasks: int, intents: Edges) -> Dependencies:
    """Return only the stated edges, for a plan whose hazards are derived later."""
    nothing = np.zeros(0, dtype=np.int32)
    return _with_intents(np.zeros(n_tasks + 1, dtype=np.int32), nothing, intents)


def _with_intents(indptr: Ints, before: Ints, intents: Edges | None) -> Dependencies:
    """Return hazards and stated edges together."""
    if intents is None or not len(intents[0]):
        return Dependencies(indptr, before, np.zeros(len(before), dtype=np.int8))
    n = len(indptr) - 1
    after = np.concatenate((csr.row_numbers(indptr), intents[1]))
    before = np.concatenate((before, intents[0]))
    kind = np.concatenate((np.zeros(len(before) - len(intents[0]), np.int8), intents[2] | INTENT))
    # A hazard on completion implies an intent: keep one edge per pair, hazards first.
    order = np.lexsort((kind, before, after))
    order = order[csr.run_starts(after[order], before[order])]
    return Dependencies(csr.indptr_of(after[order], n), before[order], kind[order])


def stated_edges(plan: Plan) -> Edges:
    """Return the edges of a plan that state scheduling intent and are not implied by hazards."""
    intends = (plan.deps.kind & INTENT) > 0
    return (
        plan.deps.task[intends],
        plan.deps.owner()[intends],
        plan.deps.kind[intends].astype(np.int8),
    )


MOST_BLOCKS = 1 << 23
"""Number of blocks of memory that are processed together, at about 100 bytes each."""


def _hazards(owner: Ints, reads: Pieces, writes: Pieces, rank_node: Ints) -> tuple[Ints, Ints]:
    """Return the conflicting predecessors of every task in CSR, one group of nodes at a time."""
    reads = _without_gaps(owner, reads, writes, rank_node)
    batches = _batches(owner, reads, writes, rank_node)
    if len(batches) < 2:
        indptr, before = derive_hazards(*cut_into_atoms(owner, reads, writes, rank_node))
        return indptr, before
    lengths = np.zeros(len(owner), dtype=np.int64)
    parts = []
    for rows in batches:
        accesses = owner[rows], reads.take(rows), writes.take(rows)
        own, before = derive_hazards(*cut_into_atoms(*accesses, rank_node))
        lengths[rows] = csr.lengths_of(own)
        parts.append((rows, own, rows[before].astype(np.int32)))
    indptr = csr.running_total(lengths)
    joined = np.empty(indptr[-1], dtype=np.int32)
    for rows, own, before in parts:
        joined[csr.ranges(indptr[rows], csr.lengths_of(own))] = before
    return indptr.astype(np.int32), joined


def _batches(owner: Ints, reads: Pieces, writes: Pieces, rank_node: Ints) -> list[Ints]:
    """Return the rows of groups of nodes, each with a limited number of blocks."""
    n_blocks = sum(int(pieces.repeat.sum()) for pieces in (reads, writes))
    if n_blocks <= MOST_BLOCKS:
        return []
    blocks = np.zeros(len(owner))
    for pieces in (reads, writes):
        blocks += np.bincount(pieces.owner, pieces.repeat, len(owner))
    node = rank_node[owner]
    of_nodes = csr.running_total(np.bincount(node, blocks).astype(np.int64))[:-1]
    batch = (of_nodes // MOST_BLOCKS)[node]
    order = np.argsort(batch, kind="stable")
    ends = np.flatnonzero(np.diff(batch[order])) + 1
    return list(np.split(order, ends))


def _n_visits(reads: Accesses, writes: Accesses, n_atoms: int) -> int:
    """Return the number of steps of `derive_hazards`: an access visits all of its atoms."""
    n_visits = sum(int((side.high - side.low).sum()) for side in (reads, writes))
    return n_visits + n_atoms + 2 * len(reads.indptr)


@compile_with(work=_n_visits)
def derive_hazards(reads: Accesses, writes: Accesses, n_atoms: int) -> Any:
    """Find, in row order, the accesses that must precede each task.

    A task reads before it writes. A read waits for the last writer of the atom. A write waits for
    all later readers or, without readers, for the last writer.

    Returns the CSR (indptr, predecessors) of the hazards. The predecessors of a task are
    distinct.
    """
    n = len(reads.indptr) - 1
    last_writer = np.full(n_atoms, -1, np.int32)
    # The readers of an atom since its last write are a linked list.
    n_links = (reads.high - reads.low).sum()
    head = np.full(n_atoms, -1, np.int32)
    reader, following = np.empty(n_links, np.int32), np.empty(n_links, np.int32)
    link = 0
    seen = np.full(n, -1, np.int32)
    indptr = np.zeros(n + 1, np.int32)
    before = np.empty(2 * n + 16, np.int32)
    k = 0
    for task in range(n):
        if len(before) - k < task:  # which can have as many predecessors
            before = np.concatenate((before, np.empty(len(before) + task, np.int32)))
        for j in range(reads.indptr[task], reads.indptr[task + 1]):
            for atom in range(reads.low[j], reads.high[j]):
                k = _add_hazard(before, k, seen, last_writer[atom], task)
                reader[link], following[link] = task, head[atom]
                head[atom] = link
                link += 1
        for j in range(writes.indptr[task], writes.indptr[task + 1]):
            for atom in range(writes.low[j], writes.high[j]):
                has_other_reader = False
                at = head[atom]
                while at >= 0:
                    if reader[at] != task:
                        has_other_reader = True
                        k = _add_hazard(before, k, seen, reader[at], task)
                    at = following[at]
                # A reader waits for the preceding writer, so the edge to the writer is implied.
                if not has_other_reader:
                    k = _add_hazard(before, k, seen, last_writer[atom], task)
                last_writer[atom], head[atom] = task, -1
        indptr[task + 1] = k
    return indptr, before[:k].copy()


@inner
def _add_hazard(before: Ints, k: int, seen: Ints, row: int, task: int) -> int:
    """Append a predecessor of a task unless it is -1 or known; return their number."""
    if row < 0 or seen[row] == task:
        return k
    seen[row] = task
    before[k] = row
    return k + 1
