"""Locations of a collective's vectors on every rank, in a caller's buffer or in scratch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints, csr
from collplan.planner.blueprint.groups import GroupEdges
from collplan.planner.blueprint.regions import PairTable, Regions
from collplan.planner.collective.buffers import buffer_sizes, pair_layout, pair_sizes
from collplan.planner.plan.plan import Buffer
from collplan.specs import Collective
from collplan.specs.collectives.graphs import EdgeLayout

SCRATCH_STRIDE = 1 << 34
"""Distance between the beginnings of two scratch spaces in elements, before lowering removes
unused scratch."""


def scratch_begin(base: Ints) -> Ints:
    """Return the begins of the scratch spaces in which homes with these bases lie.

    The spaces begin at multiples of `SCRATCH_STRIDE`. A home may be shifted by less than half of
    this distance.
    """
    return (base + SCRATCH_STRIDE // 2) // SCRATCH_STRIDE * SCRATCH_STRIDE


@dataclass(frozen=True, eq=False)
class Home:
    """The location of a vector: element x on rank r is at ``base[r] + x`` of ``buffer[r]``.

    Parameters
    ----------
    buffer : ndarray of int8, shape (n_ranks,)
        `Buffer` of every rank.
    base : ndarray of int64, shape (n_ranks,)
        Offset of element 0 in the buffer. It may be negative if the buffer only has later
        elements. In scratch, each new home has another multiple of `SCRATCH_STRIDE`.
    """

    buffer: Ints
    base: Ints

    def where(self, mask: npt.NDArray[np.bool_], other: Home) -> Home:
        """Return this home for the ranks in `mask`, and `other` for the rest."""
        if self is other or mask.all():
            return self
        return Home(
            np.where(mask, self.buffer, other.buffer), np.where(mask, self.base, other.base)
        )

    def differs(self, other: Home) -> npt.NDArray[np.bool_]:
        """Mark the ranks on which this home and `other` are different locations."""
        return np.asarray((self.buffer != other.buffer) | (self.base != other.base))

    def at(self, ranks: Ints) -> Home:
        """Return the home on the given ranks only."""
        return Home(self.buffer[ranks], self.base[ranks])

    def shifted(self, by: Ints | int) -> Home:
        """Return a home whose elements lie `by` elements further on."""
        return Home(self.buffer, self.base + by)

    def copy(self) -> Home:
        """Return a copy, whose arrays may be changed."""
        return Home(self.buffer.copy(), self.base.copy())


@dataclass(frozen=True, eq=False)
class Binding:
    """The homes and regions of a collective, and the sizes of the caller's buffers.

    Parameters
    ----------
    input, output : Home
        Locations of contributions and results. Elements are numbered through the whole vector,
        or for alltoall through the vector of each rank. If only the root gets a result, the
        output of other ranks is in scratch.
    regions : callable
        Function that returns `given` and `received`. It is called on first use, because the
        regions of an alltoall are large.
    send_sizes, recv_sizes : ndarray of int64, shape (n_ranks,)
        Elements of the caller's buffers on every rank.
    edges : GroupEdges or None
        Pairs of ranks to which rows of regions belong, if the collective has edges. Edges between
        the same two ranks are one, whose row has several intervals.
    """

    input: Home
    output: Home
    regions: Callable[[], tuple[Regions, Regions | None]]
    send_sizes: Ints
    recv_sizes: Ints
    edges: GroupEdges | None = None

    @property
    def given(self) -> Regions:
        """Regions that are moved: one row for a vector, a row per block, or a row per pair.

        The pairs of an alltoall are sorted by sender, in the sender's numbering.
        """
        return self._both[0]

    @property
    def received(self) -> Regions | None:
        """The same rows in the receiver's numbering for alltoall, otherwise None."""
        return self._both[1]

    @cached_property
    def _both(self) -> tuple[Regions, Regions | None]:
        return self.regions()


def bind_collective(collective: Collective, size: int, scratch: Home) -> Binding:
    """Return the homes and regions of `collective` on `size` ranks.

    Parameters
    ----------
    collective : Collective
        Spec of the collective. Its counts may differ between ranks.
    size : int
        Number of ranks.
    scratch : Home
        Location of the data that ranks only forward.

    Raises
    ------
    MemoryLimitError
        If the counts of all pairs of ranks do not fit into memory.
    """
    layout = collective.edge_layout(size)
    if layout is not None:
        return _bind_edges(layout, size)
    if collective.is_pairwise:
        return _bind_pairs(collective, size)
    send, recv = _buffers(size)
    counts, displs = collective.block_layout(size)
    if not collective.has_blocks:
        displs = np.zeros(size, dtype=np.int64)
    own_send, own_recv = (Home(home.buffer, -displs) for home in (send, recv))
    given = Regions.of(displs, counts)
    if not collective.has_blocks:
        given = given.take(np.zeros(1, dtype=np.int64))
    source = own_send if collective.receives_blocks else send
    result = own_recv if collective.sends_blocks else recv
    at_root = np.arange(size) == collective.root
    in_place = collective.in_place
    if collective.has_one_buffer:
        source = recv
    elif collective.sender == "root":
        source, result = send.where(at_root, scratch), send.where(at_root & in_place, result)
    else:
        gets = at_root | (collective.receiver == "all")
        source, result = recv.where(gets & in_place, source), result.where(gets, scratch)
    return Binding(source, result, lambda: (given, None), *buffer_sizes(collective, size))


def _buffers(size: int) -> tuple[Home, Home]:
    """Return homes at the beginnings of the caller's send and receive buffers."""
    base = np.zeros(size, dtype=np.int64)
    return (
        Home(np.full(size, Buffer.SEND, dtype=np.int8), base),
        Home(np.full(size, Buffer.RECV, dtype=np.int8), base),
    )


def _bind_edges(layout: EdgeLayout, size: int) -> Binding:
    """Return the homes and regions of a collective whose blocks belong to edges of a graph.

    Both ends of a row have the same intervals. Edges without elements are left out.
    """
    filled = np.flatnonzero(layout.counts)
    source, dest = layout.source[filled], layout.dest[filled]
    order = np.lexsort((dest, source))
    filled, source, dest = filled[order], source[order], dest[order]
    bounds = csr.run_bounds(source, dest)
    given, received = (
        Regions(bounds, places[filled], layout.counts[filled])
        for places in (layout.given, layout.received)
    )
    first = bounds[:-1]
    edges = GroupEdges(np.array([0, len(first)]), source[first], dest[first])
    sizes = layout.send_sizes, layout.recv_sizes
    return Binding(*_buffers(size), lambda: (given, received), *sizes, edges)


def _bind_pairs(collective: Collective, size: int) -> Binding:
    """Return the homes and regions of a collective whose blocks belong to pairs of ranks."""
    layout, (send, recv) = pair_layout(collective, size), _buffers(size)
    sizes = pair_sizes(collective, size, layout)

    def regions() -> tuple[Regions, Regions]:
        if layout is None:
            # The sender numbers blocks by receiver, and the receiver by sender.
            by = (1, size)
            one, other = (PairTable(size * size, collective.count, each, size) for each in by)
            return one, other
        counts, *places = layout
        given, taken = (Regions.of(place.ravel(), counts.ravel()) for place in places)
        return given, taken

    return Binding(recv if collective.in_place else send, recv, regions, *sizes)
