"""The compiled loop: start what is ready, see what has come, until there is nothing left.

It returns to Python when what it was asked for is over, and otherwise after a
turn of some milliseconds, so that signals are handled.
"""

from __future__ import annotations

import numpy as np

from executors.mpi.compiled.atomics import load_acquire, store_release
from executors.mpi.compiled.calls import (
    Ints,
    call,
    compiled,
    compiled_inline,
    ints,
    longs,
    move,
    pointer,
)
from executors.mpi.compiled.moves import run_copy, run_reduce
from executors.mpi.compiled.queues import pop, push
from executors.mpi.compiled.state import (
    BUSY,
    COMPUTE,
    COPY,
    DEADLOCK,
    DONE,
    FAILED,
    FAILED_IN_STATUS,
    GO_ON_STARTING,
    PENDING,
    RECV,
    REDUCE,
    RUN,
    SEND,
    START,
    TEST,
    Long,
    Record,
    base_of,
    local_at,
    state_at,
    task_at,
)
from planner.compiled import compile_with

STAGE_START = 0
STAGE_WAIT = 2
LOCAL_BATCH = 8
"""Local tasks in a row before messages get a turn."""
BATCH_BYTES = 1 << 17
"""Bytes they move before messages get a turn, too."""
POLLS_A_CLOCK = 32
"""Polls in a row without looking at the clock."""
NO_TASK = -1
COUNTER_BYTES = 64
WORD_BYTES = 8


@compiled
def _now(state: Record) -> Long:
    call(state.clock_gettime, (np.int32(state.monotonic), pointer(state.now)))
    return state.now_s * 1_000_000_000 + state.now_ns


@compiled_inline
def _queue(state: Record, task: int, kind: int) -> None:
    """Let a task run that waits for nothing on this rank any more."""
    row = task_at(state, task)
    if row.waits:
        ints(state.waiting, state.n_tasks)[state.n_waiting] = task
        ints(state.next_wait, state.n_tasks)[task] = row.first_wait
        state.n_waiting += 1
    else:
        _queue_free(state, task, kind)


@compiled_inline
def _queue_free(state: Record, task: int, kind: int) -> None:
    if kind <= RECV:
        push(ints(state.messages, state.n_tasks), state.n_messages, task)
        state.n_messages += 1
    else:
        push(ints(state.local, state.n_tasks), state.n_local, task)
        state.n_local += 1


@compiled
def _release(state: Record, successors: int, first: int, last: int) -> None:
    before = ints(state.before, state.n_tasks)
    after = ints(successors, last)
    for i in range(first, last):
        task = after[i]
        before[task] -= 1
        if before[task] == 0:
            if state.is_holding and task_at(state, task).stage == STAGE_WAIT:
                ints(state.held, state.n_tasks)[state.n_held] = task
                state.n_held += 1
            else:
                _queue(state, task, task_at(state, task).kind)


@compiled_inline
def _started(state: Record, task: int) -> None:
    first = task_at(state, task).first_on_start
    last = task_at(state, task + 1).first_on_start
    if first < last:
        _release(state, state.on_start, first, last)


@compiled_inline
def _complete(state: Record, task: int) -> None:
    state.n_left -= 1
    state.progress += 1
    flag = task_at(state, task).flag
    if flag >= 0:
        store_release(state.own_flags + flag * WORD_BYTES, state.epoch)
    if state.n_left == state.is_ending and state.n_sharing:
        store_release(state.own_counter, state.epoch)
    if task_at(state, task).stage == STAGE_START:
        state.n_left_in_start -= 1
    elif task_at(state, task).stage == STAGE_WAIT:
        state.n_left_held -= 1
    first = task_at(state, task).first_on_completion
    last = task_at(state, task + 1).first_on_completion
    if first < last:
        _release(state, state.on_completion, first, last)


@compiled
def _release_held(state: Record) -> None:
    state.is_holding = 0
    held = ints(state.held, state.n_tasks)
    for i in range(state.n_held):
        _queue(state, held[i], task_at(state, held[i]).kind)
    state.n_held = 0


@compiled
def _start_message(state: Record) -> Long:
    task = pop(ints(state.messages, state.n_tasks), state.n_messages)
    state.n_messages -= 1
    row = task_at(state, task)
    place = state.n_active
    code = call(
        state.isend if row.kind == SEND else state.irecv,
        (
            pointer(base_of(state, row.buffer) + row.offset),
            row.count,
            row.datatype,
            row.peer,
            row.tag,
            state.comm,
            pointer(state.requests + place * state.handle_bytes),
        ),
    )
    if code != 0:
        state.code = code
        return FAILED
    ints(state.active, place + 1)[place] = task
    state.n_active = place + 1
    _started(state, task)
    return DONE


