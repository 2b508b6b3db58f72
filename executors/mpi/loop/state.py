"""Access to records in compiled code, and its functions for time and sleep."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from collplan.executors.mpi.loop.calls import call, inlined, inner, longs, pointer, record_at
from collplan.executors.mpi.loop.records import CALL, LOCAL, STATE, TASK

Record = Any
"""A row of one of the tables below, in compiled code."""
Long = Any
"""A signed integer of 64 bits, in compiled code."""

SECOND_NS: Final = 1_000_000_000


@inlined
def state_at(address: int) -> Record:
    """Return the state at an address."""
    return record_at(address, 0, STATE)


@inlined
def task_at(state: Record, task: int) -> Record:
    """Return the row of a task."""
    return record_at(state.tasks, task, TASK)


@inlined
def local_at(state: Record, row: int) -> Record:
    """Return the row of a local task, which has no message."""
    return record_at(state.locals, row, LOCAL)


@inlined
def call_at(state: Record, row: int) -> Record:
    """Return the row of a collective of MPI."""
    return record_at(state.calls, row, CALL)


@inlined
def base_of(state: Record, buffer: int) -> Long:
    """Return the address of a buffer."""
    return longs(state.bases, buffer + 1)[buffer]


@inner
def now(state: Record) -> Long:
    """Return the time of the system's monotonic clock in ns."""
    call(state.clock_gettime, (np.int32(state.monotonic), pointer(state.now)))
    return state.now_s * SECOND_NS + state.now_ns


@inner
def nap(record: Record, ns: int) -> None:
    """Sleep.

    Parameters
    ----------
    record : Record
        A state or a board.
    ns : int
        Time in ns, less than a second.
    """
    record.sleep_ns = ns
    call(record.nanosleep, (pointer(record.sleep), pointer(np.int64(0))))


@inner
def sleep_on(state: Record, semaphore: int, ns: int) -> bool:
    """Wait for a semaphore for up to `ns` ns; return False after this time, or after a signal."""
    call(state.clock_gettime, (np.int32(state.realtime), pointer(state.deadline)))
    ns += state.deadline_ns
    state.deadline_s += ns // SECOND_NS
    state.deadline_ns = ns % SECOND_NS
    return bool(call(state.sem_timedwait, (pointer(semaphore), pointer(state.deadline))) == 0)
