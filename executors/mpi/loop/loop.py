"""The compiled loop: start what is ready, see what has come, until there is nothing left.

It returns to Python when what it was asked for is over, and otherwise after a
turn of some milliseconds, so that signals are handled.

Where a progress thread runs the background, its caller hands a start over to the thread and
takes it back; only who has it touches its state. Two semaphores count: starts handed over, and
those whose background is over. They order all that one thread did before all that the other
does. While the thread has a start, the caller reads counters, for which any value will do, and
writes nothing but where it waits and computes.
"""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.calls import (
    Ints,
    call,
    inlined,
    inner,
    ints,
    load_acquire,
    longs,
    move,
    pointer,
    record_at,
    store_release,
)
from collplan.executors.mpi.loop.dependencies import (
    complete,
    is_only_ending,
    look_around,
    note_start,
    pop,
    queue,
    release_held,
    started,
)
from collplan.executors.mpi.loop.moves import run_copy, run_reduce
from collplan.executors.mpi.loop.records import ARGUMENTS_AT, CALL_BYTES, IDLING, N_ARGUMENTS
from collplan.executors.mpi.loop.state import (
    SECOND_NS,
    Long,
    Record,
    base_of,
    call_at,
    local_at,
    nap,
    now,
    sleep_on,
    state_at,
    task_at,
)

LOCAL_BATCH = 8
"""Local tasks in a row before messages get a turn."""
BATCH_BYTES = 1 << 17
"""Bytes they move before messages get a turn, too."""
POLLS_A_CLOCK = 32
"""Polls in a row without looking at the clock."""
SHORTEST_SLEEP_NS = 1_000
NO_TASK = -1


@inlined
def _go_to_core(state: Record, task: Record) -> None:
    """Move the thread to the processor of a task; the caller's tasks have none."""
    if task.processor >= 0 and task.processor != state.processor:
        state.processor = task.processor
        mask = state.masks + task.processor * state.mask_bytes
        call(state.sched_setaffinity, (np.int32(0), state.mask_bytes, pointer(mask)))


