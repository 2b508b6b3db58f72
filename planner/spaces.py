"""Where a collective's input and output lie: from MPI's buffers to an algorithm's spaces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.chunks import Ints, Layout, Own, Packed, PackedByRank, split_evenly
from planner.plan import Buffer
from specs import Collective

BLOCK_KINDS = frozenset(
    {"gather", "scatter", "allgather", "reduce_scatter_block", "alltoall"},
)
"""Collectives with a chunk a rank; the others cut one vector as the algorithm likes."""


@dataclass(frozen=True, eq=False)
class Space:
    """A chunked space: a layout, and the buffer it lies in on every rank.

    Parameters
    ----------
    layout : Layout
        Where chunks lie relative to `base`.
    buffer : ndarray of int8, shape (size,)
        A `Buffer` for every position.
    base : ndarray of int64, shape (size,)
        Where the space begins there; for scratch it is allocated later.
    """

    layout: Layout
    buffer: Ints
    base: Ints


@dataclass(frozen=True, eq=False)
class Binding:
    """A collective's spaces on a group, and what its buffers hold.

    Parameters
    ----------
    chunk_counts : ndarray of int64
        Elements of every chunk of the layout.
    input, output : Space
        Where the algorithm finds its input and leaves its result.
    send_sizes, recv_sizes : ndarray of int64, shape (size,)
        Elements of the caller's buffers on every rank.
    staged_input : bool
        The input must first be copied out of the receive buffer, which the
        algorithm will overwrite (in place).
    staged_output : bool
        The result must at last be copied into the receive buffer, whose
        input is needed till then (in place).
    """

    chunk_counts: Ints
    input: Space
    output: Space
    send_sizes: Ints
    recv_sizes: Ints
    staged_input: bool = False
    staged_output: bool = False


def bind_collective(collective: Collective, size: int, n_parts: int) -> Binding:
    """Say where the input and output of `collective` lie on `size` ranks.

    Parameters
    ----------
    collective : Collective
        The spec; its counts may differ from rank to rank.
    size : int
        Number of ranks.
    n_parts : int
        Chunks a vector is cut into; collectives on blocks ignore it.
    """
    if collective.kind == "alltoall":
        return _bind_alltoall(collective, size)
    kind, in_place = collective.kind, collective.is_in_place
    counts = chunk_counts(collective, size, n_parts)
    displs = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    total = np.full(size, displs[-1])
    root = getattr(collective, "root", 0)
    at_root = np.arange(size) == root
    none = np.zeros(size, dtype=np.int64)
    packed, own = Packed(counts), Own(counts)
    send, recv, scratch = (
        np.full(size, buffer, dtype=np.int8)
        for buffer in (Buffer.SEND, Buffer.RECV, Buffer.SCRATCH)
    )
    if kind == "bcast":
        return Binding(counts, Space(packed, recv, none), Space(packed, recv, none), none, total)
    if kind == "barrier":
        return Binding(counts, Space(packed, send, none), Space(packed, recv, none), none, none)
    if kind == "gather":
        in_recv = at_root & in_place
        source = Space(own, np.where(in_recv, recv, send), np.where(in_recv, displs[:-1], 0))
        result = Space(packed, np.where(at_root, recv, scratch), none)
        return Binding(
            counts, source, result, np.where(in_recv, 0, counts), np.where(at_root, total, 0)
        )
    if kind == "scatter":
        in_send = at_root & in_place
        result = Space(own, np.where(in_send, send, recv), np.where(in_send, displs[:-1], 0))
        source = Space(packed, np.where(at_root, send, scratch), none)
        return Binding(
            counts, source, result, np.where(at_root, total, 0), np.where(in_send, 0, counts)
        )
    if kind == "allgather":
        source = Space(own, recv if in_place else send, displs[:-1] if in_place else none)
        sizes = none if in_place else counts
        return Binding(counts, source, Space(packed, recv, none), sizes, total)
    if kind == "reduce":
        source = Space(packed, np.where(at_root & in_place, recv, send), none)
        result = Space(packed, np.where(at_root, recv, scratch), none)
        return Binding(
            counts,
            source,
            result,
            np.where(at_root & in_place, 0, total),
            np.where(at_root, total, 0),
        )
    sizes = none if in_place else total
    if kind == "reduce_scatter_block":
        source = Space(packed, recv if in_place else send, none)
        result = Space(own, scratch if in_place else recv, none)
        recv_sizes = total if in_place else counts
        return Binding(counts, source, result, sizes, recv_sizes, staged_output=in_place)
    assert kind in ("allreduce", "scan", "exscan"), kind
    staged = in_place and kind == "exscan"
    source = Space(packed, scratch if staged else recv if in_place else send, none)
    return Binding(counts, source, Space(packed, recv, none), sizes, total, staged_input=staged)


def _bind_alltoall(collective: Collective, size: int) -> Binding:
    """Bind a collective whose blocks belong to pairs of ranks."""
    none = np.zeros(size, dtype=np.int64)
    send, recv, scratch = (
        np.full(size, buffer, dtype=np.int8)
        for buffer in (Buffer.SEND, Buffer.RECV, Buffer.SCRATCH)
    )
    pairs = collective.pair_counts(size)
    counts = chunk_counts(collective, size, size)
    if pairs is None:
        given: Layout = Packed(counts)
        received = given
        n_given = n_received = np.full(size, counts.sum())
    else:
        table = np.array(pairs, dtype=np.int64).reshape(size, size)
        given, received = PackedByRank(table), PackedByRank(table.T)
        n_given, n_received = table.sum(axis=1), table.sum(axis=0)
    staged = collective.is_in_place
    return Binding(
        counts,
        Space(given, scratch if staged else send, none),
        Space(received, recv, none),
        none if staged else n_given,
        n_received,
        staged_input=staged,
    )


def chunk_counts(collective: Collective, size: int, n_parts: int) -> Ints:
    """Return the elements of every chunk of the collective's layout."""
    if collective.kind in BLOCK_KINDS:
        return np.array(collective.block_counts(size), dtype=np.int64)
    return split_evenly(collective.count, n_parts)
