"""Memory that plans cannot use as it is: copied by MPI itself, which knows every datatype."""

from __future__ import annotations

import threading
from functools import cache

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.arguments import Message, array_at
from collplan.dropin.routes import Route
from collplan.dropin.signatures import Arguments

Bytes = npt.NDArray[np.uint8]


def run_staged(entry: Route, arguments: Arguments, rank: int) -> None:
    """Run an entry's plan where arguments are not as the plan needs them.

    This rank takes part in the plan as all others do, with copies of its buffers.

    Parameters
    ----------
    entry : Route
        With a plan.
    arguments : Arguments
        This rank's.
    rank : int
        In the communicator.

    Raises
    ------
    MPI.Exception
        Of class ``ERR_TRUNCATE``, if less is to be received than is sent: when this rank has
        taken part, so that others need not wait for it.
    """
    itemsize = entry.itemsize
    sent = arguments.sent
    target = target_of(arguments, entry.received_bytes, itemsize)
    if entry.sent_bytes == 0:
        source = _NOTHING
    elif sent is None:
        source = own_input(arguments, entry.sent_bytes, rank)
    else:
        source = pack(sent)
    is_usable = entry.use(_address(source), _address(target))
    assert is_usable, "copies are aligned, and other memory was looked at"
    assert entry.bound is not None
    entry.bound()
    if arguments.is_truncated:
        raise MPI.Exception(MPI.ERR_TRUNCATE)
    if not (arguments.kind.traits.has_one_buffer and rank == entry.request.root):
        unpack_all(target, arguments, itemsize)


def unpack_all(target: Bytes, arguments: Arguments, itemsize: int) -> None:
    """Put what a plan has left in `target_of` its arguments where this rank receives."""
    received = arguments.received
    if received is None or _is_target(arguments, itemsize) or not len(target):
        return
    if arguments.fits:
        unpack(target, received, len(target))
        return
    for number, block in enumerate(target.reshape(received.blocks, -1)):
        unpack(block, received.block(number), len(block))


def pack(message: Message) -> Bytes:
    """Return the bytes of a message's signature, one after the other."""
    n_bytes = message.n_bytes * message.blocks
    if message.element.is_plain and message.is_reachable:
        return array_at(message.address, n_bytes, _BYTE).copy()
    packed = np.empty(n_bytes, np.uint8)
    _loop().Sendrecv(message.spec, 0, recvbuf=[packed, len(packed), MPI.BYTE], source=0)
    return packed


def unpack(packed: Bytes, message: Message, n_bytes: int) -> None:
    """Put so many bytes of a signature where a message has them."""
    if message.element.is_plain and message.is_reachable:
        array_at(message.address, n_bytes, _BYTE)[:] = packed[:n_bytes]
        return
    buffer, _, displ, datatype = message.spec
    spec = [buffer, n_bytes // message.element.size, displ, datatype]
    _loop().Sendrecv([packed, n_bytes, MPI.BYTE], 0, recvbuf=spec, source=0)


def _is_target(arguments: Arguments, itemsize: int) -> bool:
    """Return whether a plan can write where this rank receives."""
    received = arguments.received
    return received is not None and arguments.fits and received.is_plain(itemsize)


def target_of(arguments: Arguments, n_bytes: int, itemsize: int) -> Bytes:
    """Return where the plan writes on this rank."""
    received = arguments.received
    if n_bytes == 0:
        return _NOTHING
    if received is None or not arguments.fits:  # scatter in place: what comes is there already
        return np.empty(n_bytes, np.uint8)
    if _is_target(arguments, itemsize):
        return array_at(received.address, n_bytes, _BYTE)
    # What the plan does not write stays: the root's broadcast, exscan's first.
    return pack(received)


def own_input(arguments: Arguments, n_bytes: int, rank: int) -> Bytes:
    """Return a copy of this rank's input, which MPI_IN_PLACE leaves where results go."""
    received = arguments.received
    assert received is not None
    skip = rank * n_bytes if arguments.kind.sends_own_block else 0
    if received.element.is_plain and received.is_reachable:
        return array_at(received.address + skip, n_bytes, _BYTE).copy()
    return pack(received)[skip : skip + n_bytes].copy()


def _address(array: Bytes) -> int:
    return MPI.Get_address(array) if len(array) else 0


def _loop() -> MPI.Intracomm:
    """Return a communicator of this rank and thread alone, which nobody else knows."""
    return _loop_of(threading.get_ident())


@cache
def _loop_of(_thread: int) -> MPI.Intracomm:
    return MPI.Intracomm(MPI.COMM_SELF).Dup()


_BYTE = np.dtype(np.uint8)
_NOTHING: Bytes = np.empty(0, np.uint8)
