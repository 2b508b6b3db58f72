"""Whether all ranks bring the same request, and who runs an old plan meanwhile."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from executors.mpi.running import this_thread
from specs import CollplanError

if TYPE_CHECKING:
    from executors.comm.plans import Entry, Request

Words = npt.NDArray[np.int64]

_SPINS: Final = 200
"""Looks in a row before a rank leaves its core to others between them."""
_SLEEP_S: Final = 50e-6
_unfinished: list[tuple[MPI.Request, Words, Words]] = []
"""Meetings to which not all ranks came: MPI may still write there."""


class Meetings:
    """Meetings of all ranks of a communicator, one for each request that is new to them.

    A rank whose request other ranks have met about before, since they ask for another size
    than it does, would wait for ever. It sees that they have started that plan: until all
    have met, none of them can be further than in the same call.

    Parameters
    ----------
    comm : MPI.Intracomm
        For meetings, and nothing else that does not block.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._begun: tuple[MPI.Request, Words, Words] | None = None

    def all_bring(self, request: Request, kept: Collection[Entry]) -> bool:
        """Return whether all ranks bring a request; collective.

        Parameters
        ----------
        request : Request
            This rank's.
        kept : collection of Entry
            The plans that ranks have.

        Raises
        ------
        MPI.Exception
            Of class ``ERR_TRUNCATE``, where others send more than this rank has room for.
        CollplanError
            If others are in another collective.
        """
        # One that ranks did not come to is left for the next request; digests differ then.
        begun = self._begun = self._begun or self._begin(request)
        n_looks = 0
        while not begun[0].Test():
            n_looks += 1
            # Others may have to complete what was started before, to come here.
            for engine in this_thread.engines.copy():
                engine.advance()
            if n_looks > _SPINS:
                for entry in kept:
                    if entry.bound is not None and entry.bound.is_expected:
                        _refuse(request, entry)
                time.sleep(_SLEEP_S)
        self._begun = None
        least, most = (int(word) for word in begun[2])
        return least == ~most == _digest(request)

    def end(self) -> None:
        """Forget the communicator, which may be freed then."""
        if self._begun is not None:
            _unfinished.append(self._begun)
            self._begun = None

    def _begin(self, request: Request) -> tuple[MPI.Request, Words, Words]:
        digest = _digest(request)
        # The minimum of complements is the complement of the maximum.
        mine = np.array([digest, ~digest], np.int64)
        least = np.empty_like(mine)
        return self._comm.Iallreduce(mine, least, MPI.MIN), mine, least


def _digest(request: Request) -> int:
    digest = hashlib.blake2b(repr(request).encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "little")


def _refuse(request: Request, entry: Entry) -> None:
    """Raise what is wrong where other ranks run an entry's plan, and this one asks for another."""
    theirs = entry.request
    is_same = (theirs.kind, theirs.root) == (request.kind, request.root)
    if is_same and theirs.op is None and theirs.n_bytes > request.n_bytes:
        # As natively, this rank takes part, so that the others need not wait for it.
        sendbuf = np.zeros(entry.sent_bytes + entry.itemsize, np.uint8)
        recvbuf = np.empty(entry.received_bytes + entry.itemsize, np.uint8)
        places = (MPI.Get_address(one) for one in (sendbuf, recvbuf))
        entry.use(*(place + -place % entry.itemsize for place in places))
        assert entry.bound is not None
        entry.bound()
        raise MPI.Exception(MPI.ERR_TRUNCATE)
    raise CollplanError(
        f"this rank calls {request.kind} of {request.n_bytes} bytes, another one is in "
        f"{theirs.kind} of {theirs.n_bytes} bytes; all ranks have to call the same"
    )
