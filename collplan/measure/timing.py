"""Times of calls on all ranks: aligned starts, interleaved calls, and clock offsets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from time import monotonic_ns, perf_counter, sleep
from typing import Final, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.host.cores import host, ranks_per_core
from collplan.executors.mpi.launch.launcher import short_version

T = TypeVar("T")
EXCHANGES: Final = 20
"""Number of round trips between two clocks; the fastest one is used."""
_NAMESPACE: Final = Path("/proc/self/ns/time")


class Offset(NamedTuple):
    """Lead of a clock over rank 0's clock, and the largest error of this lead, both in ns."""

    ahead_ns: int
    error_ns: int


def clock_name() -> str:
    """Return the name of this process's clock; equal names mean the same monotonic clock."""
    # Linux counts time from the boot, unless a time namespace shifts it.
    namespace = os.readlink(_NAMESPACE) if _NAMESPACE.is_symlink() else ""
    return f"{host()} {namespace}"


def share_clock(comm: MPI.Intracomm) -> bool:
    """Return whether all ranks read the same monotonic clock.

    Collective on the first call for a communicator, which caches the answer as an attribute.
    """
    known = comm.Get_attr(_keyval())
    if known is None:
        known = len(set(comm.allgather(clock_name()))) == 1
        comm.Set_attr(_keyval(), known)
    return bool(known)


@cache
def _keyval() -> int:
    return MPI.Comm.Create_keyval()


