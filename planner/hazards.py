"""Dependencies derived from what tasks read and write, never written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.chunks import Ints
from planner.kernels import derive_hazards
from planner.pieces import Pieces, running_total
from planner.plan import INTENT, Buffer, Dependencies

if TYPE_CHECKING:
    from planner.plan import IntArray
    from planner.streams import Edges


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
    owner: IntArray, reads: Pieces, writes: Pieces, rank_node: IntArray
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
    sides = []
    written = np.zeros(len(Buffer), dtype=bool)
    written[np.unique(writes.buffer)] = True
    for pieces in (reads, writes):
        row, buffer, low, high = pieces.blocks()
        kept = written[buffer] & (high > low)
        if not kept.all():
            row, buffer, low, high = row[kept], buffer[kept], low[kept], high[kept]
        rank = owner[row].astype(np.int64)
        home = np.where(buffer == Buffer.SHARED, rank_node[rank], rank)
        sides.append((row, buffer, home, low, high))
    atoms = [(np.zeros_like(side[3]), np.zeros_like(side[4])) for side in sides]
    base = 0
    for which in np.flatnonzero(written):
        masks = [side[1] == which for side in sides]
        bounds = [edge[mask] for side, mask in zip(sides, masks, strict=True) for edge in side[3:]]
        homes = [side[2][mask] for side, mask in zip(sides, masks, strict=True) for _ in (0, 1)]
        indices, n_atoms = _number_atoms(homes, bounds)
        for i, mask in enumerate(masks):
            atoms[i][0][mask] = base + indices[2 * i]
            atoms[i][1][mask] = base + indices[2 * i + 1]
        base += n_atoms
    accesses = []
    for side, (low_atom, high_atom) in zip(sides, atoms, strict=True):
        indptr = running_total(np.bincount(side[0], minlength=len(owner)))
        accesses.append(Accesses(indptr, low_atom, high_atom, base))
    return accesses[0], accesses[1]


def _number_atoms(homes: list[Ints], bounds: list[Ints]) -> tuple[list[Ints], int]:
    """Number the boundaries of one kind of buffer; return their numbers and how many."""
    edges = np.unique(np.concatenate(bounds))
    n_homes = int(max(home.max(initial=0) for home in homes)) + 1
    n_accesses = len(homes[0]) + len(homes[2])
    if n_homes * len(edges) <= 8 * n_accesses + (1 << 16):
        # Ranks cut their buffers alike: one short table, quick to search, serves all.
        return [
            home * len(edges) + np.searchsorted(edges, bound)
            for home, bound in zip(homes, bounds, strict=True)
        ], n_homes * len(edges)
    span = int(edges[-1]) + 1
    keys = [home * span + bound for home, bound in zip(homes, bounds, strict=True)]
    edges = np.unique(np.concatenate(keys))
    return [np.searchsorted(edges, key) for key in keys], len(edges)


def derive_dependencies(
    owner: IntArray,
    reads: Pieces,
    writes: Pieces,
    rank_node: IntArray,
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
    read, write = cut_into_atoms(owner, reads, writes, rank_node)
    n_reads = int((read.high - read.low).sum())
    indptr, before = derive_hazards(
        read.indptr, read.low, read.high, write.indptr, write.low, write.high, read.n_atoms, n_reads
    )
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
