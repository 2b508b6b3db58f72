"""Times of calls on all ranks: aligned starts, calls that take turns, and ranks' clocks."""

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
"""Messages to and fro between two clocks; the fastest tells."""
_NAMESPACE: Final = Path("/proc/self/ns/time")


class Offset(NamedTuple):
    """Lead of a clock over rank 0's, and the most that this may be wrong by, in ns."""

    ahead_ns: int
    error_ns: int


def clock_name() -> str:
    """Name the clock of this process: processes of one name read the same monotonic clock."""
    # Linux counts from the boot, unless a namespace of its own shifts that.
    namespace = os.readlink(_NAMESPACE) if _NAMESPACE.is_symlink() else ""
    return f"{host()} {namespace}"


def share_clock(comm: MPI.Intracomm) -> bool:
    """Return whether all ranks read the same monotonic clock.

    Collective on the first call for a communicator; the answer is kept on it.
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
    """The clocks of a communicator's ranks; making one is collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        The ranks.
    name : str, optional
        Which clock this rank reads.
    now : callable
        Reads it, in ns.
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
        """Return how far this rank's clock is ahead of rank 0's; collective.

        Rank 0 sends a message to one reader of each other clock and takes what
        the answer says for the middle of the time until it is back. The answer
        was given in between, so half that time is the most it can be wrong.
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
"""Repetitions that are not counted: connections are made and pages touched in them."""

_ARRIVED_SLEEP_S: Final = 100e-6
_ABSENT_SLEEP_S: Final = 5e-3
_AWAKE_NS: Final = 1_000_000
_LEAD_NS: Final = 4_000_000
"""From when the start is agreed on to the start: until then even sleepers have heard of it."""


def everywhere(comm: MPI.Intracomm, value: T | None, root: int = 0) -> T:
    """Return the root's value on all ranks; collective."""
    return cast("T", comm.bcast(value, root=root))


def nothing() -> None:
    """Do nothing."""


def library_name() -> str:
    """Return which MPI this is, as ``MPICH 5.0.2``."""
    return short_version(MPI.Get_library_version())


class Watch:
    """Told of each timed call, outside its time; this one does nothing."""

    def announce(self, which: int) -> None:
        """Hear that the ranks line up for a call."""

    def begin(self, which: int) -> None:
        """Hear that the ranks have lined up, and the call begins."""

    def end(self) -> None:
        """Hear that the call has returned."""


def time_in_turns(
    comm: MPI.Intracomm,
    calls: Sequence[Call],
    repetitions: int,
    *,
    prepare: Call = nothing,
    advance: Call = nothing,
    watch: Watch | None = None,
    warm_ups: int = WARM_UPS,
    first: int = 0,
    from_first: bool | None = None,
) -> Times:
    """Time calls, each once per repetition, on ranks that have lined up; collective.

    In every repetition another call goes first: it finds what the last one left in caches.

    Parameters
    ----------
    comm : MPI.Intracomm
        All ranks of it make the same calls.
    calls : sequence of callable
        The calls; on a rank that takes no part in one, `nothing`.
    repetitions : int
        How many to count, beside the `warm_ups`.
    prepare, advance : callable
        What to do before each call, outside its time, and after each repetition.
    watch : Watch, optional
        Who is told of each call.
    warm_ups, first : int
        Repetitions that are not counted, and the number of the first one.
    from_first : bool, optional
        Whether time runs from when the first rank begins; by default where ranks share
        cores and read one clock: each alone would see its own turn only.

    Returns
    -------
    ndarray of float64, shape (len(calls), repetitions)
        Seconds of the slowest rank, the same on every rank.
    """
    watch, crowded = watch or Watch(), ranks_per_core(comm) > 1
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
    """Return on all ranks at about the same time, when all have come.

    Parameters
    ----------
    comm : MPI.Intracomm
        The ranks.
    crowded : bool
        Whether ranks share cores: who has come then sleeps until all have, and
        until a time that all agree on. A barrier alone would spin, and take the
        core from those still at work.
    """
    if not crowded:
        comm.Barrier()
        return
    sleep_until(comm.Ibarrier().Test)
    if not share_clock(comm):
        # Sleepers wake at different times; from here on none sleeps.
        comm.Barrier()
        comm.Barrier()
        return
    # Whoever spins in a barrier leaves it when it gets a core: some milliseconds later.
    start_ns = np.array([monotonic_ns() + _LEAD_NS])
    sleep_until(comm.Ibcast(start_ns).Test)
    sleep(max(0, int(start_ns[0]) - _AWAKE_NS - monotonic_ns()) / 1e9)
    # Sleepers wake some tenths of a millisecond late; by now all are up, in turns.
    while monotonic_ns() < start_ns[0]:
        os.sched_yield()


def meet_asleep(comm: MPI.Intracomm) -> None:
    """Return when all ranks have come; until then sleep, and leave the cores to those at work."""
    sleep_until(comm.Ibarrier().Test, _ABSENT_SLEEP_S)


def sleep_until(test: Callable[[], bool], poll_s: float = _ARRIVED_SLEEP_S) -> int:
    """Sleep between polls until a test is passed; return the number of polls."""
    polls = 1
    while not test():
        sleep(poll_s)
        polls += 1
    return polls
