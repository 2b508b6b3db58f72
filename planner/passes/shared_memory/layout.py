"""The layout of shared buffers: where each rank stages data and keeps what others read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below, union
from collplan.planner.passes.shared_memory.atoms import Atoms
from collplan.planner.passes.shared_memory.program import Program
from collplan.planner.plan.plan import NONE, Buffer, Plan

ALIGNMENT = 64
"""Bytes of a cache line: what two ranks write does not lie in one."""


@dataclass(frozen=True, eq=False)
class ScratchAreas:
    """Scratch of all ranks in areas, none of which an access leaves.

    Parameters
    ----------
    of_atom : ndarray of int64, shape (n_atoms,)
        The area of every atom in scratch, else -1.
    low, size : ndarray of int64, shape (n_areas,)
        Where areas begin on the line of addresses, and their elements.
    rank : ndarray of int64, shape (n_areas,)
    """

    of_atom: Ints
    low: Ints
    size: Ints
    rank: Ints

    @classmethod
    def of(cls, atoms: Atoms, program: Program) -> ScratchAreas:
        """Group the scratch that a program accesses."""
        blocks, begins = [], atoms.base[:, Buffer.SCRATCH]
        for pieces in (program.reads, program.writes):
            row, buffer, low, high = pieces.blocks()
            own = (buffer == Buffer.SCRATCH) & (high > low)
            rank = program.columns["rank"][row[own]]
            start = begins[rank]
            blocks.append((start + low[own], start + high[own]))
        low, high = union(*map(np.concatenate, zip(*blocks, strict=True)), joins_neighbours=False)
        owner = last_at_or_below(begins, low)
        area = np.full(len(atoms.rank), NONE, dtype=np.int64)
        inside = np.flatnonzero(atoms.buffer == Buffer.SCRATCH)
        area[inside] = last_at_or_below(low, atoms.address[inside])
        return cls(area, low, high - low, owner)


@dataclass(frozen=True, eq=False)
class Room:
    """The parts of shared buffers, rank by rank: mirrors, areas of scratch, slots.

    Parameters
    ----------
    mirrors : ndarray of int64, shape (n_ranks, 2)
        Offsets at which each rank's send and recv buffers are staged; -1 if they are not.
    area : ndarray of int64, shape (n_areas,)
        New offset of every area, in shared memory or in scratch.
    slots : ndarray of int64, shape (n_ranks,)
        Offset of each rank's slots.
    shared_sizes : ndarray of int64, shape (n_nodes,)
    scratch_sizes : ndarray of int64, shape (n_ranks,)
        Elements that remain in scratch.
    """

    mirrors: Ints
    area: Ints
    slots: Ints
    shared_sizes: Ints
    scratch_sizes: Ints


def aligned_elements(itemsize: int) -> int:
    """Return the smallest number of elements after which memory is aligned again."""
    return math.lcm(ALIGNMENT, itemsize) // itemsize


def lay_out(
    areas: ScratchAreas, is_used: Bools, is_moved: Bools, mirrored: Ints, n_slots: Ints, plan: Plan
) -> Room:
    """Give everything in shared memory its place, and close the gaps in scratch.

    Parameters
    ----------
    areas : ScratchAreas
    is_used, is_moved : ndarray of bool, shape (n_areas,)
        Which areas are still accessed, and which lie in shared memory.
    mirrored : ndarray of int64, shape (n_ranks, 2)
        Elements of the mirrors of each rank's send and recv buffer.
    n_slots : ndarray of int64, shape (n_ranks,)
        Elements of each rank's slots.
    plan : Plan
        Whose ranks and nodes they are.
    """
    n_ranks, rank_node = plan.n_ranks, plan.rank_node
    unit = aligned_elements(plan.itemsize)
    kept = np.flatnonzero(is_used & is_moved)
    # Parts by (rank, what, number); areas stand between mirrors and slots.
    ranks = np.arange(n_ranks)
    rank = np.concatenate((ranks, ranks, areas.rank[kept], ranks))
    what = np.repeat(np.arange(4), (n_ranks, n_ranks, len(kept), n_ranks))
    size = np.concatenate((mirrored[:, 0], mirrored[:, 1], areas.size[kept], n_slots))
    size = -(-size // unit) * unit
    order = np.lexsort((np.arange(len(rank)), what, rank, rank_node[rank]))
    node, begin = rank_node[rank], np.empty(len(rank), dtype=np.int64)
    begin[order] = csr.group_offsets(node[order], size[order])
    own = np.flatnonzero(is_used & ~is_moved)
    area = np.full(len(areas.size), NONE, dtype=np.int64)
    area[kept] = begin[2 * n_ranks : len(rank) - n_ranks]
    area[own] = csr.group_offsets(areas.rank[own], areas.size[own])
    mirrors = np.column_stack((begin[:n_ranks], begin[n_ranks : 2 * n_ranks]))
    return Room(
        np.where(mirrored > 0, mirrors, NONE),
        area,
        begin[len(rank) - n_ranks :],
        np.bincount(node, size, plan.n_nodes).astype(np.int64),
        np.bincount(areas.rank[own], areas.size[own], n_ranks).astype(np.int64),
    )


MIRRORED = (Buffer.SEND, Buffer.RECV)
"""The caller's buffers, column by column of a plan's mirrors."""
