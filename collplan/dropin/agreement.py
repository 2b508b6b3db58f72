"""Agreement of all ranks on a call: whether all bring the same, and who runs an old plan."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.calls import CollectiveCall
from collplan.dropin.routes import Route
from collplan.executors.mpi.engine.engine import this_thread
from collplan.specs import COLLECTIVES, CollplanError

Words = npt.NDArray[np.int64]

_SPINS: Final = 200
"""Looks in a row before a rank leaves its core to others between them."""
_SLEEP_S: Final = 50e-6
_PATIENCE_S: Final = 2.0
"""Longest delay between the messages of a missed plan and those of the next one."""
_ARRIVING_S: Final = 0.5
"""Longest time that sent messages may take to arrive."""
_unfinished: list[tuple[MPI.Request, Words, Words]] = []
"""Meetings to which not all ranks came: MPI may still write there."""


class Different(Exception):
    """Ranks bring different calls.

    Parameters
    ----------
    calls : list of CollectiveCall
        Of all ranks.
    """

    def __init__(self, calls: list[CollectiveCall]) -> None:
        super().__init__()
        self.calls = calls


class Meetings:
    """Meetings of all ranks of a communicator, one for each call that is new to them.

    A rank whose call other ranks have met about before, since they ask for another size
    than it does, would wait for ever. It sees that they have started that plan, while the
    meeting does not end.

    Parameters
    ----------
    comm : MPI.Intracomm
        For meetings, and nothing else that does not block.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._begun: tuple[MPI.Request, Words, Words] | None = None

    def all_bring(self, call: CollectiveCall, kept: Collection[Route]) -> None:
        """Return if all ranks bring the same call; collective.

        Parameters
        ----------
        call : CollectiveCall
            This rank's.
        kept : collection of Route
            The plans that ranks have.

        Raises
        ------
        MPI.Exception
            Of class ``ERR_TRUNCATE``, where others send more than this rank has room for.
        Different
            If ranks bring different calls; on all that have come.
        CollplanError
            If others are in another collective.
        """
        while not self._is_same(call, kept):
            calls = self._comm.allgather(call)
            if all(one == call for one in calls):
                return
            # Others may have gone on, and meet about what comes after the plan that one missed.
            missed = _missed(call, kept)
            is_any_missed = self._comm.allreduce(missed is not None, MPI.LOR)
            if missed is not None:
                _catch_up(call, missed)
            if not is_any_missed:
                raise Different(calls)

    def _is_same(self, call: CollectiveCall, kept: Collection[Route]) -> bool:
        """Meet once; return whether all ranks brought the same digest."""
        # One that ranks did not come to is left for the next call; digests differ then.
        begun = self._begun = self._begun or self._begin(call)
        n_looks, seen_s = 0, 0.0
        while not begun[0].Test():
            n_looks += 1
            # Others may have to complete what was started before, to come here.
            for engine in this_thread.engines.copy():
                engine.advance()
            if n_looks > _SPINS:
                seen_s = _look(call, kept, seen_s)
                time.sleep(_SLEEP_S)
        self._begun = None
        return int(begun[2][0]) == ~int(begun[2][1])

    def end(self) -> None:
        """Forget the communicator, which may be freed then."""
        if self._begun is not None:
            _unfinished.append(self._begun)
            self._begun = None

    def _begin(self, call: CollectiveCall) -> tuple[MPI.Request, Words, Words]:
        code = hashlib.blake2b(repr(call).encode(), digest_size=7).digest()
        digest = int.from_bytes(code, "little")
        # The minimum of complements is the complement of the maximum.
        mine = np.array([digest, ~digest], np.int64)
        least = np.empty_like(mine)
        return self._comm.Iallreduce(mine, least, MPI.MIN), mine, least


def _look(call: CollectiveCall, kept: Collection[Route], seen_s: float) -> float:
    """Raise what is wrong if others run an old plan; return since when one is seen, 0 if none."""
    expected = _expected(kept)
    now_s = time.monotonic()
    if not expected or not seen_s:
        return now_s if expected else 0.0
    # Others may have left the meeting that this rank has not seen the end of, and have gone on
    # to the plan: then the meeting ends here, too.
    if now_s - seen_s > _ARRIVING_S:
        for route in expected:
            if _is_resized(call, route.call):
                _catch_up(call, route)
    # Others may have gone on to what comes after the plan that this rank missed.
    if now_s - seen_s > _PATIENCE_S:
        raise CollplanError(_dispute(call, expected[0].call))
    return seen_s


