"""Reading of the arguments of vector collectives by the rules of mpi4py."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.api.rank_counts import RankCounts
from collplan.dropin.arguments import (
    Arguments,
    BufferArgument,
    Kind,
    is_in_place,
    locate,
    read_message,
)
from collplan.dropin.elements import Element, element_of

Ints = npt.NDArray[np.integer[Any]]


@dataclass(slots=True, kw_only=True)  # not frozen, because every call creates messages
class VectorMessage(BufferArgument):
    """A buffer with one block per rank; each block has its own count and displacement.

    Contiguous blocks are described as one block of a plain message. If the blocks are not
    contiguous, all of them together form one element of a datatype, which
    `VectorArguments.described` creates.

    Parameters
    ----------
    sizes : ndarray of int64, shape (size,)
        Size of each block's type signature in bytes.
    start : int
        Address to which displacements are relative.
    unit : Element
        Layout of an element of the blocks.
    layout : VectorLayout
        Counts and displacements of the blocks.
    is_apart : bool
        Whether the blocks are not contiguous, or plans cannot use the memory directly.
    """

    sizes: Ints
    start: int
    unit: Element
    layout: VectorLayout
    is_apart: bool

    def block(self, number: int) -> BufferArgument:
        """Return block `number`, counted from 0, as a message of one block."""
        buffer, *_, datatype = self.spec
        count, displ = self.layout.counts[number], self.layout.displs[number]
        address = self.start + displ * self.unit.extent
        spec = [buffer, count, [displ], datatype]  # a single number would be a stride
        return BufferArgument(address, count, 1, self.unit, spec, self.is_reachable)

    @property
    def span(self) -> tuple[int, int]:
        """Addresses of the first byte and after the last byte of all blocks; equal if empty."""
        least, most = self.layout.bounds
        extent = self.unit.extent
        return self._span_of(self.start + least * extent, most - least, extent)


@dataclass(slots=True)
class VectorArguments(Arguments):
    """Buffers and counts of one rank in one call of a vector collective.

    Parameters
    ----------
    counts : RankCounts
        Counts that this rank passes, in bytes.
    element : str or None
        Type of the reduced elements; None if the call reduces nothing, or if plans do not
        support the type.
    n_bytes : int
        Size of this rank's block in bytes; for alltoallv, size of all blocks that it sends.
    """

    counts: RankCounts
    element: str | None
    n_bytes: int

    @property
    def surplus_bytes(self) -> int:
        """Constant 0, because all ranks check the sizes of blocks when they make a plan."""
        return 0

    @property
    def overlap(self) -> bool:
        """True if the send and the receive buffer overlap, counting gaps between blocks."""
        if self.sent is None or self.received is None:
            return False
        (begin, end), (other_begin, other_end) = self.sent.span, self.received.span
        return max(begin, other_begin) < min(end, other_end)

    @contextmanager
    def described(self) -> Iterator[None]:
        """Create, within a context, datatypes for messages whose blocks are not contiguous."""
        created = []
        for message in (self.sent, self.received):
            if isinstance(message, VectorMessage) and message.is_apart:
                layout, datatype = message.layout, message.spec[-1]
                indexed = datatype.Create_indexed(layout.counts, layout.displs).Commit()
                created.append(indexed)
                message.spec = [message.spec[0], 1, 0, indexed]
        try:
            yield
        finally:
            for indexed in created:
                indexed.Free()


def read_vector_arguments(
    kind: Kind, sendbuf: Any, recvbuf: Any, recvcounts: Any, root: int, rank: int, size: int
) -> VectorArguments:
    """Return the buffers and counts that this rank passes to a collective.

    Parameters
    ----------
    kind : Kind
        Kind of the collective.
    sendbuf, recvbuf, recvcounts : object
        Arguments of the call.
    root : int
        Root of the call; 0 if the collective has none.
    rank, size : int
        Rank of this process in the communicator, and number of ranks.

    Raises
    ------
    Exception
        If mpi4py does not accept the arguments; the exception may be of any type.
    """
    if not 0 <= root < size:
        raise ValueError("there is no such root")
    traits = kind.traits
    if traits.has_op:
        return _read_reduction(kind, sendbuf, recvbuf, recvcounts, rank, size)
    sends, receives = kind.used_by_root if rank == root else kind.used_by_others
    # In gatherv and scatterv, only the root may pass MPI_IN_PLACE.
    sends_in_place = receives and traits.sender == "all" and is_in_place(sendbuf)
    receives_in_place = sends and traits.sender == "root" and is_in_place(recvbuf)
    sent = received = None
    if sends and not sends_in_place:
        sent = _read(sendbuf, size if traits.sends_blocks else 0, is_written=False)
    if receives and not receives_in_place:
        received = _read(recvbuf, size if traits.receives_blocks else 0, is_written=True)
    counts = _counts_of(kind, sent, received, root)
    if traits.is_pairwise:
        n_bytes = _total(counts.received if counts.counts is None else counts.counts)
    elif counts.own is not None:
        n_bytes = counts.own
    else:
        assert counts.counts is not None
        n_bytes = int(counts.counts[rank])
    in_place = sends_in_place or receives_in_place
    return VectorArguments(kind, sent, received, in_place, counts, None, n_bytes)


def _counts_of(
    kind: Kind, sent: BufferArgument | None, received: BufferArgument | None, root: int
) -> RankCounts:
    """Return the counts of a rank's messages in bytes."""
    if kind.traits.is_pairwise:
        sizes = [getattr(one, "sizes", None) for one in (sent, received)]
        return RankCounts(kind.name, sizes[0], received=sizes[1])
    blocks, part = (sent, received) if kind.traits.sends_blocks else (received, sent)
    counts = None if blocks is None else getattr(blocks, "sizes", None)
    return RankCounts(kind.name, counts, None if part is None else part.n_bytes, root=root)


