"""Layouts of records that Python fills, and that compiled code reads and writes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np


def words(*names: str) -> np.dtype[Any]:
    """Return the dtype of a record of 64-bit words.

    Examples
    --------
    >>> words("at", "n").itemsize
    16
    """
    return np.dtype([(name, "i8") for name in names])


TASK: Final = np.dtype(
    [
        ("kind", "i1"),
        ("stage", "i1"),
        ("buffer", "i1"),
        ("waits", "i1"),  # whether it checks the progress of other ranks before it runs
        ("is_gated", "i1"),
        ("processor", "i2"),  # row among the processors of the progress thread, or -1
        ("peer", "i4"),
        ("tag", "i4"),
        ("count", "i4"),
        ("first_on_start", "i4"),
        ("first_on_completion", "i4"),
        ("local", "i4"),  # row among the local tasks, or among the calls
        ("first_wait", "i4"),
        ("flag", "i4"),  # number among the tasks that other ranks wait for, or -1
        ("offset", "i8"),  # bytes from the beginning of the buffer
        ("datatype", "i8"),
    ],
    align=True,
)
"""Task. A table has an additional row, in which the successors of the last task end."""

LOCAL: Final = words(
    *("first_write", "first_read", "first_right"),
    "right_skip",  # bytes of the first extent of the right operand that belong to the left one
    *("n_bytes", "duration_ns"),
    "function",  # address of the C function that computes, or 0
    "is_staged",  # whether it would overwrite operands before it reads them
)
"""Local task, which has no message."""

N_ARGUMENTS: Final = 10
"""Largest number of arguments of MPI functions that start a non-blocking collective."""
CALL: Final = words(
    "function",
    *("sent_at", "sent_buffer", "sent_offset"),  # index of the send buffer's argument, or -1
    *("received_at", "received_buffer", "received_offset"),
    "request_at",
    *(f"a{i}" for i in range(N_ARGUMENTS)),
)
"""Call of a collective of MPI, with its arguments, some of which are filled in when it starts."""
CALL_BYTES: Final = CALL.itemsize
ARGUMENTS_AT: Final = CALL_BYTES - 8 * N_ARGUMENTS
"""Offset of the arguments within a call, in bytes."""

REPEATED: Final = words("function", "n_left", *(f"a{i}" for i in range(N_ARGUMENTS)))
"""C function, the number of calls of it that remain, and its arguments."""
REPEATED_AT: Final = REPEATED.itemsize - 8 * N_ARGUMENTS
"""Offset of the arguments within a repeated call, in bytes."""

EXTENT: Final = words(
    *("buffer", "offset", "run", "stride", "repeat", "outer_stride", "outer_repeat")
)
"""Repeated runs of contiguous bytes. Offset, run and strides are in bytes."""

CURSOR: Final = words(
    *("extents", "extent", "outer", "inner"),
    "at",  # bytes of the run that were passed
    "address",  # address of the run
    *("rows", "row_stride"),
)
"""Position in a list of extents, and the number and distance of equal pieces from there."""
N_CURSORS: Final = 3
"""Number of cursors: one for the result, and one for each of two operands."""

IDLING: Final = words("spins", "yields", "sleep_step_ns", "longest_sleep_ns")
"""Idle policy of a thread."""

_COUNTERS = (
    *("n_tasks", "n_left", "n_left_in_start", "n_left_held", "last_stage"),
    *("n_active", "n_messages", "n_local", "n_held", "n_moved_bytes"),
    *("progress", "idle_polls", "computing", "compute_end_ns", "code", "n_failed"),
    *("epoch", "n_waiting", "n_past_gate", "n_at_end", "is_ending"),
    *("is_handed", "found", "processor", "is_stopping", "beside_left_ns"),
    "hold_until_ns",  # time from which tests run tasks of the WAIT stage without a wait
)
_FIXED = (
    *("n_in_start", "n_held_in_all", "n_first_messages", "n_first_local", "n_first_held"),
    *("comm", "handle_bytes", "element_bytes"),
    *("turn_ns", "monotonic", "now_s", "now_ns", "sleep_s", "sleep_ns"),
    *("has_thread", "thread_turn_ns", "realtime", "deadline_s", "deadline_ns", "mask_bytes"),
    *("n_first_waiting", "n_sharing", "ends_together", "n_messages_in_all"),
    "beside_ns",  # time for which the caller computes while the progress thread has the start
    *("any_source", "any_tag", "n_probed"),
    "is_recorded",
)
_ADDRESSES = (
    *("MPI_Isend", "MPI_Irecv", "MPI_Testsome", "MPI_Iprobe", "reduce"),
    *("clock_gettime", "nanosleep", "sched_yield"),
    *("tasks", "before", "n_before", "on_start", "on_completion", "bases"),
    *("messages", "local", "held", "first_messages", "first_local", "first_held"),
    *("requests", "active", "finished", "statuses"),
    *("waiting", "first_waiting", "next_wait", "waits"),
    *("probed", "counters", "own_counter", "own_flags"),
    *("calls", "locals", "reads", "writes", "cursors", "stage_extents", "now", "sleep"),
    *("idling", "caller_idling", "thread_idling"),
    *("sem_wait", "sem_trywait", "sem_timedwait", "sem_post", "sched_setaffinity"),
    *("handed", "over", "deadline", "stopping", "masks"),
    "hold_until",  # address of `hold_until_ns`
    *("start_ns", "end_ns"),  # recorded times at which tasks started and ended
)
STATE: Final = words(*_COUNTERS, *_FIXED, *_ADDRESSES)
"""State of the loop: counters, constants, and addresses of functions and arrays."""
