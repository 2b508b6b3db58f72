"""Arguments of collectives whose counts differ per rank, understood as mpi4py does."""

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

from collplan.dropin.arguments import Arguments, Kind, Message, is_in_place, locate, read_message
from collplan.dropin.elements import Element, element_of
from collplan.rank_counts import RankCounts

Ints = npt.NDArray[np.integer[Any]]


@dataclass(slots=True)  # not frozen: made at every call
class VectorMessage(Message):
    """A buffer of a block for every rank, of which counts and places differ.

    Blocks that lie one after another are a message like any other. Others are one element of
    a datatype that `VectorArguments.described` makes.

    Parameters
    ----------
    sizes : ndarray of int64
        Bytes of the signature of each block.
    apart : tuple or None
        Datatype, counts and displacements where blocks lie apart, or elements have gaps.
    """

    sizes: Ints | None = None
    apart: tuple[MPI.Datatype, list[int], list[int]] | None = None


@dataclass(slots=True)
class VectorArguments(Arguments):
    """One rank's buffers and counts in one call.

    Parameters
    ----------
    counts : RankCounts
        In bytes.
    element : str or None
        What is reduced.
    n_bytes : int
        Of this rank's block; of alltoallv, of all that it sends.
    """

    counts: RankCounts
    element: str | None
    n_bytes: int

    @property
    def surplus_bytes(self) -> int:
        """Return 0: that blocks have the same size at both ends, ranks see together."""
        return 0

    @contextmanager
    def described(self) -> Iterator[None]:
        """Give messages whose blocks lie apart a datatype for as long as they are used."""
        made = []
        for message in (self.sent, self.received):
            if isinstance(message, VectorMessage) and message.apart is not None:
                datatype, counts, displs = message.apart
                whole = datatype.Create_indexed(counts, displs).Commit()
                made.append(whole)
                message.spec = [message.spec[0], 1, 0, whole]
        try:
            yield
        finally:
            for whole in made:
                whole.Free()


def read_vector_arguments(
    kind: Kind, sendbuf: Any, recvbuf: Any, recvcounts: Any, root: int, rank: int, size: int
) -> VectorArguments:
    """Return what this rank's arguments are.

    Raises
    ------
    Exception
        Of any type, where mpi4py refuses the arguments, too.
    """
    if not 0 <= root < size:
        raise ValueError("there is no such root")
    traits = kind.traits
    if traits.has_op:
        return _read_reduction(kind, sendbuf, recvbuf, recvcounts, rank, size)
    sends, receives = kind.used_by_root if rank == root else kind.used_by_others
    # Where only the root receives, or sends, it alone may say that its block is in place.
    gives_in_place = receives and traits.sender == "all" and is_in_place(sendbuf)
    takes_in_place = sends and traits.sender == "root" and is_in_place(recvbuf)
    sent = received = None
    if sends and not gives_in_place:
        sent = _read(sendbuf, size if traits.sends_blocks else 0, is_written=False)
    if receives and not takes_in_place:
        received = _read(recvbuf, size if traits.receives_blocks else 0, is_written=True)
    counts = _counts_of(kind, sent, received, root)
    if traits.is_pairwise:
        n_bytes = _total(counts.received if counts.counts is None else counts.counts)
    elif counts.own is not None:
        n_bytes = counts.own
    else:
        assert counts.counts is not None
        n_bytes = int(counts.counts[rank])
    in_place = gives_in_place or takes_in_place
    return VectorArguments(kind, sent, received, in_place, counts, None, n_bytes)


def _counts_of(kind: Kind, sent: Message | None, received: Message | None, root: int) -> RankCounts:
    """Return the counts that messages tell, in bytes."""
    given = [getattr(one, "sizes", None) for one in (sent, received)]
    if kind.traits.is_pairwise:
        return RankCounts(kind.name, given[0], received=given[1])
    blocks, part = (sent, received) if kind.traits.sends_blocks else (received, sent)
    counts = None if blocks is None else getattr(blocks, "sizes", None)
    return RankCounts(kind.name, counts, None if part is None else part.n_bytes, root=root)


def _read_reduction(
    kind: Kind, sendbuf: Any, recvbuf: Any, recvcounts: Any, rank: int, size: int
) -> VectorArguments:
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
    told = RankCounts(kind.name, counts, own)
    return VectorArguments(kind, sent, received, in_place, told, whole.element.name, n_bytes)


def _read(given: Any, blocks: int, *, is_written: bool) -> Message:
    """Return a message of a number of blocks, or a plain one for 0 blocks."""
    if not blocks:
        return read_message(given, 1, is_written=is_written)
    buffer, counts, displs, datatype = _unpack(given)
    address, length, is_reachable, datatype = locate(buffer, datatype, is_written=is_written)
    element = element_of(datatype)
    if counts is None:
        # mpi4py deals elements to blocks, one more to the first ones.
        n_elements, rest = divmod(length, element.extent) if length else (0, 0)
        if rest:
            raise ValueError("the buffer is not a whole number of elements")
        counts = [n_elements // blocks + (n_elements % blocks > i) for i in range(blocks)]
    counts = _numbers(counts, blocks)
    displs = None if displs is None else _numbers(displs, blocks, is_stride=True)
    layout = _layout(counts.tobytes(), None if displs is None else displs.tobytes())
    total, first = layout.total, layout.first
    sizes = counts if element.size == 1 else counts * element.size
    spec = [buffer, total, first, datatype]
    if not total or (layout.is_packed and element.is_plain and is_reachable):
        at = address + first * element.extent
        return VectorMessage(at, total, 1, element, spec, is_reachable, sizes)
    n_bytes = total * element.size
    whole = Element(n_bytes, n_bytes, False)
    apart = datatype, layout.counts, layout.displs
    return VectorMessage(address, 1, 1, whole, spec, is_reachable, sizes, apart)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Blocks in a buffer: all their elements, where the first begins, whether there are no gaps."""

    counts: list[int]
    displs: list[int]
    total: int
    first: int
    is_packed: bool


@lru_cache(1024)
def _layout(raw_counts: bytes, raw_displs: bytes | None) -> _Layout:
    """Return the layout of blocks, given their numbers: most calls have those of an earlier one."""
    counts = np.frombuffer(raw_counts, np.int64)
    if (counts < 0).any():
        raise ValueError("a count is negative")
    packed = np.cumsum(counts) - counts
    displs = packed if raw_displs is None else np.frombuffer(raw_displs, np.int64)
    filled = np.flatnonzero(counts)
    first = int(displs[filled[0]]) if len(filled) else 0
    is_packed = bool((displs[filled] - first == packed[filled]).all())
    return _Layout(counts.tolist(), displs.tolist(), int(counts.sum()), first, is_packed)


def _unpack(given: Any) -> tuple[Any, Any, Any, Any]:
    """Return buffer, counts, displacements and datatype, None where they are not given."""
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
    # A list is of counts; only a tuple has counts and displacements.
    counts, displs = counts if isinstance(counts, tuple) else (counts, None)
    return buffer, counts, displs, datatype


def _numbers(given: Any, blocks: int, *, is_stride: bool = False) -> Ints:
    """Return a number per block; one number is that of all, or what is from one to the next."""
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
    return 0 if sizes is None else int(sizes.sum())
