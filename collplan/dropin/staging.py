"""Copies of buffers that plans cannot use directly.

MPI packs and unpacks buffers of derived datatypes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.arguments import Arguments, BufferArgument
from collplan.dropin.routes import Route

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class Staged:
    """Buffers for one run of a plan: the buffers of the caller, or copies of them.

    Parameters
    ----------
    source, target : ndarray of uint8
        Memory that the plan reads and writes; it must stay alive while the plan runs.
    finish : callable or None
        Function to call when the plan has ended. It copies results to the caller's buffer, or
        raises the error for a receive buffer that is too small.
    datatype : MPI.Datatype or None
        Duplicate of the caller's datatype for `finish`, to be freed after that function has run.
    """

    source: Bytes
    target: Bytes
    finish: Callable[[], None] | None = None
    datatype: MPI.Datatype | None = None

    @property
    def addresses(self) -> tuple[int, int]:
        """Addresses of `source` and `target`; 0 for an empty buffer."""
        sent_at, received_at = (
            MPI.Get_address(array) if len(array) else 0 for array in (self.source, self.target)
        )
        return sent_at, received_at


def stage(route: Route, arguments: Arguments, rank: int, *, is_held: bool = False) -> Staged:
    """Return buffers for a plan, with copies of buffers that it cannot use directly.

    Parameters
    ----------
    route : Route
        Route with a plan.
    arguments : Arguments
        Buffers of this rank.
    rank : int
        This rank in the communicator.
    is_held : bool
        Whether to duplicate datatypes, because the caller of a non-blocking collective may free
        them before the plan ends.
    """
    itemsize, sent, received = route.itemsize, arguments.sent, arguments.received
    target = _target_of(arguments, route.received_bytes, itemsize)
    source = _NOTHING
    if route.sent_bytes:
        source = _own_input(arguments, route) if sent is None else _pack(sent)
    staged = Staged(source, target)
    is_input = arguments.kind.traits.has_one_buffer and rank == route.call.root
    if arguments.surplus_bytes < 0:
        staged.finish = _refuse
    elif len(target) and received and not (is_input or _is_target(arguments, itemsize)):
        if is_held:
            received, staged.datatype = _hold(received)
        fits = not arguments.surplus_bytes
        staged.finish = partial(_unpack_all, target, received, fits=fits)
    return staged


def _refuse() -> None:
    """Raise MPI's error for a receive buffer that is too small."""
    raise MPI.Exception(MPI.ERR_TRUNCATE)


def _hold(message: BufferArgument) -> tuple[BufferArgument, MPI.Datatype | None]:
    """Return a message with a duplicate of its datatype, and the duplicate.

    Predefined datatypes cannot be freed; their message is returned unchanged, with None.
    """
    buffer, count, displ, datatype = message.spec
    if datatype.is_predefined:
        return message, None
    held = datatype.Dup()
    return replace(message, spec=[buffer, count, displ, held]), held


def _unpack_all(target: Bytes, received: BufferArgument, *, fits: bool) -> None:
    """Copy the results of a plan to the receive buffer.

    Parameters
    ----------
    target : ndarray of uint8
        Results of the plan.
    received : BufferArgument
        Receive buffer of the caller.
    fits : bool
        Whether the blocks of `target` and `received` have equal sizes. Otherwise, the blocks of
        `received` are larger.
    """
    if fits:
        _unpack(target, received)
        return
    for number, block in enumerate(target.reshape(received.blocks, -1)):
        _unpack(block, received.block(number))


def _pack(message: BufferArgument) -> Bytes:
    """Return a contiguous copy of the data of a message."""
    n_bytes = message.n_bytes * message.blocks
    if message.is_plain(1):
        return _bytes_at(message.address, n_bytes).copy()
    packed = np.empty(n_bytes, np.uint8)
    _loop().Sendrecv(message.spec, 0, recvbuf=[packed, len(packed), MPI.BYTE], source=0)
    return packed


def _unpack(packed: Bytes, message: BufferArgument) -> None:
    """Copy contiguous data to the buffer of a message."""
    if message.is_plain(1):
        _bytes_at(message.address, len(packed))[:] = packed
        return
    buffer, _, displ, datatype = message.spec
    spec = [buffer, len(packed) // message.element.size, displ, datatype]
    _loop().Sendrecv([packed, len(packed), MPI.BYTE], 0, recvbuf=spec, source=0)


def _is_target(arguments: Arguments, itemsize: int) -> bool:
    """Return whether a plan can write to the receive buffer directly."""
    received = arguments.received
    return received is not None and not arguments.surplus_bytes and received.is_plain(itemsize)


def _target_of(arguments: Arguments, n_bytes: int, itemsize: int) -> Bytes:
    """Return the memory to which the plan writes on this rank."""
    received = arguments.received
    if n_bytes == 0:
        return _NOTHING
    # The root of an in-place scatter needs no result. `_unpack_all` copies blocks whose sizes
    # differ.
    if received is None or arguments.surplus_bytes:
        return np.empty(n_bytes, np.uint8)
    if _is_target(arguments, itemsize):
        return _bytes_at(received.address, n_bytes)
    # Plans read the previous contents on the root of a broadcast, and do not change them on the
    # first rank of an exscan.
    return _pack(received)


def _own_input(arguments: Arguments, route: Route) -> Bytes:
    """Return a copy of this rank's MPI_IN_PLACE input, which is in the receive buffer."""
    received, skip, n_bytes = arguments.received, route.skip, route.sent_bytes
    assert received is not None
    if received.is_plain(1):
        return _bytes_at(received.address + skip, n_bytes).copy()
    return _pack(received)[skip : skip + n_bytes].copy()


def _bytes_at(address: int, n_bytes: int) -> Bytes:
    """Return the memory at an address as an array that does not keep the memory alive."""
    memory: Any = MPI.buffer.fromaddress(address, n_bytes)
    return np.frombuffer(memory, np.uint8)


def _loop() -> MPI.Intracomm:
    """Return a communicator that contains only this rank and that only this thread uses."""
    return _loop_of(threading.get_ident())


@cache
def _loop_of(_thread: int) -> MPI.Intracomm:
    return MPI.Intracomm(MPI.COMM_SELF).Dup()


_NOTHING: Bytes = np.empty(0, np.uint8)
