"""Agreement of all ranks on a call that is new to their communicator.

Ranks that make different calls would wait for each other forever. In a *meeting*, ranks compare
their calls to detect such an error. Ranks that repeat an earlier call take part in no meeting;
the error is detected in this case, too.
"""

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
"""Number of polls after which a rank sleeps between polls of a meeting."""
_SLEEP_S: Final = 50e-6
_PATIENCE_S: Final = 2.0
"""Time in seconds for which messages of a missed plan may arrive after those of a later plan."""
_ARRIVING_S: Final = 0.5
"""Time limit in seconds for the arrival of sent messages."""
_unfinished: list[tuple[MPI.Request, Words, Words]] = []
"""Meetings that some ranks did not join; their buffers stay alive, as MPI may write to them."""


class DifferentCalls(Exception):
    """Signal that ranks make different calls.

    Parameters
    ----------
    calls : list of CollectiveCall
        Call of each rank.
    """

    def __init__(self, calls: list[CollectiveCall]) -> None:
        super().__init__()
        self.calls = calls


class Meetings:
    """Meetings of all ranks of a communicator, one for each call that is new to them.

    A meeting is a non-blocking allreduce of digests of the ranks' calls. If this rank alone
    passes a new size, the other ranks skip the meeting and start their plan. This rank then
    detects their messages while it waits.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks, on which nothing else may start non-blocking collectives.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._begun: tuple[MPI.Request, Words, Words] | None = None

    def check(self, call: CollectiveCall, kept: Collection[Route]) -> None:
        """Check that all ranks make the same call; collective.

        Parameters
        ----------
        call : CollectiveCall
            Call of this rank.
        kept : collection of Route
            Routes with plans on the communicator.

        Raises
        ------
        MPI.Exception
            If other ranks send more than this rank can receive; its class is
            ``ERR_TRUNCATE``.
        DifferentCalls
            On all ranks of the meeting, if they make different calls.
        CollplanError
            If other ranks are in another collective.
        """
        while not self._is_same(call, kept):
            calls = self._comm.allgather(call)
            if all(one == call for one in calls):
                return
            # Other ranks may have run a plan that this rank missed, and now meet for a later call.
            missed = _missed(call, kept)
            is_any_missed = self._comm.allreduce(missed is not None, MPI.LOR)
            if missed is not None:
                _catch_up(call, missed)
            if not is_any_missed:
                raise DifferentCalls(calls)

    def _is_same(self, call: CollectiveCall, kept: Collection[Route]) -> bool:
        """Take part in one meeting; return whether all ranks have the same digest."""
        # If the last meeting has not ended, this call continues it, with the digest of its call.
        begun = self._begun = self._begun or self._begin(call)
        n_polls, seen_s = 0, 0.0
        while not begun[0].Test():
            n_polls += 1
            # Other ranks may need this rank's part of earlier plans to reach the meeting.
            for engine in this_thread.engines.copy():
                engine.advance()
            if n_polls > _SPINS:
                seen_s = _watch_others(call, kept, seen_s)
                time.sleep(_SLEEP_S)
        self._begun = None
        return int(begun[2][0]) == ~int(begun[2][1])

    def end(self) -> None:
        """Release the communicator, so that it may be freed."""
        if self._begun is not None:
            _unfinished.append(self._begun)
            self._begun = None

    def _begin(self, call: CollectiveCall) -> tuple[MPI.Request, Words, Words]:
        code = hashlib.blake2b(repr(call).encode(), digest_size=7).digest()
        digest = int.from_bytes(code, "little")
        # The minimum of the complements is the complement of the maximum of the digests.
        digests = np.array([digest, ~digest], np.int64)
        minima = np.empty_like(digests)
        return self._comm.Iallreduce(digests, minima, MPI.MIN), digests, minima


def _watch_others(call: CollectiveCall, kept: Collection[Route], seen_s: float) -> float:
    """Raise an error if other ranks run a known plan instead of joining the meeting.

    The other parameters are those of `Meetings.check`.

    Parameters
    ----------
    seen_s : float
        Clock time in seconds at which messages of such a plan were first seen; 0 if none were.

    Returns
    -------
    float
        The new `seen_s`.
    """
    expected = _expected(kept)
    now_s = time.monotonic()
    if not expected or not seen_s:
        return now_s if expected else 0.0
    # Ranks whose meeting has already ended may have sent messages of their plan. In this case,
    # the meeting of this rank is about to end, too.
    if now_s - seen_s > _ARRIVING_S:
        for route in expected:
            if _is_resized(call, route.call):
                _catch_up(call, route)
    # Messages of a later plan may have overtaken those of the missed plan.
    if now_s - seen_s > _PATIENCE_S:
        raise CollplanError(_dispute(call, expected[0].call))
    return seen_s


def combine(comm: MPI.Intracomm, words: Any, op: MPI.Op = MPI.SUM) -> None:
    """Reduce numbers of all ranks in place, and advance started plans meanwhile; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    words : buffer
        Numbers of this rank, in a form that mpi4py accepts; replaced by the result.
    op : MPI.Op
        Operation of the reduction.
    """
    if not this_thread.engines:
        comm.Allreduce(MPI.IN_PLACE, words, op)
        return
    # Other ranks may need this rank's part of earlier plans to reach this call.
    request = comm.Iallreduce(MPI.IN_PLACE, words, op)
    while not request.Test():
        for engine in this_thread.engines.copy():
            engine.advance()


def _missed(call: CollectiveCall, kept: Collection[Route]) -> Route | None:
    """Return the route of a plan that other ranks run with a size other than this call's, or None.

    The function waits up to `_ARRIVING_S` seconds for messages of such a plan.
    """
    resized = [route for route in kept if _is_resized(call, route.call)]
    end_s = time.monotonic() + _ARRIVING_S
    while resized and time.monotonic() < end_s:
        for route in _expected(resized):
            return route
        time.sleep(_SLEEP_S)
    return None


def _expected(kept: Collection[Route]) -> list[Route]:
    """Return the routes whose plans another rank has started, and this rank has not."""
    return [one for one in kept if one.bound is not None and one.bound.is_expected]


def _catch_up(call: CollectiveCall, route: Route) -> NoReturn:
    """Take part in a missed plan with temporary buffers, then raise the error of this rank."""
    sendbuf = np.zeros(route.sent_bytes + route.itemsize, np.uint8)
    recvbuf = np.empty(route.received_bytes + route.itemsize, np.uint8)
    addresses = (MPI.Get_address(one) for one in (sendbuf, recvbuf))
    route.use(*(address + -address % route.itemsize for address in addresses))
    assert route.bound is not None
    route.bound()
    raise _misfit(call, route.call)


def run_different(
    comm: Any, native: Any, given: tuple[Any, ...], rank: int, calls: Sequence[CollectiveCall]
) -> None:
    """Run a collective natively if ranks pass different sizes; collective.

    If only the root sends, its data is sent to all ranks. Ranks that expect another size
    receive it in a temporary buffer, so that no rank waits forever.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the call.
    native : callable
        mpi4py's method of the collective.
    given : tuple
        Arguments of this rank's call.
    rank : int
        This rank.
    calls : sequence of CollectiveCall
        Call of each rank.

    Raises
    ------
    MPI.Exception, CollplanError
        On ranks whose size differs from that of the root. If several ranks send, or calls
        differ in more than the size, all ranks raise an error and nothing is sent.
    """
    call = calls[rank]
    root_call = calls[call.root]
    others = [one for one in calls if one != root_call]
    traits = COLLECTIVES[call.kind]
    if traits.sender != "root" or not all(_is_resized(one, root_call) for one in others):
        raise CollplanError(_dispute(call, next(one for one in calls if one != call)))
    if call == root_call:
        native(comm, *given)
        return
    recvbuf = [np.empty(root_call.n_bytes, np.uint8), MPI.BYTE]
    native(comm, *([recvbuf] if traits.has_one_buffer else [None, recvbuf]), call.root)
    raise _misfit(call, root_call)


def _is_resized(call: CollectiveCall, other: CollectiveCall) -> bool:
    """Return whether two calls without an operation differ only in their sizes."""
    is_same = (call.kind, call.root) == (other.kind, other.root)
    return is_same and other.op is None and call.n_bytes != other.n_bytes


def _misfit(call: CollectiveCall, sent: CollectiveCall) -> Exception:
    """Return the error of a rank whose size differs from that of the sent data."""
    if call.n_bytes < sent.n_bytes:
        return MPI.Exception(MPI.ERR_TRUNCATE)
    return CollplanError(_dispute(call, sent))


def _dispute(call: CollectiveCall, other: CollectiveCall) -> str:
    """Return the error message for a rank whose call differs from another rank's call."""
    own_words, other_words = (f"{one.kind} of {one.n_bytes} bytes" for one in (call, other))
    for name in ("root", "op", "element"):
        if getattr(call, name) != getattr(other, name):
            own_words += f", {name} {getattr(call, name)}"
            other_words += f", {name} {getattr(other, name)}"
    return f"this rank calls {own_words}, another one {other_words}; all ranks must call the same"