@compiled
def _compute(state: Record, task: int, end_ns: int) -> bool:
    """Keep the core busy as long as the task says; return whether it is over."""
    now = _now(state)
    if state.computing == NO_TASK:
        local = task_at(state, task).local
        state.computing = task
        state.compute_end_ns = now + local_at(state, local).duration_ns
    while now < state.compute_end_ns and now < end_ns:
        now = _now(state)
    if now < state.compute_end_ns:
        return False
    state.computing = NO_TASK
    return True


@compiled
def _run_local(state: Record, end_ns: int) -> Long:
    """Run one local task; return how many bytes it moved."""
    if state.computing != NO_TASK:
        task = state.computing
    else:
        task = np.int64(pop(ints(state.local, state.n_tasks), state.n_local))
        state.n_local -= 1
        _started(state, task)
    row = task_at(state, task)
    n_bytes = np.int64(0)
    if row.kind == COPY:
        n_bytes = run_copy(state, row.local)
    elif row.kind == REDUCE:
        n_bytes = run_reduce(state, row.local)
    elif row.kind == COMPUTE and not _compute(state, task, end_ns):
        return n_bytes
    _complete(state, task)
    return n_bytes


@compiled
def _is_past_gate(state: Record) -> bool:
    """Return whether all ranks of the node have completed the start before."""
    while state.n_past_gate < state.n_sharing:
        if load_acquire(state.counters + state.n_past_gate * COUNTER_BYTES) < state.epoch - 1:
            return False
        state.n_past_gate += 1
    return True


@compiled
def _is_at_end(state: Record) -> bool:
    """Return whether all ranks of the node have completed this start."""
    while state.n_at_end < state.n_sharing:
        if load_acquire(state.counters + state.n_at_end * COUNTER_BYTES) < state.epoch:
            return False
        state.n_at_end += 1
    return True


@compiled
def _is_free(state: Record, task: int) -> bool:
    """Return whether a task need not wait for other ranks' tasks any more."""
    if task_at(state, task).is_gated and not _is_past_gate(state):
        return False
    next_wait = ints(state.next_wait, state.n_tasks)
    at, last = np.int64(next_wait[task]), np.int64(task_at(state, task + 1).first_wait)
    flags = longs(state.waits, last)
    while at < last and load_acquire(flags[at]) >= state.epoch:
        at += 1
    next_wait[task] = at
    return bool(at == last)


@compiled
def _look_around(state: Record) -> None:
    """Queue tasks that others let run; end a start that all of the node have completed."""
    waiting = ints(state.waiting, state.n_tasks)
    i = 0
    while i < state.n_waiting:
        task = np.int64(waiting[i])
        if _is_free(state, task):
            state.n_waiting -= 1
            waiting[i] = waiting[state.n_waiting]
            state.progress += 1
            _queue_free(state, task, task_at(state, task).kind)
        else:
            i += 1
    if _is_only_ending(state) and _is_at_end(state):
        state.n_left = 0
        state.progress += 1


@compiled_inline
def _is_only_ending(state: Record) -> bool:
    """Return whether this rank has only to wait until others have completed the start."""
    return bool(state.is_ending == 1 and state.n_left == 1)


@compiled
def _push_on(state: Record) -> Long:
    """Let MPI push on what this rank has sent, for which it asks no more."""
    code = call(
        state.iprobe,
        (
            np.int32(state.any_source),
            np.int32(state.any_tag),
            state.comm,
            pointer(state.probed),
            pointer(state.statuses),
        ),
    )
    if code != 0:
        state.code = code
        return FAILED
    return DONE


@compiled
def _poll(state: Record) -> Long:
    """Complete the tasks of finished messages; return whether all is well."""
    if state.n_waiting or state.is_ending:
        _look_around(state)
    n = state.n_active
    if n == 0:
        if state.n_messages_in_all and (state.n_waiting or _is_only_ending(state)):
            return _push_on(state)
        return DONE
    # The count comes first, then the places.
    finished = ints(state.finished, n + 1)
    code = call(
        state.testsome,
        (
            np.int32(n),
            pointer(state.requests),
            pointer(state.finished),
            pointer(state.finished + 4),
            pointer(state.statuses),
        ),
    )
    n_finished = finished[0]
    if code != 0:
        state.code = code
        state.n_failed = n_finished
        return FAILED_IN_STATUS
    if n_finished > 0:
        _retire(state, finished, n_finished)
    return DONE


@compiled
def _retire(state: Record, finished: Ints, n_finished: int) -> None:
    """Complete tasks, then close the gaps from the end."""
    active = ints(state.active, state.n_active)
    for i in range(1, n_finished + 1):
        task = active[finished[i]]
        active[finished[i]] = NO_TASK
        _complete(state, np.int64(task))
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


