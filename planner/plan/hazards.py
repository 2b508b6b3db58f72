"""Dependencies derived from what tasks read and write, never written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.plan.kernels import derive_hazards, number_accesses
from collplan.planner.plan.pieces import Pieces, is_constant, running_total, sorted_unique
from collplan.planner.plan.plan import INTENT, Buffer, Dependencies
from collplan.planner.plan.tags import Edges, joint_key

if TYPE_CHECKING:
    from collplan.planner.arrays import Ints
    from collplan.planner.plan.plan import Plan


@dataclass(frozen=True, eq=False, slots=True)
class Accesses:
    """Contiguous accesses in CSR by task, cut along atoms: intervals no access divides.

    Access j covers atoms ``low[j]:high[j]``; atoms are numbered over all
    buffers of all ranks, `n_atoms` in all.
    """

    indptr: Ints
    low: Ints
    high: Ints
    n_atoms: int


def cut_into_atoms(
    owner: Ints, reads: Pieces, writes: Pieces, rank_node: Ints
) -> tuple[Accesses, Accesses]:
    """Cut what tasks access into atoms.

    Parameters
    ----------
    owner : ndarray, shape (n_tasks,)
        Rank of every task.
    reads, writes : Pieces
        A row a task. Reads of buffers nobody writes are left out: nothing
        can come of them.
    rank_node : ndarray, shape (n_ranks,)
        Node of every rank, for shared buffers.
    """
    written = np.zeros(len(Buffer), dtype=bool)
    written[writes.buffer] = True
    reads = _without_gaps(owner, reads, writes, rank_node)
    sides = []
    for pieces in (reads, writes):
        row, buffer, low, high = pieces.blocks()
        kept = written[buffer]
        if not kept.all():
            row, buffer, low, high = row[kept], buffer[kept], low[kept], high[kept]
        home = owner[row]
        is_shared = buffer == Buffer.SHARED
        if is_shared.any():
            home = np.where(is_shared, rank_node[home], home)
        sides.append((row, buffer, home, low, high))
    # A home is a rank's number or, for shared buffers, a node's; nodes may be empty.
    n_homes = max(len(rank_node), int(rank_node.max(initial=0)) + 1)
    n_nodes = int(rank_node.max(initial=0)) + 1
    atoms, n_atoms = _number_atoms([side[1:] for side in sides], n_homes, n_nodes)
    accesses = [
        Accesses(running_total(np.bincount(side[0], minlength=len(owner))), low, high, n_atoms)
        for side, (low, high) in zip(sides, atoms, strict=True)
    ]
    return accesses[0], accesses[1]


def _without_gaps(owner: Ints, reads: Pieces, writes: Pieces, rank_node: Ints) -> Pieces:
    """Return strided reads as whole intervals where no write fits between their blocks.

    Whatever write touches such an interval touches a block, so conflicts stay
    what they are, and a column of a block of rows is one access, not many.
    """
    if is_constant(reads.repeat) or not (reads.repeat > 1).any():
        return reads
    n_homes = max(len(rank_node), int(rank_node.max(initial=0)) + 1)
    least = np.full(len(Buffer) * n_homes, np.iinfo(np.int64).max)
    sides = []
    for pieces in (reads, writes):
        home = owner[pieces.owner]
        home = np.where(pieces.buffer == Buffer.SHARED, rank_node[home], home)
        sides.append(joint_key(pieces.buffer, home, n_homes))
    np.minimum.at(least, sides[1], writes.count)
    gap = reads.stride - reads.count
    whole = (reads.repeat > 1) & (gap >= 0) & (gap < least[sides[0]])
    reach = np.where(whole, reads.stride * (reads.repeat - 1), 0)
    return Pieces(
        reads.indptr,
        reads.buffer,
        reads.offset,
        reads.count + reach,
        np.where(whole, 0, reads.stride),
        np.where(whole, 1, reads.repeat),
    )


Sides = list[tuple[Any, Any, Any, Any]]
"""For reads and writes: buffer, home (rank or node), low and high of every access."""


def _in_units(sides: Sides) -> Sides:
    """Return accesses in units of the greatest size that divides all: blocks, where all are."""
    unit = 0
    for side in sides:
        for ends in side[2:]:
            # One is found soon, or the ends are few units apart.
            unit = int(np.gcd.reduce(ends, initial=unit)) if unit != 1 else 1
    if unit < 2:
        return sides
    return [(buffer, home, low // unit, high // unit) for buffer, home, low, high in sides]


def _number_atoms(sides: Sides, n_homes: int, n_nodes: int) -> tuple[list[tuple[Ints, Ints]], int]:
    """Return the first atom of every access and the one past its last, and how many there are."""
    sides = _in_units(sides)
    n_accesses = sum(len(side[0]) for side in sides)
    span = 1 + max(int(side[3].max(initial=0)) for side in sides)
    if span <= 8 * n_accesses + (1 << 20):
        marks = np.zeros((len(Buffer), span), dtype=bool)
        for buffer, _, low, high in sides:
            marks[buffer, low] = True
            marks[buffer, high] = True
        width = marks.sum(axis=1)
        homes = np.full(len(Buffer), n_homes)
        homes[Buffer.SHARED] = n_nodes
        if int((homes * width).sum()) <= 8 * n_accesses + (1 << 16):
            # Ranks cut their buffers alike: one table, looked up directly, serves all.
            number = np.cumsum(marks, axis=1, dtype=np.int32) - 1
            base = running_total(width * homes)
            return [number_accesses(*side, number, width, base[:-1]) for side in sides], base[-1]
    keys = [
        (joint_key(buffer, home, n_homes) * span + low,
         joint_key(buffer, home, n_homes) * span + high)
        for buffer, home, low, high in sides
    ]  # fmt: skip
    edges = sorted_unique(np.concatenate([key for side in keys for key in side]))
    return [(np.searchsorted(edges, low), np.searchsorted(edges, high)) for low, high in keys], len(
        edges
    )


def derive_dependencies(
    owner: Ints,
    reads: Pieces,
    writes: Pieces,
    rank_node: Ints,
    intents: Edges | None = None,
) -> Dependencies:
    """Order every pair of conflicting accesses as the rows are ordered.

    Parameters
    ----------
    owner, reads, writes, rank_node
        As for `cut_into_atoms`.
    intents : (before, after, kind), optional
        Edges that state scheduling intent and are kept as they are.
    """
    indptr, before = _hazards(owner, reads, writes, rank_node)
    if intents is None or not len(intents[0]):
        return Dependencies(indptr, before, np.zeros(len(before), dtype=np.int8))
    n = len(owner)
    after = np.concatenate((np.repeat(np.arange(n), np.diff(indptr)), intents[1]))
    before = np.concatenate((before, intents[0]))
    kind = np.concatenate((np.zeros(len(before) - len(intents[0]), np.int8), intents[2] | INTENT))
    # A hazard on completion says all an intent says: keep one edge of a pair, hazards first.
    order = np.lexsort((kind, before, after))
    pair = after[order].astype(np.int64) * n + before[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = pair[1:] != pair[:-1]
    order = order[fresh]
    indptr = running_total(np.bincount(after[order], minlength=n))
    return Dependencies(indptr, before[order], kind[order])


def stated_edges(plan: Plan) -> Edges:
    """Return the edges of a plan that state scheduling intent, which hazards do not imply."""
    intends = (plan.deps.kind & INTENT) > 0
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    return plan.deps.task[intends], after[intends], plan.deps.kind[intends].astype(np.int8)


MOST_BLOCKS = 1 << 23
"""Blocks of memory that are looked at together, which takes about a hundred bytes each."""


def _hazards(owner: Ints, reads: Pieces, writes: Pieces, rank_node: Ints) -> tuple[Ints, Ints]:
    """Return in CSR by task whom it conflicts with; nodes by turns, as they share nothing."""
    reads = _without_gaps(owner, reads, writes, rank_node)
    batches = _batches(owner, reads, writes, rank_node)
    if len(batches) < 2:
        return _hazards_at_once(owner, reads, writes, rank_node)
    lengths = np.zeros(len(owner), dtype=np.int64)
    parts = []
    for rows in batches:
        own, before = _hazards_at_once(owner[rows], reads.take(rows), writes.take(rows), rank_node)
        lengths[rows] = np.diff(own)
        parts.append((rows, own, rows[before].astype(np.int32)))
    indptr = running_total(lengths)
    joined = np.empty(indptr[-1], dtype=np.int32)
    for rows, own, before in parts:
        first = np.repeat(indptr[rows] - own[:-1], np.diff(own))
        joined[first + np.arange(len(before))] = before
    return indptr.astype(np.int32), joined


def _hazards_at_once(
    owner: Ints, reads: Pieces, writes: Pieces, rank_node: Ints
) -> tuple[Ints, Ints]:
    read, write = cut_into_atoms(owner, reads, writes, rank_node)
    n_reads = int((read.high - read.low).sum())
    indptr, before = derive_hazards(
        read.indptr, read.low, read.high, write.indptr, write.low, write.high, read.n_atoms, n_reads
    )
    return indptr, before


def _batches(owner: Ints, reads: Pieces, writes: Pieces, rank_node: Ints) -> list[Ints]:
    """Return the rows of as many nodes at a time as have few enough blocks together."""
    n_blocks = sum(int(pieces.repeat.sum()) for pieces in (reads, writes))
    if n_blocks <= MOST_BLOCKS:
        return []
    blocks = np.zeros(len(owner))
    for pieces in (reads, writes):
        blocks += np.bincount(pieces.owner, pieces.repeat, len(owner))
    node = rank_node[owner]
    of_nodes = running_total(np.bincount(node, blocks).astype(np.int64))[:-1]
    batch = (of_nodes // MOST_BLOCKS)[node]
    order = np.argsort(batch, kind="stable")
    ends = np.flatnonzero(np.diff(batch[order])) + 1
    return list(np.split(order, ends))
