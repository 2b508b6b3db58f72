"""What finds a call again: the arguments as they look, without what MPI would say of them."""

from __future__ import annotations

import array
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.dropin.elements import KNOWN, element_of
from collplan.dropin.signatures import Kind

Key = tuple[Any, ...]
Part = tuple[Any, ...]

IN_PLACE_AT: Final = -1
"""Instead of an address: the argument stands for MPI_IN_PLACE."""
_IN_PLACE: Final[tuple[Part, int]] = ("in place",), IN_PLACE_AT
_UNUSED: Final[tuple[Part, int]] = (), 0
_ARRAY: Final = np.ndarray
_DATATYPE: Final = MPI.Datatype
_MARK: Final = MPI.IN_PLACE
_SEQUENCES: Final = frozenset((list, tuple))
_BYTES: Final = frozenset((bytearray, bytes))
_MEMORY: Final = frozenset((np.ndarray, bytearray, bytes, memoryview, array.array))
"""Whose memory is the processor's, and described by Python's buffer protocol alone."""
_COUNTS: Final = frozenset((int, np.int64, np.int32, type(None)))
_view: Final = MPI.buffer.frombuffer


def find_key(
    kind: Kind, sendbuf: Any, recvbuf: Any, op: MPI.Op | None, root: int, rank: int
) -> tuple[Key, int, int] | None:
    """Return what finds a call again, and where its buffers are; None if nothing can.

    The key says nothing of where they are, and everything else that decides what is run:
    two calls with one key differ in addresses alone. What is read of a buffer is read at
    every call, so that one that was freed, resized or made read-only is seen.

    Parameters
    ----------
    kind : Kind
    sendbuf, recvbuf : object
        As the caller gave them.
    op : MPI.Op or None
    root, rank : int
        The call's, and this one.

    Returns
    -------
    tuple of (key, int, int) or None
        Addresses are `IN_PLACE_AT` for what stands for MPI_IN_PLACE, 0 for what this rank
        does not use.
    """
    sends, receives = kind.uses[root == rank]
    try:
        sent = _look(sendbuf, True) if sends else _UNUSED
        received = _look(recvbuf, False) if receives else _UNUSED
        handle = None if op is None else op.handle
    except Exception:  # mpi4py is to say what is wrong
        return None
    if sent is None or received is None:
        return None
    key = kind.name, root, handle, sent[0], received[0]
    return key, sent[1], received[1]


def _look(given: Any, is_read: bool) -> tuple[Part, int] | None:
    """Return all that matters of an argument but its address, and that."""
    form = type(given)
    if form is _ARRAY:
        there = _view(given, is_read)
        return (there.nbytes, given.dtype), there.address
    if given is None or given is _MARK:
        return _IN_PLACE
    if form in _SEQUENCES:
        return _look_into(given, is_read)
    if form in _BYTES:
        there = _view(given, is_read)
        return (there.nbytes, bytes), there.address
    return None


def _look_into(given: Any, is_read: bool) -> tuple[Part, int] | None:
    """Return the same of a list or tuple with an array, a count, a displacement, a datatype."""
    found = _unpack(given)
    if found is None:
        return None
    buffer, count, displ, datatype = found
    form = type(buffer)
    if form not in _MEMORY or type(count) not in _COUNTS or type(displ) not in _COUNTS:
        return None
    named: Any
    extent = 0
    if type(datatype) is _DATATYPE:
        element = KNOWN.get(datatype.handle)
        if element is None:
            return None
        named, extent = element.number, element.extent
    elif datatype is None and form is _ARRAY:
        named, extent = buffer.dtype, buffer.itemsize
    elif type(datatype) is str:
        named = datatype
        if displ:
            extent = element_of(MPI._typedict[datatype]).extent
    else:
        return None
    there = _view(buffer, is_read)
    if not displ:
        return (there.nbytes, count, named), there.address
    return (there.nbytes, count, named, displ), there.address + displ * extent


def _unpack(given: Any) -> tuple[Any, Any, Any, Any] | None:
    """Return buffer, count, displacement and datatype, None where they are not given."""
    if len(given) == 2:
        buffer, second = given
        form = type(second)
        if form is _DATATYPE or form is str:
            return buffer, None, None, second
        if form in _COUNTS:
            return buffer, second, None, None
        if form in _SEQUENCES and len(second) == 2:
            return buffer, second[0], second[1], None
    elif len(given) == 3:
        buffer, second, datatype = given
        if type(second) in _SEQUENCES and len(second) == 2:
            return buffer, second[0], second[1], datatype
        return buffer, second, None, datatype
    elif len(given) == 4:
        return given[0], given[1], given[2], given[3]
    return None
