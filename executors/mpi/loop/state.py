"""State of compiled code: records whose fields are numbers and addresses of arrays."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from collplan.executors.mpi.loop.calls import (
    call,
    compiled,
    compiled_inline,
    longs,
    pointer,
    record_at,
)

Record = Any
"""A row of one of the tables below, in compiled code."""
Long = Any
"""A signed integer of 64 bits, in compiled code."""

# What a task does; messages first.
SEND: Final = 0
RECV: Final = 1
COPY: Final = 2
REDUCE: Final = 3
COMPUTE: Final = 4
NOTHING: Final = 5

# When tasks run, as in `collplan.planner.plan.plan.Stage`.
STAGE_START: Final = 0
STAGE_BACKGROUND: Final = 1
STAGE_WAIT: Final = 2

# What a call of the loop is to do; each names what must be over when it returns.
START: Final = 0
GO_ON_STARTING: Final = 1
TEST: Final = 2
WAIT: Final = 3
RUN: Final = 4
SERVE: Final = 5
"""Run the background of every start that is handed over, until told to stop."""

# What a call of the loop found.
DONE: Final = 0
PENDING: Final = 1
DEADLOCK: Final = 2
FAILED: Final = 3
FAILED_IN_STATUS: Final = 4
BUSY: Final = 5
RAISED: Final = 6
"""A reduction in Python raised an exception."""

SECOND_NS: Final = 1_000_000_000

TASK: Final = np.dtype(
    [
        ("kind", "i1"),
        ("stage", "i1"),
        ("buffer", "i1"),
        ("waits", "i1"),  # whether it looks at other ranks' progress before it runs
        ("is_gated", "i1"),
        ("processor", "i2"),  # its row among those of the progress thread, or -1
        ("peer", "i4"),
        ("tag", "i4"),
        ("count", "i4"),
        ("first_on_start", "i4"),
        ("first_on_completion", "i4"),
        ("local", "i4"),  # its row among the local tasks
        ("first_wait", "i4"),
        ("flag", "i4"),  # its number among those that other ranks wait for, or -1
        ("offset", "i8"),  # bytes from the beginning of its buffer
        ("datatype", "i8"),
    ],
    align=True,
)
"""One task; there is one row more, where the last task's successors end."""

LOCAL: Final = np.dtype(
    [
        ("first_write", "i8"),
        ("first_read", "i8"),
        ("first_right", "i8"),
        ("right_skip", "i8"),  # bytes of that extent which belong to the left operand
        ("n_bytes", "i8"),
        ("is_staged", "i8"),  # whether it would overwrite what it still has to read
        ("duration_ns", "i8"),
    ]
)
"""One task without a message."""

EXTENT: Final = np.dtype(
    [
        ("buffer", "i8"),
        ("offset", "i8"),
        ("run", "i8"),
        ("stride", "i8"),
        ("repeat", "i8"),
        ("outer_stride", "i8"),
        ("outer_repeat", "i8"),
    ]
)
"""Runs of contiguous bytes; everything in bytes."""

CURSOR: Final = np.dtype(
    [
        ("extents", "i8"),
        ("extent", "i8"),
        ("outer", "i8"),
        ("inner", "i8"),
        ("at", "i8"),  # bytes of the run that are behind
        ("address", "i8"),  # of the run
        ("rows", "i8"),
        ("row_stride", "i8"),
    ]
)
"""A place in a list of extents, and how far equal pieces go on from there."""

IDLING: Final = np.dtype(
    [(name, "i8") for name in ("spins", "yields", "sleep_step_ns", "longest_sleep_ns")]
)
"""Idle policy of a thread."""

_COUNTERS = (
    *("n_tasks", "n_left", "n_left_in_start", "n_left_held", "last_stage"),
    *("n_active", "n_messages", "n_local", "n_held", "n_moved_bytes"),
    *("progress", "idle_polls", "computing", "compute_end_ns", "code", "n_failed"),
    *("epoch", "n_waiting", "n_past_gate", "n_at_end", "is_ending"),
    *("is_handed", "found", "processor", "is_stopping", "beside_left_ns"),
)
_FIXED = (
    *("n_in_start", "n_held_in_all", "n_first_messages", "n_first_local", "n_first_held"),
    *("comm", "handle_bytes", "element_bytes"),
    *("turn_ns", "monotonic", "now_s", "now_ns", "sleep_s", "sleep_ns"),
    *("has_thread", "thread_turn_ns", "realtime", "deadline_s", "deadline_ns", "mask_bytes"),
    *("n_first_waiting", "n_sharing", "ends_together", "n_messages_in_all"),
    "beside_ns",  # how long the caller computes while a thread has the background
    *("any_source", "any_tag", "n_probed"),
    "is_recorded",
)
_ADDRESSES = (
    *("isend", "irecv", "testsome", "clock_gettime", "nanosleep", "sched_yield", "reduce"),
    *("tasks", "before", "n_before", "on_start", "on_completion", "bases"),
    *("messages", "local", "held", "first_messages", "first_local", "first_held"),
    *("requests", "active", "finished", "statuses"),
    *("iprobe", "waiting", "first_waiting", "next_wait", "waits"),
    *("probed", "counters", "own_counter", "own_flags"),
    *("locals", "reads", "writes", "cursors", "stage_extents", "now", "sleep"),
    *("idling", "caller_idling", "thread_idling"),
    *("sem_wait", "sem_trywait", "sem_timedwait", "sem_post", "sched_setaffinity"),
    *("handed", "over", "deadline", "stopping", "masks"),
    *("start_ns", "end_ns"),  # when tasks started and ended, where they are recorded
)
STATE: Final = np.dtype([(name, "i8") for name in (*_COUNTERS, *_FIXED, *_ADDRESSES)])
"""Everything a call of the loop gets: counters, and where the arrays lie."""


@compiled_inline
def state_at(address: int) -> Record:
    """Return the state at an address."""
    return record_at(address, 0, STATE)


@compiled_inline
def task_at(state: Record, task: int) -> Record:
    """Return a task's row."""
    return record_at(state.tasks, task, TASK)


@compiled_inline
def local_at(state: Record, row: int) -> Record:
    """Return the row of a task without a message."""
    return record_at(state.locals, row, LOCAL)


@compiled_inline
def base_of(state: Record, buffer: int) -> Long:
    """Return a buffer's address."""
    return longs(state.bases, buffer + 1)[buffer]


@compiled
def now(state: Record) -> Long:
    """Return the time of the system's monotonic clock in ns."""
    call(state.clock_gettime, (np.int32(state.monotonic), pointer(state.now)))
    return state.now_s * SECOND_NS + state.now_ns


@compiled
def nap(record: Record, ns: int) -> None:
    """Sleep for less than a second; the record is a state or a board."""
    record.sleep_ns = ns
    call(record.nanosleep, (pointer(record.sleep), pointer(np.int64(0))))


@compiled
def sleep_on(state: Record, semaphore: int, ns: int) -> bool:
    """Take a semaphore; return False where that takes longer, or a signal comes."""
    call(state.clock_gettime, (np.int32(state.realtime), pointer(state.deadline)))
    ns += state.deadline_ns
    state.deadline_s += ns // SECOND_NS
    state.deadline_ns = ns % SECOND_NS
    return bool(call(state.sem_timedwait, (pointer(semaphore), pointer(state.deadline))) == 0)
