"""Layout of shared buffers: where each rank stages data and keeps data that others read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below, union
from collplan.planner.passes.shared_memory.atoms import Atoms
from collplan.planner.passes.shared_memory.program import NodeTasks
from collplan.planner.plan.plan import NONE, Buffer, Plan

ALIGNMENT = 64
"""Size of a cache line in bytes; data that different ranks write is in different lines."""


@dataclass(frozen=True, eq=False)
class ScratchAreas:
    """Areas of the ranks' scratch; every access stays within one area.

    Parameters
    ----------
    of_atom : ndarray of int64, shape (n_atoms,)
        Area of every atom in scratch; -1 for other atoms.
    low, size : ndarray of int64, shape (n_areas,)
        Address and number of elements of every area.
    rank : ndarray of int64, shape (n_areas,)
        Rank whose scratch contains the area.
    """

    of_atom: Ints
    low: Ints
    size: Ints
    rank: Ints

    @classmethod
    def of(cls, atoms: Atoms, program: NodeTasks) -> ScratchAreas:
        """Divide the scratch that a program accesses into areas."""
        blocks, begins = [], atoms.base[:, Buffer.SCRATCH]
        for pieces in (program.reads, program.writes):
            row, buffer, low, high = pieces.blocks()
            own = (buffer == Buffer.SCRATCH) & (high > low)
            rank = program.columns["rank"][row[own]]
            start = begins[rank]
            blocks.append((start + low[own], start + high[own]))
        low, high = union(*map(np.concatenate, zip(*blocks, strict=True)), joins_neighbors=False)
        owner = last_at_or_below(begins, low)
        area = np.full(len(atoms.rank), NONE, dtype=np.int64)
        inside = np.flatnonzero(atoms.buffer == Buffer.SCRATCH)
        area[inside] = last_at_or_below(low, atoms.address[inside])
        return cls(area, low, high - low, owner)


@dataclass(frozen=True, eq=False)
class Room:
    """Offsets and sizes in shared buffers: mirrors, areas of scratch and slots of every rank.

    Parameters
    ----------
    mirrors : ndarray of int64, shape (n_ranks, 2)
        Offsets at which the send and the recv buffer of each rank are staged; -1 for none.
    area : ndarray of int64, shape (n_areas,)
        New offset of every area, in shared memory or in scratch.
    slots : ndarray of int64, shape (n_ranks,)
        Offset of the slots of each rank.
    shared_sizes : ndarray of int64, shape (n_nodes,)
        Number of elements of each node's shared buffer.
    scratch_sizes : ndarray of int64, shape (n_ranks,)
        Number of elements that remain in scratch.
    """

    mirrors: Ints
    area: Ints
    slots: Ints
    shared_sizes: Ints
    scratch_sizes: Ints


def aligned_elements(itemsize: int) -> int:
    """Return the smallest number of elements that fills whole cache lines."""
    return math.lcm(ALIGNMENT, itemsize) // itemsize


def lay_out(
    areas: ScratchAreas, is_used: Bools, is_moved: Bools, mirrored: Ints, n_slots: Ints, plan: Plan
) -> Room:
    """Assign offsets to all parts of shared memory, and close the gaps in scratch.

    Parameters
    ----------
    areas : ScratchAreas
    is_used, is_moved : ndarray of bool, shape (n_areas,)
        Whether each area is still accessed, and whether it is in shared memory.
    mirrored : ndarray of int64, shape (n_ranks, 2)
        Numbers of elements of the mirrors of each rank's send and recv buffer.
    n_slots : ndarray of int64, shape (n_ranks,)
        Number of elements of each rank's slots.
    plan : Plan
        Plan that defines ranks and nodes.

    Returns
    -------
    Room
    """
    n_ranks, rank_node = plan.n_ranks, plan.rank_node
    unit = aligned_elements(plan.itemsize)
    kept = np.flatnonzero(is_used & is_moved)
    # Parts are sorted by (rank, kind, number); areas are placed between mirrors and slots.
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
"""Buffers of the caller, in the order of the columns of a plan's mirrors."""