@inner
def _begin_call(state: Record, number: int, request: int) -> Long:
    """Begin a collective of MPI by a call with as many words as any of these functions takes.

    Conventions of 64-bit machines pass each argument, an int or a pointer, as a word, and leave
    it to the caller to clean up, so what a function does not take does no harm.
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
def _start_message(state: Record) -> Long:
    task = pop(ints(state.messages, state.n_tasks), state.n_messages)
    state.n_messages -= 1
    row = task_at(state, task)
    _go_to_core(state, row)
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
def _compute(state: Record, task: int, end_ns: int) -> bool:
    """Keep the core busy as long as the task says; return whether it is over."""
    now_ns = now(state)
    if state.computing == NO_TASK:
        local = task_at(state, task).local
        state.computing = task
        state.compute_end_ns = now_ns + local_at(state, local).duration_ns
    while now_ns < state.compute_end_ns and now_ns < end_ns:
        now_ns = now(state)
    if now_ns < state.compute_end_ns:
        return False
    state.computing = NO_TASK
    return True


@inner
def _run_local(state: Record, end_ns: int) -> Long:
    """Run one local task; return how many bytes it moved, -1 where it raised an exception."""
    if state.computing != NO_TASK:
        task = state.computing
    else:
        task = np.int64(pop(ints(state.local, state.n_tasks), state.n_local))
        state.n_local -= 1
        _go_to_core(state, task_at(state, task))
        note_start(state, task)
        started(state, task)
    row = task_at(state, task)
    n_bytes = np.int64(0)
    if row.kind == codes.COPY:
        n_bytes = run_copy(state, row.local)
    elif row.kind == codes.REDUCE:
        n_bytes = run_reduce(state, row.local)
        if n_bytes < 0:
            return n_bytes
    elif row.kind == codes.COMPUTE and not _compute(state, task, end_ns):
        return n_bytes
    complete(state, task)
    return n_bytes


@inner
def _push_on(state: Record) -> Long:
    """Let MPI push on what this rank has sent, for which it asks no more."""
    source, tag = np.int32(state.any_source), np.int32(state.any_tag)
    probed, status = pointer(state.probed), pointer(state.statuses)
    code = call(state.MPI_Iprobe, (source, tag, state.comm, probed, status))
    if code != 0:
        state.code = code
        return codes.FAILED
    return codes.DONE


@inner
def _poll(state: Record) -> Long:
    """Complete the tasks of finished messages; return whether all is well."""
    if state.n_waiting or state.is_ending:
        look_around(state)
    n = state.n_active
    if n == 0:
        if state.n_messages_in_all and (state.n_waiting or is_only_ending(state)):
            return _push_on(state)
        return codes.DONE
    # The count comes first, then the places.
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
    """Complete tasks, then close the gaps from the end."""
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


@inner
def _is_after_reduction(state: Record) -> bool:
    """Return whether the next message is to be received and a ready reduction comes before it.

    To post a receive may copy a whole message that is there already, while another
    rank waits for the reduction's result.
    """
    if state.n_local == 0:
        return False
    local = np.int64(ints(state.local, 1)[0])
    message = np.int64(ints(state.messages, 1)[0])
    if local > message or task_at(state, message).kind != codes.RECV:
        return False
    return bool(task_at(state, local).kind == codes.REDUCE)


@inner
def _run_ready(state: Record, end_ns: int) -> Long:
    """Start ready messages, then run local tasks one by one, polling now and then."""
    n_in_batch = 0
    n_bytes = np.int64(0)
    while True:
        while state.n_messages and not _is_after_reduction(state):
            found = _start_message(state)
            if found != codes.DONE:
                return found
        if state.n_local == 0 and state.computing == NO_TASK:
            return codes.DONE
        moved = _run_local(state, end_ns)
        if moved < 0:
            return codes.RAISED
        n_bytes += moved
        n_in_batch += 1
        if n_in_batch == LOCAL_BATCH or n_bytes > BATCH_BYTES or state.computing != NO_TASK:
            n_in_batch = 0
            n_bytes = np.int64(0)
            found = _poll(state)
            if found != codes.DONE:
                return found
            if now(state) >= end_ns:
                return codes.PENDING


@inner
def idle(state: Record, polls: int) -> None:
    """Leave the core to others, more and more."""
    idling = record_at(state.idling, 0, IDLING)
    if polls > idling.spins:
        n_sleeps = polls - idling.spins - idling.yields
        if n_sleeps > 0 and idling.longest_sleep_ns > 0:
            # What has waited long may well sleep long: it adds little to the wait.
            nap(state, min(n_sleeps * idling.sleep_step_ns, idling.longest_sleep_ns))
        else:
            call(state.sched_yield, ())


@inlined
def _n_left(state: Record, stage: int) -> Long:
    """Return how many tasks have to be over for a stage and those before it to be."""
    if stage == codes.STAGE_START:
        return state.n_left_in_start
    if stage == codes.STAGE_BACKGROUND:
        return state.n_left - state.n_left_held - state.is_ending - state.is_handed
    return state.n_left


@inner
def _advance(state: Record, stage: int, end_ns: int) -> Long:
    """Go on until a stage and those before it are over."""
    polls = 0
    spins = record_at(state.idling, 0, IDLING).spins
    while True:
        found = _run_ready(state, end_ns)
        if found != codes.DONE:
            return found
        if _n_left(state, stage) == 0:
            return codes.DONE
        if state.n_active == 0 and state.n_waiting == 0 and not is_only_ending(state):
            return codes.DEADLOCK
        before = state.progress
        found = _poll(state)
        if found != codes.DONE:
            return found
        if state.progress != before:
            polls = 0
            continue
        polls += 1
        idle(state, polls)
        # A sleep is longer than a look at the clock.
        if (polls % POLLS_A_CLOCK == 0 or polls > spins) and now(state) >= end_ns:
            return codes.PENDING


@inner
def _begin(state: Record) -> None:
    state.epoch += 1
    # To wait for others at the end counts as one more task.
    state.is_ending = state.ends_together
    state.n_left = state.n_tasks + state.is_ending
    state.n_past_gate = 0
    state.n_at_end = 0
    state.beside_left_ns = state.beside_ns
    state.n_left_in_start = state.n_in_start
    state.n_left_held = state.n_held_in_all
    # What is not inside the start is the thread's, where there is one.
    state.last_stage = codes.STAGE_START if state.has_thread else codes.STAGE_BACKGROUND
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
        queue(state, np.int64(first_waiting[i]), 0)
    if state.n_tasks == 0 and state.n_sharing:
        store_release(state.own_counter, state.epoch)


@inner
def _hand_over(state: Record) -> None:
    """Let the thread have a start whose own part is over."""
    # To take it back counts as one more task.
    state.n_left += 1
    state.is_handed = 1
    state.idling = state.thread_idling
    call(state.sem_post, (pointer(state.handed),))


@inner
def _take_back(state: Record, turn_ns: int) -> Long:
    """Return the outcome of the background, PENDING if it has not ended within the time."""
    is_taken = call(state.sem_trywait, (pointer(state.over),)) == 0
    # For less a caller need not sleep.
    if not is_taken and turn_ns >= SHORTEST_SLEEP_NS:
        is_taken = sleep_on(state, state.over, turn_ns)
    if not is_taken:
        return np.int64(codes.PENDING)
    state.n_left -= 1
    state.is_handed = 0
    state.idling = state.caller_idling
    return np.int64(state.found)


@inner
def _callers_clock(state: Record) -> Long:
    """Return the time; where the loop keeps it, the thread does."""
    call(state.clock_gettime, (np.int32(state.monotonic), pointer(state.deadline)))
    return state.deadline_s * SECOND_NS + state.deadline_ns


@inner
def _compute_beside(state: Record) -> bool:
    """Keep the caller's core busy while a thread has the background; return whether it is over."""
    if state.beside_left_ns > 0:
        begin = _callers_clock(state)
        for_ns = min(state.beside_left_ns, state.turn_ns)
        gone = np.int64(0)
        while gone < for_ns:
            gone = _callers_clock(state) - begin
        state.beside_left_ns -= gone
    return bool(state.beside_left_ns <= 0)