@compiled
def _is_after_reduction(state: Record) -> bool:
    """Return whether the next message is to be received and a ready reduction comes before it.

    To post a receive may copy a whole message that is there already, while another
    rank waits for the reduction's result.
    """
    if state.n_local == 0:
        return False
    local = np.int64(ints(state.local, 1)[0])
    message = np.int64(ints(state.messages, 1)[0])
    if local > message or task_at(state, message).kind != RECV:
        return False
    return bool(task_at(state, local).kind == REDUCE)


@compiled
def _run_ready(state: Record, end_ns: int) -> Long:
    """Start ready messages, then run local tasks one by one, polling now and then."""
    n_in_batch = 0
    n_bytes = np.int64(0)
    while True:
        while state.n_messages and not _is_after_reduction(state):
            found = _start_message(state)
            if found != DONE:
                return found
        if state.n_local == 0 and state.computing == NO_TASK:
            return DONE
        n_bytes += _run_local(state, end_ns)
        n_in_batch += 1
        if n_in_batch == LOCAL_BATCH or n_bytes > BATCH_BYTES or state.computing != NO_TASK:
            n_in_batch = 0
            n_bytes = np.int64(0)
            found = _poll(state)
            if found != DONE:
                return found
            if _now(state) >= end_ns:
                return PENDING


@compiled
def _idle(state: Record, polls: int) -> None:
    """Leave the core to others, more and more."""
    if polls > state.spins:
        n_sleeps = polls - state.spins - state.yields
        if n_sleeps > 0 and state.longest_sleep_ns > 0:
            # What has waited long may well sleep long: it adds little to the wait.
            state.sleep_ns = min(n_sleeps * state.sleep_step_ns, state.longest_sleep_ns)
            call(state.nanosleep, (pointer(state.sleep), pointer(np.int64(0))))
        else:
            call(state.sched_yield, ())


@compiled
def _advance(state: Record, is_starting: bool, end_ns: int) -> Long:
    """Go on until everything, or everything inside the start, is over."""
    polls = 0
    while True:
        found = _run_ready(state, end_ns)
        if found != DONE:
            return found
        left = state.n_left_in_start if is_starting else state.n_left
        if left == 0:
            return DONE
        if state.n_active == 0 and state.n_waiting == 0 and not _is_only_ending(state):
            return DEADLOCK
        before = state.progress
        found = _poll(state)
        if found != DONE:
            return found
        if state.progress != before:
            polls = 0
            continue
        polls += 1
        _idle(state, polls)
        # A sleep is longer than a look at the clock.
        if (polls % POLLS_A_CLOCK == 0 or polls > state.spins) and _now(state) >= end_ns:
            return PENDING


@compiled
def _begin(state: Record) -> None:
    state.epoch += 1
    # To wait for others at the end counts as one more task.
    state.is_ending = state.ends_together
    state.n_left = state.n_tasks + state.is_ending
    state.n_past_gate = 0
    state.n_at_end = 0
    state.n_left_in_start = state.n_in_start
    state.n_left_held = state.n_held_in_all
    state.is_holding = 1
    # Ascending lists are heaps already.
    state.n_messages = state.n_first_messages
    state.n_local = state.n_first_local
    state.n_held = state.n_first_held
    move(state.before, state.n_before, 4 * state.n_tasks)
    move(state.messages, state.first_messages, 4 * state.n_first_messages)
    move(state.local, state.first_local, 4 * state.n_first_local)
    move(state.held, state.first_held, 4 * state.n_first_held)
    state.n_waiting = 0
    first_waiting = ints(state.first_waiting, state.n_first_waiting)
    for i in range(state.n_first_waiting):
        _queue(state, np.int64(first_waiting[i]), 0)
    if state.n_tasks == 0 and state.n_sharing:
        store_release(state.own_counter, state.epoch)


@compiled
def _test(state: Record, end_ns: int) -> Long:
    """Go on without waiting; what belongs inside a wait runs when it alone is left."""
    if state.n_left - state.is_ending == state.n_left_held:
        _release_held(state)
    found = _run_ready(state, end_ns)
    if found == DONE:
        found = _poll(state)
    if found == DONE:
        found = _run_ready(state, end_ns)
    if found == DONE and state.n_left > 0:
        return PENDING
    return found


@compile_with(_nrt=False, nogil=True)
def run_loop(address: int, what: int) -> Long:
    """Do what is asked with the program whose state lies at an address; return how it went."""
    state = state_at(address)
    if what in (START, RUN):
        if state.n_left > 0:
            return BUSY
        if state.n_tasks == 0 and state.n_sharing == 0:
            return DONE
        _begin(state)
    elif state.n_left == 0:
        return DONE
    end_ns = _now(state) + state.turn_ns
    if what == TEST:
        return _test(state, end_ns)
    if what in (START, GO_ON_STARTING, RUN):
        found = _advance(state, True, end_ns)
        if found != DONE or what != RUN:
            return found
    if state.n_left_held:
        _release_held(state)
    return _advance(state, False, end_ns)
