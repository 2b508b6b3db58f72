"""Memory of a plan in flight: the caller's own, or copies where that is not as plans need it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.signatures import Arguments
from collplan.dropin.staging import own_input, pack, target_of, unpack_all

if TYPE_CHECKING:
    from collplan.dropin.routes import ProgramRoute

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class Staged:
    """What a program reads and writes.

    Parameters
    ----------
    source, target : ndarray of uint8
        What is to live as long as the program is in flight.
    finish : callable or None
        What is left to do when the program is over.
    datatype : MPI.Datatype or None
        Held until then, and to be freed after it.
    """

    source: Bytes
    target: Bytes
    finish: Callable[[], None] | None = None
    datatype: MPI.Datatype | None = None


def stage(way: ProgramRoute, arguments: Arguments, rank: int) -> Staged:
    """Return memory for a program where arguments are not as it needs them.

    Parameters
    ----------
    way : ProgramRoute
        With a program.
    arguments : Arguments
        This rank's.
    rank : int
        In the communicator.
    """
    itemsize, sent = way.itemsize, arguments.sent
    target = target_of(arguments, way.received_bytes, itemsize)
    source = np.empty(0, np.uint8)
    if way.sent_bytes:
        source = own_input(arguments, way.sent_bytes, rank) if sent is None else pack(sent)
    staged = Staged(source, target)
    is_input = arguments.kind.traits.has_one_buffer and rank == way.request.root
    if arguments.is_truncated:
        staged.finish = _refuse
    elif not is_input and not _is_written_by_plan(arguments, itemsize) and len(target):
        held, staged.datatype = _hold(arguments)
        staged.finish = lambda: unpack_all(target, held, itemsize)
    return staged


def _is_written_by_plan(arguments: Arguments, itemsize: int) -> bool:
    received = arguments.received
    return received is None or (arguments.fits and received.is_plain(itemsize))


def _refuse() -> None:
    raise MPI.Exception(MPI.ERR_TRUNCATE)


def _hold(arguments: Arguments) -> tuple[Arguments, MPI.Datatype | None]:
    """Return arguments whose datatype stays though the caller may free it before the end."""
    assert arguments.received is not None
    buffer, count, displ, datatype = arguments.received.spec
    if datatype.is_predefined:
        return arguments, None
    held = datatype.Dup()
    received = replace(arguments.received, spec=[buffer, count, displ, held])
    return replace(arguments, received=received), held