@inner
def _may_release(state: Record) -> bool:
    """Return whether what belongs inside a wait need not be held for one any longer."""
    hold_until_ns = load_acquire(state.hold_until)
    return bool(hold_until_ns == 0 or now(state) >= hold_until_ns)


@inner
def _test(state: Record, end_ns: int) -> Long:
    """Go on without waiting; what belongs inside a wait runs when it alone is left.

    That is, from a time on that may have been set.
    """
    if state.n_left - state.is_ending == state.n_left_held and _may_release(state):
        release_held(state, codes.STAGE_WAIT)
    found = _run_ready(state, end_ns)
    if found == codes.DONE:
        found = _poll(state)
    if found == codes.DONE:
        found = _run_ready(state, end_ns)
    if found == codes.DONE and state.n_left > 0:
        if _is_in_start(state) and state.n_left_in_start == 0:
            _hand_over(state)
        return codes.PENDING
    return found


@inner
def _serve(state: Record) -> Long:
    """Run the background of every start that is handed over, until told to stop."""
    while True:
        # A debugger may interrupt it.
        while call(state.sem_wait, (pointer(state.handed),)) != 0:
            pass
        if load_acquire(state.stopping):
            return codes.DONE
        release_held(state, codes.STAGE_BACKGROUND)
        found = np.int64(codes.PENDING)
        while found == codes.PENDING:
            found = _advance(state, codes.STAGE_BACKGROUND, now(state) + state.thread_turn_ns)
            if load_acquire(state.stopping):
                return codes.DONE
        state.found = found
        call(state.sem_post, (pointer(state.over),))


@inlined
def _is_in_start(state: Record) -> bool:
    """Return whether the start has still to be handed over."""
    return bool(state.has_thread and state.last_stage == codes.STAGE_START)


@inner
def _begin_or_take_back(state: Record, what: int) -> Long:
    """Do what comes before the caller's own tasks; return DONE where they may go on."""
    if what == codes.START or what == codes.RUN:
        if state.n_left > 0:
            return codes.BUSY
        _begin(state)
    # An interrupt may have come out of a start.
    is_waiting = what == codes.WAIT and not state.is_handed and _is_in_start(state)
    is_starting = what == codes.START or what == codes.GO_ON_STARTING
    if is_starting or what == codes.RUN or is_waiting:
        found = _advance(state, codes.STAGE_START, now(state) + state.turn_ns)
        if found != codes.DONE:
            return found
        if state.has_thread:
            _hand_over(state)
    if state.is_handed and not is_starting:
        if not _compute_beside(state):
            return codes.PENDING
        # Testing does not wait.
        return _take_back(state, 0 if what == codes.TEST else state.turn_ns)
    return codes.DONE


@inner
def run_loop(address: int, what: int) -> Long:
    """Do what is asked with the program whose state lies at an address; return how it went."""
    state = state_at(address)
    if what == codes.SERVE:
        return _serve(state)
    if what == codes.START or what == codes.RUN:
        if state.n_tasks == 0 and state.n_sharing == 0:
            return codes.DONE
    elif state.n_left == 0:
        return codes.DONE
    found = _begin_or_take_back(state, what)
    if found != codes.DONE or what == codes.START or what == codes.GO_ON_STARTING:
        return found
    end_ns = now(state) + state.turn_ns
    if what == codes.TEST:
        return _test(state, end_ns)
    if state.last_stage < codes.STAGE_WAIT:
        release_held(state, codes.STAGE_WAIT)
    return _advance(state, codes.STAGE_WAIT, end_ns)
