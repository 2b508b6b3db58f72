"""Locations of a collective's vectors: on every rank, in a caller's buffer or scratch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints
from collplan.planner.blueprint.regions import PairTable, Regions
from collplan.planner.plan.pieces import running_total
from collplan.planner.plan.plan import Buffer
from collplan.specs import Collective

BLOCK_KINDS = frozenset(
    {"gather", "scatter", "allgather", "reduce_scatter_block", "alltoall"},
)
"""Collectives with a chunk per rank; the others cut one vector as the algorithm likes."""

SCRATCH_STRIDE = 1 << 34
"""Room between two scratch spaces before what nobody touches is squeezed out."""


@dataclass(frozen=True, eq=False)
class Home:
    """The location of a vector: element x on rank r is at ``base[r] + x`` of ``buffer[r]``.

    Parameters
    ----------
    buffer : ndarray of int8, shape (n_ranks,)
        A `Buffer` for every rank.
    base : ndarray of int64, shape (n_ranks,)
        May be negative where only later elements are there. In scratch it is
        a multiple of `SCRATCH_STRIDE`, another one for every home.
    """

    buffer: Ints
    base: Ints

    def where(self, mask: npt.NDArray[np.bool_], other: Home) -> Home:
        """Return this home for the ranks in `mask`, `other` for the rest."""
        if self is other or mask.all():
            return self
        return Home(
            np.where(mask, self.buffer, other.buffer), np.where(mask, self.base, other.base)
        )

    def differs(self, other: Home) -> npt.NDArray[np.bool_]:
        """Mark the ranks where this home is another place than `other`."""
        return np.asarray((self.buffer != other.buffer) | (self.base != other.base))

    def shifted(self, by: Ints | int) -> Home:
        """Return a home whose elements lie `by` further on."""
        return Home(self.buffer, self.base + by)

    def copy(self) -> Home:
        """Return a home that may be changed."""
        return Home(self.buffer.copy(), self.base.copy())


@dataclass(frozen=True, eq=False)
class Binding:
    """A collective's homes, and what the caller's buffers hold.

    Parameters
    ----------
    input, output : Home
        Where contributions lie and results belong. Elements are numbered
        through the whole vector; for alltoall, through each rank's own.
        Where nothing is promised, `output` is scratch.
    regions : callable
        Returns `given` and `received`, which for alltoall are large, and
        needed by those only who look at every pair.
    send_sizes, recv_sizes : ndarray of int64, shape (n_ranks,)
        Elements of the caller's buffers on every rank.
    """

    input: Home
    output: Home
    regions: Callable[[], tuple[Regions, Regions | None]]
    send_sizes: Ints
    recv_sizes: Ints

    @property
    def given(self) -> Regions:
        """The moved regions: a row for a vector, a row per block, and for alltoall a row per pair.

        Pairs are sender major, in the sender's numbering.
        """
        return self._both[0]

    @property
    def received(self) -> Regions | None:
        """For alltoall the same rows in the receiver's numbering."""
        return self._both[1]

    @cached_property
    def _both(self) -> tuple[Regions, Regions | None]:
        return self.regions()


def bind_collective(collective: Collective, size: int, scratch: Home) -> Binding:
    """Say where the input and output of `collective` lie on `size` ranks.

    Parameters
    ----------
    collective : Collective
        The spec; its counts may differ from rank to rank.
    size : int
        Number of ranks.
    scratch : Home
        Where ranks keep what they pass on only.
    """
    kind, in_place = collective.kind, collective.is_in_place
    none = np.zeros(size, dtype=np.int64)
    send, recv = (
        Home(np.full(size, buffer, dtype=np.int8), none) for buffer in (Buffer.SEND, Buffer.RECV)
    )
    if kind == "alltoall":
        return _bind_alltoall(collective, size, send, recv)
    if kind not in BLOCK_KINDS:
        whole = Regions.of(np.zeros(1, dtype=np.int64), np.array([collective.count]))
        total = np.full(size, collective.count)
        at_root = np.arange(size) == getattr(collective, "root", 0)
        if kind == "bcast":
            return Binding(recv, recv, lambda: (whole, None), none, total)
        if kind == "barrier":
            return Binding(send, recv, lambda: (whole, None), none, none)
        if kind == "reduce":
            return Binding(
                recv.where(at_root & in_place, send),
                recv.where(at_root, scratch),
                lambda: (whole, None),
                np.where(at_root & in_place, 0, total),
                np.where(at_root, total, 0),
            )
        return Binding(
            recv if in_place else send,
            recv,
            lambda: (whole, None),
            none if in_place else total,
            total,
        )
    counts = np.array(collective.block_counts(size), dtype=np.int64)
    return _bind_blocks(collective, counts, send, recv, scratch)


def _bind_blocks(
    collective: Collective, counts: Ints, send: Home, recv: Home, scratch: Home
) -> Binding:
    """Bind a collective of one block per rank."""
    kind, in_place, size = collective.kind, collective.is_in_place, len(counts)
    displs = running_total(counts)
    blocks, none = Regions.of(displs[:-1], counts), np.zeros(size, dtype=np.int64)
    total = np.full(size, displs[-1])
    own_send, own_recv = (Home(home.buffer, -displs[:-1]) for home in (send, recv))
    at_root = np.arange(size) == getattr(collective, "root", 0)
    everywhere = np.full(size, in_place)
    if kind == "gather":
        source = recv.where(at_root & in_place, own_send)
        sizes = np.where(at_root & in_place, 0, counts), np.where(at_root, total, 0)
        return Binding(source, recv.where(at_root, scratch), lambda: (blocks, None), *sizes)
    if kind == "scatter":
        result = send.where(at_root & in_place, own_recv)
        sizes = np.where(at_root, total, 0), np.where(at_root & in_place, 0, counts)
        return Binding(send.where(at_root, scratch), result, lambda: (blocks, None), *sizes)
    if kind == "allgather":
        source = recv.where(everywhere, own_send)
        sent = none if in_place else counts
        return Binding(source, recv, lambda: (blocks, None), sent, total)
    assert kind == "reduce_scatter_block", kind
    if in_place:
        return Binding(recv, own_recv, lambda: (blocks, None), none, total)
    return Binding(send, own_recv, lambda: (blocks, None), total, counts)


def _bind_alltoall(collective: Collective, size: int, send: Home, recv: Home) -> Binding:
    """Bind a collective whose blocks belong to pairs of ranks."""
    pairs, in_place = collective.pair_counts(size), collective.is_in_place
    if pairs is None:
        sent = received = np.full(size, size * collective.count, dtype=np.int64)
    else:
        sent, received = (np.array(pairs, dtype=np.int64).sum(axis=axis) for axis in (1, 0))

    def regions() -> tuple[Regions, Regions]:
        if pairs is None:
            # In the sender's numbering by receivers, in the receiver's by senders.
            by = (1, size)
            one, other = (PairTable(size * size, collective.count, each, size) for each in by)
            return one, other
        table = np.array(pairs, dtype=np.int64).reshape(size, size)
        counts = table.ravel()
        places = (np.cumsum(table, axis=axis) - table for axis in (1, 0))
        given, taken = (Regions.of(place.ravel(), counts) for place in places)
        return given, taken

    if in_place:
        return Binding(recv, recv, regions, np.zeros(size, dtype=np.int64), received)
    return Binding(send, recv, regions, sent, received)
