"""Memory that plans cannot use as it is: copied by MPI itself, which knows every datatype."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.arguments import Arguments, Message
from collplan.dropin.routes import Route

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class Staged:
    """Memory that a plan reads and writes, copies where the caller's is not as it needs it.

    Parameters
    ----------
    source, target : ndarray of uint8
        Memory that has to live as long as the plan runs.
    finish : callable or None
        The rest of the work when the plan is over.
    datatype : MPI.Datatype or None
        Held until then, and to be freed after it.
    """

    source: Bytes
    target: Bytes
    finish: Callable[[], None] | None = None
    datatype: MPI.Datatype | None = None

    @property
    def addresses(self) -> tuple[int, int]:
        """Return where the plan reads and writes; 0 where it has nothing to."""
        sent_at, received_at = (
            MPI.Get_address(array) if len(array) else 0 for array in (self.source, self.target)
        )
        return sent_at, received_at


def stage(route: Route, arguments: Arguments, rank: int, *, is_held: bool = False) -> Staged:
    """Return memory for a plan where arguments are not as it needs them.

    Parameters
    ----------
    route : Route
        With a plan.
    arguments : Arguments
        This rank's.
    rank : int
        In the communicator.
    is_held : bool
        Whether the caller may free his datatypes before the end.
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
    raise MPI.Exception(MPI.ERR_TRUNCATE)


def _hold(message: Message) -> tuple[Message, MPI.Datatype | None]:
    """Return a message whose datatype stays though the caller may free it before the end."""
    buffer, count, displ, datatype = message.spec
    if datatype.is_predefined:
        return message, None
    held = datatype.Dup()
    return replace(message, spec=[buffer, count, displ, held]), held


def _unpack_all(target: Bytes, received: Message, *, fits: bool) -> None:
    """Put what a plan has left in memory of its own where this rank receives."""
    if fits:
        _unpack(target, received)
        return
    for number, block in enumerate(target.reshape(received.blocks, -1)):
        _unpack(block, received.block(number))


def _pack(message: Message) -> Bytes:
    """Return the bytes of a message's signature, one after the other."""
    n_bytes = message.n_bytes * message.blocks
    if message.is_plain(1):
        return _bytes_at(message.address, n_bytes).copy()
    packed = np.empty(n_bytes, np.uint8)
    _loop().Sendrecv(message.spec, 0, recvbuf=[packed, len(packed), MPI.BYTE], source=0)
    return packed


def _unpack(packed: Bytes, message: Message) -> None:
    """Write the bytes of a signature to their place in a message."""
    if message.is_plain(1):
        _bytes_at(message.address, len(packed))[:] = packed
        return
    buffer, _, displ, datatype = message.spec
    spec = [buffer, len(packed) // message.element.size, displ, datatype]
    _loop().Sendrecv([packed, len(packed), MPI.BYTE], 0, recvbuf=spec, source=0)


def _is_target(arguments: Arguments, itemsize: int) -> bool:
    """Return whether a plan can write where this rank receives."""
    received = arguments.received
    return received is not None and not arguments.surplus_bytes and received.is_plain(itemsize)


def _target_of(arguments: Arguments, n_bytes: int, itemsize: int) -> Bytes:
    """Return where the plan writes on this rank."""
    received = arguments.received
    if n_bytes == 0:
        return _NOTHING
    if received is None or arguments.surplus_bytes:  # scatter in place: what comes is there already
        return np.empty(n_bytes, np.uint8)
    if _is_target(arguments, itemsize):
        return _bytes_at(received.address, n_bytes)
    # What the plan does not write stays: the root's broadcast, exscan's first.
    return _pack(received)


def _own_input(arguments: Arguments, route: Route) -> Bytes:
    """Return a copy of this rank's input, which MPI_IN_PLACE leaves where results go."""
    received, skip, n_bytes = arguments.received, route.skip, route.sent_bytes
    assert received is not None
    if received.is_plain(1):
        return _bytes_at(received.address + skip, n_bytes).copy()
    return _pack(received)[skip : skip + n_bytes].copy()


def _bytes_at(address: int, n_bytes: int) -> Bytes:
    """Return the memory at an address as an array, which keeps nothing alive."""
    there: Any = MPI.buffer.fromaddress(address, n_bytes)
    return np.frombuffer(there, np.uint8)


def _loop() -> MPI.Intracomm:
    """Return a communicator of this rank and thread alone, which nobody else knows."""
    return _loop_of(threading.get_ident())


@cache
def _loop_of(_thread: int) -> MPI.Intracomm:
    return MPI.Intracomm(MPI.COMM_SELF).Dup()


_NOTHING: Bytes = np.empty(0, np.uint8)
