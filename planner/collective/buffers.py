"""Sizes of the buffers that a collective reads and writes on every rank."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.memory import require_memory
from collplan.specs import Collective
from collplan.specs.tables import ends_of

BYTES_PER_PAIR = 100
"""Peak memory in bytes per pair of ranks for counts and displacements of unequal blocks."""


def buffer_sizes(collective: Collective, size: int) -> tuple[Ints, Ints]:
    """Return the elements of the send and the receive buffer of every rank.

    Parameters
    ----------
    collective : Collective
        Spec of the collective. Its counts may differ between ranks.
    size : int
        Number of ranks.

    Raises
    ------
    MemoryLimitError
        If the counts of all pairs of ranks do not fit into memory.
    """
    nothing = np.zeros(size, dtype=np.int64)
    in_place, sent, received = collective.in_place, *_whole_sizes(collective, size)
    if collective.is_pairwise:
        return nothing if in_place else sent, received
    if collective.has_one_buffer:
        return nothing, received
    at_root = np.arange(size) == collective.root
    if collective.sender == "root":
        return np.where(at_root, sent, 0), np.where(at_root & in_place, 0, received)
    gets = at_root | (collective.receiver == "all")
    lies_there = gets & in_place
    received = np.where(gets, np.where(lies_there, np.maximum(sent, received), received), 0)
    return np.where(lies_there, 0, sent), received


def _whole_sizes(collective: Collective, size: int) -> tuple[Ints, Ints]:
    """Return what every rank sends and receives if it has both buffers."""
    if not collective.is_pairwise:
        counts, displs = collective.block_layout(size)
        total = np.full(size, ends_of(displs, counts)) if collective.has_blocks else counts
        sizes = collective.sends_blocks, collective.receives_blocks
        sent, received = (total if has_all else counts for has_all in sizes)
        return sent, received
    if collective.regular is not None:
        require_memory(size**2 * BYTES_PER_PAIR)
    layout = collective.pair_layout(size)
    if layout is None:
        alike = np.full(size, size * collective.count, dtype=np.int64)
        return alike, alike
    counts, given, taken = layout
    return ends_of(given, counts), ends_of(taken.T, counts.T)
