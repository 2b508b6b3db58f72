"""Starts and polls of messages and calls of MPI in the compiled loop."""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.calls import (
    Ints,
    call,
    inlined,
    inner,
    ints,
    longs,
    move,
    pointer,
)
from collplan.executors.mpi.loop.dependencies import (
    complete,
    is_only_ending,
    look_around,
    note_start,
    pop,
    started,
)
from collplan.executors.mpi.loop.records import ARGUMENTS_AT, CALL_BYTES, N_ARGUMENTS
from collplan.executors.mpi.loop.state import (
    Long,
    Record,
    base_of,
    call_at,
    task_at,
)

NO_TASK = -1
"""Number that stands for no task."""


@inlined
def go_to_core(state: Record, task: Record) -> None:
    """Bind the progress thread to the processor of a task; tasks of the caller have none."""
    if task.processor >= 0 and task.processor != state.processor:
        state.processor = task.processor
        mask = state.masks + task.processor * state.mask_bytes
        call(state.sched_setaffinity, (np.int32(0), state.mask_bytes, pointer(mask)))


@inner
def _begin_call(state: Record, number: int, request: int) -> Long:
    """Call the MPI function of a non-blocking collective, and return its error code.

    Each function is called with the largest number of arguments that any of them takes. This is
    safe: calling conventions of 64-bit machines pass each int or pointer as one word, and the
    caller removes the arguments, so functions ignore additional ones.

    Parameters
    ----------
    state : Record
    number : int
        Row of the call.
    request : int
        Address of the request.
    """
    row = call_at(state, number)
    words = longs(state.calls + number * CALL_BYTES + ARGUMENTS_AT, N_ARGUMENTS)
    words[row.request_at] = request
    if row.sent_at >= 0:
        words[row.sent_at] = base_of(state, row.sent_buffer) + row.sent_offset
    if row.received_at >= 0:
        words[row.received_at] = base_of(state, row.received_buffer) + row.received_offset
    first = (words[0], words[1], words[2], words[3], words[4])
    last = (words[5], words[6], words[7], words[8], words[9])
    return call(row.function, (*first, *last))


@inner
def start_message(state: Record) -> Long:
    """Start the next ready message or call; return DONE, or FAILED with the error in the state."""
    task = pop(ints(state.messages, state.n_tasks), state.n_messages)
    state.n_messages -= 1
    row = task_at(state, task)
    go_to_core(state, row)
    note_start(state, task)
    place = state.n_active
    request = state.requests + place * state.handle_bytes
    if row.kind == codes.CALL:
        code = _begin_call(state, row.local, request)
    else:
        begin = state.MPI_Isend if row.kind == codes.SEND else state.MPI_Irecv
        buffer = pointer(base_of(state, row.buffer) + row.offset)
        message = (buffer, row.count, row.datatype, row.peer, row.tag, state.comm)
        code = call(begin, (*message, pointer(request)))
    if code != 0:
        state.code = code
        return codes.FAILED
    ints(state.active, place + 1)[place] = task
    state.n_active = place + 1
    started(state, task)
    return codes.DONE


@inner
def _push_on(state: Record) -> Long:
    """Let MPI progress messages that this rank has sent and no longer polls; return the outcome."""
    source, tag = np.int32(state.any_source), np.int32(state.any_tag)
    probed, status = pointer(state.probed), pointer(state.statuses)
    code = call(state.MPI_Iprobe, (source, tag, state.comm, probed, status))
    if code != 0:
        state.code = code
        return codes.FAILED
    return codes.DONE


@inlined
def push_beside(state: Record) -> Long:
    """Let MPI progress what else is under way if the plan has no messages; return the outcome.

    Another rank may wait for that before it takes part in the plan.
    """
    return _push_on(state) if state.n_messages_in_all == 0 else np.int64(codes.DONE)


@inner
def poll(state: Record) -> Long:
    """Complete the tasks of finished messages; return DONE or the error."""
    if state.n_waiting or state.is_ending:
        look_around(state)
    n = state.n_active
    if n == 0:
        if state.n_messages_in_all and (state.n_waiting or is_only_ending(state)):
            return _push_on(state)
        return codes.DONE
    # The first entry is the count. The indices follow.
    finished = ints(state.finished, n + 1)
    count, places = pointer(state.finished), pointer(state.finished + 4)
    requests, statuses = pointer(state.requests), pointer(state.statuses)
    code = call(state.MPI_Testsome, (np.int32(n), requests, count, places, statuses))
    n_finished = finished[0]
    if code != 0:
        state.code = code
        state.n_failed = n_finished
        return codes.FAILED_IN_STATUS
    if n_finished > 0:
        _retire(state, finished, n_finished)
    return codes.DONE


@inner
def _retire(state: Record, finished: Ints, n_finished: int) -> None:
    """Complete the tasks of finished requests, then fill the gaps with requests from the end."""
    active = ints(state.active, state.n_active)
    for i in range(1, n_finished + 1):
        task = active[finished[i]]
        active[finished[i]] = NO_TASK
        complete(state, np.int64(task))
    width = state.handle_bytes
    n = state.n_active
    for i in range(1, n_finished + 1):
        gap = np.int64(finished[i])
        while n > 0 and active[n - 1] == NO_TASK:
            n -= 1
        if gap < n:
            n -= 1
            active[gap] = active[n]
            active[n] = NO_TASK
            move(state.requests + gap * width, state.requests + n * width, width)
    state.n_active = n
