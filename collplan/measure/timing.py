"""Time several calls in turns, so that all of them meet the same noise."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import monotonic_ns, perf_counter, sleep
from typing import Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.host.cores import ranks_per_core
from collplan.executors.mpi.launch.launcher import short_version
from collplan.measure.clocks import share_clock

Times = npt.NDArray[np.float64]
Call = Callable[[], object]

WARM_UPS: Final = 2
"""Repetitions that are not counted: connections are made and pages touched in them."""

_ARRIVED_SLEEP_S: Final = 100e-6
_AWAKE_NS: Final = 1_000_000
_LEAD_NS: Final = 4_000_000
"""From when the start is agreed on to the start: until then even sleepers have heard of it."""


def nothing() -> None:
    """Do nothing."""


def library_name() -> str:
    """Return which MPI this is, as ``MPICH 5.0.2``."""
    return short_version(MPI.Get_library_version())


def time_in_turns(
    comm: MPI.Intracomm,
    calls: Sequence[Call],
    repetitions: int,
    *,
    prepare: Call = nothing,
    advance: Call = nothing,
    from_first: bool = False,
) -> Times:
    """Time calls; every repetition makes each of them once, each after a barrier.

    Collective over `comm`. From one repetition to the next, another call goes
    first: who goes first finds the last one's leavings in the caches.

    Parameters
    ----------
    comm : MPI.Intracomm
        All ranks of it make the same calls.
    calls : sequence of callable
        What to time; on a rank that takes no part in one, `nothing`.
    repetitions : int
        How many to count, beside the `WARM_UPS`.
    prepare : callable
        What to do before each call, outside its time.
    advance : callable
        What to do after each repetition, warm-ups included, to show progress.
    from_first : bool
        Whether time runs from when the first rank begins, for ranks of one clock: where
        ranks take turns on a core, each alone would see its own turn only.

    Returns
    -------
    ndarray of float64, shape (len(calls), repetitions)
        Seconds of the slowest rank, the same on every rank.
    """
    crowded = ranks_per_core(comm) > 1
    begins, ends = np.empty((2, len(calls), WARM_UPS + repetitions))
    for repetition in range(WARM_UPS + repetitions):
        for turn in range(len(calls)):
            which = (repetition + turn) % len(calls)
            prepare()
            line_up(comm, crowded)
            begins[which, repetition] = perf_counter()
            calls[which]()
            ends[which, repetition] = perf_counter()
        advance()
    if from_first:
        comm.Allreduce(MPI.IN_PLACE, begins, MPI.MIN)
    slowest = (ends - begins)[:, WARM_UPS:].copy()
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
    _sleep_until_done(comm.Ibarrier())
    if not share_clock(comm):
        # Sleepers wake at different times; from here on none sleeps.
        comm.Barrier()
        comm.Barrier()
        return
    # Whoever spins in a barrier leaves it when it gets a core: some milliseconds later.
    start_ns = np.array([monotonic_ns() + _LEAD_NS])
    _sleep_until_done(comm.Ibcast(start_ns))
    sleep(max(0, int(start_ns[0]) - _AWAKE_NS - monotonic_ns()) / 1e9)
    # Sleepers wake some tenths of a millisecond late; by now all are up, in turns.
    while monotonic_ns() < start_ns[0]:
        os.sched_yield()


def _sleep_until_done(request: MPI.Request) -> None:
    while not request.Test():
        sleep(_ARRIVED_SLEEP_S)