def _read_reduction(
    kind: Kind, sendbuf: Any, recvbuf: Any, recvcounts: Any, rank: int, size: int
) -> VectorArguments:
    """Return the arguments of a reduce_scatter."""
    received = read_message(recvbuf, 1, is_written=True, is_reduced=True)
    in_place = is_in_place(sendbuf)
    whole, own, sent = received, None, None
    if not in_place:
        whole = sent = read_message(sendbuf, 1, is_written=False, is_reduced=True)
        own = received.n_bytes
        if sent.element != received.element:
            raise ValueError("send and receive buffer differ")
    counts = None
    if recvcounts is not None:
        counts = _numbers(recvcounts, size) * whole.element.size
        if _total(counts) != whole.n_bytes or own not in (None, counts[rank]):
            raise ValueError("counts and buffers differ")
    elif in_place:
        raise TypeError("in place, counts are needed")
    n_bytes = int(counts[rank]) if counts is not None else received.n_bytes
    known = RankCounts(kind.name, counts, own)
    return VectorArguments(kind, sent, received, in_place, known, whole.element.name, n_bytes)


def _read(given: Any, blocks: int, *, is_written: bool) -> BufferArgument:
    """Return a message with a number of blocks, or a message without counts for 0 blocks."""
    if not blocks:
        return read_message(given, 1, is_written=is_written)
    buffer, counts, displs, datatype = _unpack(given)
    address, length, is_reachable, datatype = locate(buffer, datatype, is_written=is_written)
    element = element_of(datatype)
    if counts is None:
        # mpi4py divides elements evenly among blocks; the first blocks get the remainder, one
        # element each.
        n_elements, rest = divmod(length, element.extent) if length else (0, 0)
        if rest:
            raise ValueError("the buffer is not a whole number of elements")
        counts = [n_elements // blocks + (n_elements % blocks > i) for i in range(blocks)]
    counts = _numbers(counts, blocks)
    displs = None if displs is None else _numbers(displs, blocks, is_stride=True)
    if not address and element.is_plain and counts.any():
        raise ValueError("the address is null")
    layout = _layout(counts.tobytes(), None if displs is None else displs.tobytes())
    total, first = layout.total, layout.first
    sizes = counts if element.size == 1 else counts * element.size
    spec = [buffer, total, first, datatype]
    if not total or (layout.is_packed and element.is_plain and is_reachable):
        is_apart, count, begin, whole = False, total, address + first * element.extent, element
    else:
        n_bytes = total * element.size
        is_apart, count, begin, whole = True, 1, address, Element(n_bytes, n_bytes, False)
    return VectorMessage(
        address=begin,
        count=count,
        blocks=1,
        element=whole,
        spec=spec,
        is_reachable=is_reachable,
        sizes=sizes,
        start=address,
        unit=element,
        layout=layout,
        is_apart=is_apart,
    )


@dataclass(frozen=True, slots=True)
class VectorLayout:
    """Layout of blocks in a buffer.

    Parameters
    ----------
    counts, displs : list of int
        Count and displacement of each block, in elements.
    total : int
        Total number of elements of all blocks.
    first : int
        Displacement of the first block that is not empty.
    is_packed : bool
        Whether the blocks are contiguous and in order.
    bounds : tuple of (int, int)
        Smallest displacement, and largest end of a block, of the blocks that are not empty.
    """

    counts: list[int]
    displs: list[int]
    total: int
    first: int
    is_packed: bool
    bounds: tuple[int, int]


@lru_cache(1024)
def _layout(raw_counts: bytes, raw_displs: bytes | None) -> VectorLayout:
    """Return the layout of blocks; results are cached, as most calls repeat an earlier layout.

    Parameters
    ----------
    raw_counts : bytes
        Bytes of an int64 array of the counts. Arrays themselves cannot be hashed.
    raw_displs : bytes or None
        Displacements in the same form; None for packed blocks.
    """
    counts = np.frombuffer(raw_counts, np.int64)
    if (counts < 0).any():
        raise ValueError("a count is negative")
    packed = np.cumsum(counts) - counts
    displs = packed if raw_displs is None else np.frombuffer(raw_displs, np.int64)
    filled = np.flatnonzero(counts)
    first = int(displs[filled[0]]) if len(filled) else 0
    is_packed = bool((displs[filled] - first == packed[filled]).all())
    bounds = 0, 0
    if len(filled):
        bounds = int(displs[filled].min()), int((displs + counts)[filled].max())
    total = int(counts.sum())
    return VectorLayout(counts.tolist(), displs.tolist(), total, first, is_packed, bounds)


def _unpack(given: Any) -> tuple[Any, Any, Any, Any]:
    """Return buffer, counts, displacements and datatype; None for those not given."""
    if not isinstance(given, list | tuple):
        return given, None, None, None
    if len(given) == 4:
        return given[0], given[1], given[2], given[3]
    datatype = None
    if len(given) == 3:
        buffer, counts, datatype = given
    else:
        buffer, counts = given
        if isinstance(counts, str | MPI.Datatype):
            return buffer, None, None, counts
    # A list holds counts; only a tuple holds counts and displacements.
    counts, displs = counts if isinstance(counts, tuple) else (counts, None)
    return buffer, counts, displs, datatype


def _numbers(given: Any, blocks: int, *, is_stride: bool = False) -> Ints:
    """Return one number per block as an array of int64.

    A single number applies to every block. If `is_stride` is True, a single number is instead
    the distance between the displacements of consecutive blocks.
    """
    if isinstance(given, list | tuple | np.ndarray) and np.ndim(given):
        numbers = np.array(given)
        if numbers.dtype.kind not in "iu":
            numbers = np.array([operator.index(one) for one in given], np.int64)
    else:
        try:
            each = operator.index(given)
        except TypeError:
            numbers = np.array([operator.index(one) for one in given], np.int64)
        else:
            return np.arange(blocks) * each if is_stride else np.full(blocks, each, np.int64)
    if numbers.shape != (blocks,):
        raise ValueError("there is not one number for every block")
    return numbers.astype(np.int64, copy=False)


def _total(sizes: Ints | None) -> int:
    """Return the sum of sizes; 0 for None."""
    return 0 if sizes is None else int(sizes.sum())
