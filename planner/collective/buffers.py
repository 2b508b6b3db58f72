"""Sizes of the buffers that a collective reads and writes on every rank, and checks of buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints
from collplan.planner.errors import PlanError
from collplan.planner.memory import require_memory
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs import Collective
from collplan.specs.errors import show_value
from collplan.specs.syntax.tables import ends_of

BYTES_PER_PAIR = 100
"""Peak memory in bytes per pair of ranks for counts and displacements of unequal blocks."""
PairLayout = tuple[Ints, Ints, Ints] | None
"""Counts, and displacements at senders and at receivers; None if all pairs have equal blocks."""


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
    edges = collective.edge_layout(size)
    if edges is not None:
        return edges.send_sizes, edges.recv_sizes
    if collective.is_pairwise:
        return pair_sizes(collective, size, pair_layout(collective, size))
    counts, displs = collective.block_layout(size)
    total = np.full(size, ends_of(displs, counts)) if collective.has_blocks else counts
    sent = total if collective.sends_blocks else counts
    received = total if collective.receives_blocks else counts
    in_place, at_root = collective.in_place, np.arange(size) == collective.root
    if collective.has_one_buffer:
        return np.zeros(size, dtype=np.int64), received
    if collective.sender == "root":
        return np.where(at_root, sent, 0), np.where(at_root & in_place, 0, received)
    gets = at_root | (collective.receiver == "all")
    lies_there = gets & in_place
    received = np.where(gets, np.where(lies_there, np.maximum(sent, received), received), 0)
    return np.where(lies_there, 0, sent), received


def pair_layout(collective: Collective, size: int) -> PairLayout:
    """Return counts and displacements of all pairs of ranks, as `Collective.pair_layout` does.

    Raises
    ------
    MemoryLimitError
        If they do not fit into memory.
    """
    if collective.regular is not None:
        require_memory(size**2 * BYTES_PER_PAIR)
    return collective.pair_layout(size)


def pair_sizes(collective: Collective, size: int, layout: PairLayout) -> tuple[Ints, Ints]:
    """Return the sizes of the buffers of a collective whose blocks belong to pairs of ranks."""
    sent: Ints
    received: Ints
    if layout is None:
        sent = received = np.full(size, size * collective.count, dtype=np.int64)
    else:
        counts, given, taken = layout
        sent, received = ends_of(given, counts), ends_of(taken.T, counts.T)
    return np.zeros_like(sent) if collective.in_place else sent, received


def require_buffers(
    plan: Plan,
    sendbufs: Sequence[npt.NDArray[Any] | None],
    recvbufs: Sequence[npt.NDArray[Any] | None],
) -> None:
    """Raise `PlanError` if buffers are no arrays of all ranks that are as long as a plan needs."""
    for name, buffers, which in (
        ("sendbufs", sendbufs, Buffer.SEND),
        ("recvbufs", recvbufs, Buffer.RECV),
    ):
        if not hasattr(buffers, "__len__"):
            raise PlanError(f"{name}: {show_value(buffers)} is no list; give an array of each rank")
        if len(buffers) != plan.n_ranks:
            raise PlanError(f"{name}: {len(buffers)} buffers for {plan.n_ranks} ranks; give each")
        for rank, buffer in enumerate(buffers):
            if not isinstance(buffer, np.ndarray | None):
                kind = type(buffer).__name__
                raise PlanError(f"{name}[{rank}] is of type {kind}; give an array of numpy")
            n, needed = 0 if buffer is None else len(buffer), int(plan.buffer_sizes[rank, which])
            if n < needed:
                raise PlanError(
                    f"{name}[{rank}] has {n} elements, the plan needs {needed}; give a longer one"
                )