class Clocks:
    """The clocks of the ranks of a communicator; construction is collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    name : str, optional
        Name of the clock that this rank reads; by default that of `clock_name`.
    now : callable
        Function that returns the time of this clock in ns.
    """

    def __init__(
        self, comm: MPI.Intracomm, name: str | None = None, now: Callable[[], int] = monotonic_ns
    ) -> None:
        self._comm = comm
        self._now = now
        names = comm.allgather(clock_name() if name is None else name)
        first = {name: rank for rank, name in reversed(list(enumerate(names)))}
        self._readers = sorted(first.values())
        self._own = self._readers.index(first[names[comm.rank]])

    def offset(self) -> Offset:
        """Return the lead of this rank's clock over rank 0's clock; collective.

        Rank 0 sends a message to one reader of each other clock, which answers with its time.
        This time is taken as that of the middle of the round trip. The answer was given at
        some moment of the round trip, so the error is at most half of the round trip.
        """
        if len(self._readers) == 1:
            return Offset(0, 0)
        found = [Offset(0, 0)]
        if self._comm.rank == 0:
            found += [self._ask(reader) for reader in self._readers[1:]]
        elif self._comm.rank in self._readers:
            self._answer()
        return Offset(*self._comm.bcast(found)[self._own])

    def _ask(self, reader: int) -> Offset:
        shown = np.zeros(1, dtype=np.int64)
        found = []
        for _ in range(EXCHANGES):
            sent = self._now()
            self._comm.Send(shown, dest=reader)
            self._comm.Recv(shown, source=reader)
            back = self._now()
            found.append(Offset(int(shown[0]) - (sent + back) // 2, (back - sent + 1) // 2))
        return min(found, key=lambda offset: offset.error_ns)

    def _answer(self) -> None:
        shown = np.zeros(1, dtype=np.int64)
        for _ in range(EXCHANGES):
            self._comm.Recv(shown, source=0)
            shown[0] = self._now()
            self._comm.Send(shown, dest=0)


Times = npt.NDArray[np.float64]
Call = Callable[[], object]

WARM_UPS: Final = 2
"""Number of uncounted repetitions, which set up connections and touch memory pages."""

_ARRIVED_SLEEP_S: Final = 100e-6
_AWAKE_NS: Final = 1_000_000
_LEAD_NS: Final = 4_000_000
"""Time in ns from the choice of a start time to the start: enough to tell even sleeping ranks."""


def everywhere(comm: MPI.Intracomm, value: T | None, root: int = 0) -> T:
    """Broadcast the root's value and return it on all ranks; collective."""
    return cast("T", comm.bcast(value, root=root))


def nothing() -> None:
    """Do nothing."""


def library_name() -> str:
    """Return name and version of the MPI library, such as ``MPICH 5.0.2``."""
    return short_version(MPI.Get_library_version())


class CallObserver:
    """Base class of observers of timed calls; its methods run outside the timed interval.

    The methods of this class do nothing.
    """

    def announce(self, which: int) -> None:
        """Handle that the ranks are about to line up for a call."""

    def begin(self, which: int) -> None:
        """Handle that the ranks have lined up and the call is about to begin."""

    def end(self) -> None:
        """Handle that the call has returned."""


def time_in_turns(
    comm: MPI.Intracomm,
    calls: Sequence[Call],
    repetitions: int,
    *,
    prepare: Call = nothing,
    advance: Call = nothing,
    watch: CallObserver | None = None,
    warm_ups: int = WARM_UPS,
    first: int = 0,
    from_first: bool | None = None,
) -> Times:
    """Time calls, each once per repetition, on ranks that have lined up; collective.

    Every repetition starts with another call, because calls influence the caches of the next.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator whose ranks make the same calls.
    calls : sequence of callable
        Functions to time; `nothing` on a rank that takes no part in one.
    repetitions : int
        Number of repetitions that count, in addition to `warm_ups`.
    prepare, advance : callable
        Functions called before each call, outside its time, and after each repetition.
    watch : CallObserver, optional
        Observer of the calls.
    warm_ups, first : int
        Number of repetitions that do not count, and index of the very first call.
    from_first : bool, optional
        Whether times start when the first rank begins. The default is True if ranks share
        cores and read the same clock, since each rank alone would time only its own turn.

    Returns
    -------
    ndarray of float64, shape (len(calls), repetitions)
        Time of the slowest rank in s, the same on every rank.
    """
    watch, crowded = watch or CallObserver(), ranks_per_core(comm) > 1
    if from_first is None:
        from_first = crowded and share_clock(comm)
    begins, ends = np.empty((2, len(calls), warm_ups + repetitions))
    for repetition in range(warm_ups + repetitions):
        for turn in range(len(calls)):
            which = (first + repetition + turn) % len(calls)
            prepare()
            watch.announce(which)
            line_up(comm, crowded)
            watch.begin(which)
            begins[which, repetition] = perf_counter()
            calls[which]()
            ends[which, repetition] = perf_counter()
            watch.end()
        advance()
    if from_first:
        comm.Allreduce(MPI.IN_PLACE, begins, MPI.MIN)
    slowest = (ends - begins)[:, warm_ups:].copy()
    comm.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
    return slowest


def line_up(comm: MPI.Intracomm, crowded: bool) -> None:
    """Wait for all ranks, and return on all of them at about the same time; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    crowded : bool
        Whether ranks share cores. If so, a rank sleeps until all have arrived, and then
        until a common start time. A barrier alone would spin, and take the core from ranks
        that still work.
    """
    if not crowded:
        comm.Barrier()
        return
    sleep_until(comm.Ibarrier().Test)
    if not share_clock(comm):
        # Sleeping ranks wake at different times; from here on none sleeps.
        comm.Barrier()
        comm.Barrier()
        return
    # A rank that spins in a barrier leaves it only when it gets a core, milliseconds later.
    start_ns = np.array([monotonic_ns() + _LEAD_NS])
    sleep_until(comm.Ibcast(start_ns).Test)
    sleep(max(0, int(start_ns[0]) - _AWAKE_NS - monotonic_ns()) / 1e9)
    # Sleeping ranks wake some tenths of a millisecond late. Now all are awake and take turns.
    while monotonic_ns() < start_ns[0]:
        os.sched_yield()


def sleep_until(test: Callable[[], bool], poll_s: float = _ARRIVED_SLEEP_S) -> int:
    """Poll a test until it is true, with sleeps between; return the number of polls."""
    polls = 1
    while not test():
        sleep(poll_s)
        polls += 1
    return polls
