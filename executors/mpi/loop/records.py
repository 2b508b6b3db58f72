"""Records of numbers and addresses that Python fills, and compiled code reads and writes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np


def words(*names: str) -> np.dtype[Any]:
    """Return the dtype of a record of words of 64 bits.

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

LOCAL: Final = words(
    *("first_write", "first_read", "first_right"),
    "right_skip",  # bytes of that extent which belong to the left operand
    *("n_bytes", "duration_ns"),
    "is_staged",  # whether it would overwrite what it still has to read
)
"""One task without a message."""

N_ARGUMENTS: Final = 10
"""Most arguments of a function that begins a collective of MPI."""
CALL: Final = words(
    "function",
    *("sent_at", "sent_buffer", "sent_offset"),  # which argument is memory that is read, or -1
    *("received_at", "received_buffer", "received_offset"),
    "request_at",
    *(f"a{i}" for i in range(N_ARGUMENTS)),
)
"""One call of a collective of MPI: its arguments, some of which are known when it starts."""
CALL_BYTES: Final = CALL.itemsize
ARGUMENTS_AT: Final = CALL_BYTES - 8 * N_ARGUMENTS
"""Bytes of a call, and where its arguments begin."""

EXTENT: Final = words(
    *("buffer", "offset", "run", "stride", "repeat", "outer_stride", "outer_repeat")
)
"""Runs of contiguous bytes; everything in bytes."""

CURSOR: Final = words(
    *("extents", "extent", "outer", "inner"),
    "at",  # bytes of the run that are behind
    "address",  # of the run
    *("rows", "row_stride"),
)
"""A place in a list of extents, and how far equal pieces go on from there."""
N_CURSORS: Final = 3
"""One for the result and each operand."""

IDLING: Final = words("spins", "yields", "sleep_step_ns", "longest_sleep_ns")
"""Idle policy of a thread."""

_COUNTERS = (
    *("n_tasks", "n_left", "n_left_in_start", "n_left_held", "last_stage"),
    *("n_active", "n_messages", "n_local", "n_held", "n_moved_bytes"),
    *("progress", "idle_polls", "computing", "compute_end_ns", "code", "n_failed"),
    *("epoch", "n_waiting", "n_past_gate", "n_at_end", "is_ending"),
    *("is_handed", "found", "processor", "is_stopping", "beside_left_ns"),
    "hold_until_ns",  # when tests run what belongs inside a wait, if nobody waits before
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
    "hold_until",  # where that time lies
    *("start_ns", "end_ns"),  # when tasks started and ended, where they are recorded
)
STATE: Final = words(*_COUNTERS, *_FIXED, *_ADDRESSES)
"""Everything a call of the loop gets: counters, and where the arrays lie."""

FLIGHT: Final = words(
    *("state", "board", "request", "needs_python", "code"),
    *("is_over", "is_done", "is_freed"),  # words that others watch
    *("over", "done", "freed"),  # where those lie
)
"""A program in flight: over when all its tasks are, done when its request is complete, freed
when MPI has let go of that."""

BOARD: Final = words(
    *("places", "n_places", "progress", "lock", "work"),
    *("stopping", "is_stopping", "wanted", "is_wanted"),
    *("awake", "is_awake", "over", "is_over"),
    *("MPI_Grequest_complete", "sem_wait", "sem_trywait", "sem_post"),
    *("status", "status_bytes", "nanosleep", "sleep", "sleep_s", "sleep_ns"),
    *("spins", "first_sleep_ns", "longest_sleep_ns", "dozes"),
)
"""State shared by all programs in flight of a process; places hold addresses of flights, or 0."""