def combine(comm: MPI.Intracomm, words: Any, op: MPI.Op = MPI.SUM) -> None:
    """Combine all ranks' numbers in place; collective, and advances what ranks have started."""
    if not this_thread.engines:
        comm.Allreduce(MPI.IN_PLACE, words, op)
        return
    # Others may have to complete what was started before, to come here.
    request = comm.Iallreduce(MPI.IN_PLACE, words, op)
    while not request.Test():
        for engine in this_thread.engines.copy():
            engine.advance()


def _missed(call: CollectiveCall, kept: Collection[Route]) -> Route | None:
    """Return the plan that others have run and this rank asked for in another size, if any."""
    resized = [route for route in kept if _is_resized(call, route.call)]
    end_s = time.monotonic() + _ARRIVING_S
    while resized and time.monotonic() < end_s:
        for route in _expected(resized):
            return route
        time.sleep(_SLEEP_S)
    return None


def _expected(kept: Collection[Route]) -> list[Route]:
    return [one for one in kept if one.bound is not None and one.bound.is_expected]


def _catch_up(call: CollectiveCall, route: Route) -> NoReturn:
    """Take part in a plan on memory of its own, so that others need not wait; raise the error."""
    sendbuf = np.zeros(route.sent_bytes + route.itemsize, np.uint8)
    recvbuf = np.empty(route.received_bytes + route.itemsize, np.uint8)
    places = (MPI.Get_address(one) for one in (sendbuf, recvbuf))
    route.use(*(place + -place % route.itemsize for place in places))
    assert route.bound is not None
    route.bound()
    raise _misfit(call, route.call)


def run_different(
    comm: Any, native: Any, given: tuple[Any, ...], rank: int, calls: Sequence[CollectiveCall]
) -> None:
    """Do natively what ranks can do together that ask for different sizes; collective.

    Where one rank sends, all get what there is, and those whose buffers do not fit get it
    elsewhere: none waits for another.

    Raises
    ------
    MPI.Exception, CollplanError
        What is wrong with this rank's buffers; on all ranks where several send.
    """
    mine = calls[rank]
    root = calls[mine.root]
    others = [one for one in calls if one != root]
    traits = COLLECTIVES[mine.kind]
    if traits.sender != "root" or not all(_is_resized(one, root) for one in others):
        raise CollplanError(_dispute(mine, next(one for one in calls if one != mine)))
    if mine == root:
        native(comm, *given)
        return
    room = [np.empty(root.n_bytes, np.uint8), MPI.BYTE]
    native(comm, *([room] if traits.has_one_buffer else [None, room]), mine.root)
    raise _misfit(mine, root)


def _is_resized(mine: CollectiveCall, theirs: CollectiveCall) -> bool:
    """Return whether two calls differ in size alone, and move what one rank has."""
    is_same = (mine.kind, mine.root) == (theirs.kind, theirs.root)
    return is_same and theirs.op is None and mine.n_bytes != theirs.n_bytes


def _misfit(mine: CollectiveCall, theirs: CollectiveCall) -> Exception:
    """Return the error of a rank that has room for less, or for more, than is sent."""
    if mine.n_bytes < theirs.n_bytes:
        return MPI.Exception(MPI.ERR_TRUNCATE)
    return CollplanError(_dispute(mine, theirs))


def _dispute(mine: CollectiveCall, theirs: CollectiveCall) -> str:
    own, other = (f"{one.kind} of {one.n_bytes} bytes" for one in (mine, theirs))
    for name in ("root", "op", "element"):
        if getattr(mine, name) != getattr(theirs, name):
            own += f", {name} {getattr(mine, name)}"
            other += f", {name} {getattr(theirs, name)}"
    return f"this rank calls {own}, another one {other}; all ranks must call the same"
