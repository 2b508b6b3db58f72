"""The compiled loop, which starts ready tasks and polls messages until all tasks have ended.

It returns to Python when the request of the caller is fulfilled, or after a turn of a few
milliseconds, so that Python can handle signals.

If a progress thread runs background tasks, the caller hands a start over to the thread, and later
takes it back. Only the thread that has the start changes its state. Two semaphores count the starts
that were handed over, and those whose background tasks have ended. They also order the memory
accesses of both threads. While the progress thread has a start, the caller only reads counters, for
which a stale value does no harm, and only writes the fields for its own wait and computation.
"""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.calls import (
    call,
    inlined,
    inner,
    ints,
    load_acquire,
    move,
    pointer,
    record_at,
    store_release,
)
from collplan.executors.mpi.loop.dependencies import (
    complete,
    is_only_ending,
    note_start,
    pop,
    queue,
    release_held,
    started,
)
from collplan.executors.mpi.loop.messages import (
    NO_TASK,
    go_to_core,
    poll,
    push_beside,
    start_message,
)
from collplan.executors.mpi.loop.moves import run_copy, run_reduce
from collplan.executors.mpi.loop.records import IDLING
from collplan.executors.mpi.loop.state import (
    SECOND_NS,
    Long,
    Record,
    local_at,
    nap,
    now,
    sleep_on,
    state_at,
    task_at,
)

LOCAL_BATCH = 8
"""Maximum number of consecutive local tasks between two polls of messages."""
BATCH_BYTES = 1 << 17
"""Number of bytes moved by local tasks after which messages are polled, too."""
POLLS_A_CLOCK = 32
"""Number of consecutive polls between two readings of the clock."""
SHORTEST_SLEEP_NS = 1_000
"""Shortest time in ns for which a caller sleeps while it waits for the progress thread."""


@inner
def _compute(state: Record, task: int, end_ns: int) -> int:
    """Compute a task: call its function, or keep the core busy until it ends or `end_ns`.

    Returns
    -------
    int
        DONE, PENDING or RAISED of `codes`.
    """
    function = local_at(state, task_at(state, task).local).function
    if function != 0:
        return codes.DONE if call(function, (task,)) == 0 else codes.RAISED
    now_ns = now(state)
    if state.computing == NO_TASK:
        local = task_at(state, task).local
        state.computing = task
        state.compute_end_ns = now_ns + local_at(state, local).duration_ns
    while now_ns < state.compute_end_ns and now_ns < end_ns:
        now_ns = now(state)
    if now_ns < state.compute_end_ns:
        return codes.PENDING
    state.computing = NO_TASK
    return codes.DONE


@inner
def _run_local(state: Record, end_ns: int) -> Long:
    """Run one local task; return the number of bytes it moved, or -1 if it raised an exception."""
    if state.computing != NO_TASK:
        task = state.computing
    else:
        task = np.int64(pop(ints(state.local, state.n_tasks), state.n_local))
        state.n_local -= 1
        go_to_core(state, task_at(state, task))
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
    elif row.kind == codes.COMPUTE:
        found = _compute(state, task, end_ns)
        if found != codes.DONE:
            return np.int64(-1 if found == codes.RAISED else 0)
    complete(state, task)
    return n_bytes


@inner
def _is_after_reduction(state: Record) -> bool:
    """Return whether the next message is a receive, and a ready reduction precedes it.

    Posting a receive may copy a whole message that has already arrived, while another rank waits
    for the result of the reduction.
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
    """Start ready messages, then run ready local tasks and poll in between.

    Returns
    -------
    int
        DONE if no task is ready, PENDING if the time is over, or the error.
    """
    n_in_batch = 0
    n_bytes = np.int64(0)
    while True:
        while state.n_messages and not _is_after_reduction(state):
            found = start_message(state)
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
            found = poll(state)
            if found != codes.DONE:
                return found
            if now(state) >= end_ns:
                return codes.PENDING


@inner
def idle(state: Record, polls: int) -> None:
    """Yield the core, and after some polls sleep for increasing times.

    Parameters
    ----------
    state : Record
    polls : int
        Number of consecutive polls without progress.
    """
    idling = record_at(state.idling, 0, IDLING)
    if polls > idling.spins:
        n_sleeps = polls - idling.spins - idling.yields
        if n_sleeps > 0 and idling.longest_sleep_ns > 0:
            # After a long wait, a long sleep increases its total time by a small fraction only.
            nap(state, min(n_sleeps * idling.sleep_step_ns, idling.longest_sleep_ns))
        else:
            call(state.sched_yield, ())


@inlined
def _n_left(state: Record, stage: int) -> Long:
    """Return the number of remaining tasks of a stage and the earlier stages."""
    if stage == codes.STAGE_START:
        return state.n_left_in_start
    if stage == codes.STAGE_BACKGROUND:
        return state.n_left - state.n_left_held - state.is_ending - state.is_handed
    return state.n_left


@inner
def _advance(state: Record, stage: int, end_ns: int) -> Long:
    """Run tasks until a stage and the earlier stages have ended, or the time is over."""
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
        found = poll(state)
        if found != codes.DONE:
            return found
        if state.progress != before:
            polls = 0
            continue
        polls += 1
        idle(state, polls)
        # Reading the clock takes less time than a sleep, so read it after each.
        if polls % POLLS_A_CLOCK == 0 or polls > spins:
            # The progress thread may not call MPI if its plan has no messages.
            found = np.int64(codes.DONE) if state.is_handed else push_beside(state)
            if found != codes.DONE:
                return found
            if now(state) >= end_ns:
                return codes.PENDING


@inner
def _begin(state: Record) -> None:
    state.epoch += 1
    # The wait for other ranks at the end counts as a task.
    state.is_ending = state.ends_together
    state.n_left = state.n_tasks + state.is_ending
    state.n_past_gate = 0
    state.n_at_end = 0
    state.beside_left_ns = state.beside_ns
    state.n_left_in_start = state.n_in_start
    state.n_left_held = state.n_held_in_all
    # If there is a progress thread, only tasks of the START stage run before it takes over.
    state.last_stage = codes.STAGE_START if state.has_thread else codes.STAGE_BACKGROUND
    # Lists in ascending order are valid heaps.
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
    """Hand a start, whose START stage has ended, over to the progress thread."""
    # Taking it back counts as a task.
    state.n_left += 1
    state.is_handed = 1
    state.idling = state.thread_idling
    call(state.sem_post, (pointer(state.handed),))


@inner
def _take_back(state: Record, turn_ns: int) -> Long:
    """Take a start back, and return the outcome of its background; PENDING after `turn_ns`."""
    is_taken = call(state.sem_trywait, (pointer(state.over),)) == 0
    # A shorter sleep is not worth its cost.
    if not is_taken and turn_ns >= SHORTEST_SLEEP_NS:
        is_taken = sleep_on(state, state.over, turn_ns)
    if not is_taken:
        found = push_beside(state)
        return found if found != codes.DONE else np.int64(codes.PENDING)
    state.n_left -= 1
    state.is_handed = 0
    state.idling = state.caller_idling
    return np.int64(state.found)


@inner
def _callers_clock(state: Record) -> Long:
    """Return the time in ns. Unlike `now`, it writes no memory that the progress thread uses."""
    call(state.clock_gettime, (np.int32(state.monotonic), pointer(state.deadline)))
    return state.deadline_s * SECOND_NS + state.deadline_ns


@inner
def _compute_beside(state: Record) -> bool:
    """Compute on the caller's core while the thread has the start; return True at the end."""
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
    """Return whether tasks of the WAIT stage are no longer held for a wait."""
    hold_until_ns = load_acquire(state.hold_until)
    return bool(hold_until_ns == 0 or now(state) >= hold_until_ns)


@inner
def _test(state: Record, end_ns: int) -> Long:
    """Run ready tasks and poll once, without waiting.

    If only tasks of the WAIT stage remain, they run, too, but not before the time `hold_until_ns`
    if it is set.
    """
    if state.n_left - state.is_ending == state.n_left_held and _may_release(state):
        release_held(state, codes.STAGE_WAIT)
    found = _run_ready(state, end_ns)
    if found == codes.DONE:
        found = poll(state)
    if found == codes.DONE:
        found = _run_ready(state, end_ns)
    if found == codes.DONE and state.n_left > 0:
        if _is_in_start(state) and state.n_left_in_start == 0:
            _hand_over(state)
        found = push_beside(state)
        return found if found != codes.DONE else np.int64(codes.PENDING)
    return found


@inner
def _serve(state: Record) -> Long:
    """Run the background tasks of every start that is handed over, until `stopping` is set."""
    while True:
        # A debugger may interrupt the wait.
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
    """Return whether the start must still be handed over to the progress thread."""
    return bool(state.has_thread and state.last_stage == codes.STAGE_START)


@inner
def _begin_or_take_back(state: Record, what: int, end_ns: int) -> Long:
    """Begin a start, hand it over or take it back, as requested.

    Parameters
    ----------
    state : Record
    what : int
        Request.
    end_ns : int
        Time at which the turn is over, if there is no progress thread.

    Returns
    -------
    int
        DONE if the caller may continue with its own tasks.
    """
    if what == codes.START or what == codes.RUN:
        if state.n_left > 0:
            return codes.BUSY
        _begin(state)
    # If a signal interrupted the start, the wait completes its START stage.
    is_waiting = what == codes.WAIT and not state.is_handed and _is_in_start(state)
    is_starting = what == codes.START or what == codes.GO_ON_STARTING
    if is_starting or what == codes.RUN or is_waiting:
        if state.has_thread:
            end_ns = now(state) + state.turn_ns
        found = _advance(state, codes.STAGE_START, end_ns)
        if found != codes.DONE:
            return found
        if state.has_thread:
            _hand_over(state)
    if state.is_handed and not is_starting:
        if not _compute_beside(state):
            return codes.PENDING
        # A test does not wait.
        return _take_back(state, 0 if what == codes.TEST else state.turn_ns)
    return codes.DONE


@inner
def run_loop(address: int, what: int) -> Long:
    """Fulfill a request for a program.

    Parameters
    ----------
    address : int
        Address of the program's state.
    what : int
        START, GO_ON_STARTING, TEST, WAIT, RUN or SERVE of `codes`.

    Returns
    -------
    int
        Outcome, from DONE to RAISED of `codes`.
    """
    state = state_at(address)
    if what == codes.SERVE:
        return _serve(state)
    if what == codes.START or what == codes.RUN:
        if state.n_tasks == 0 and state.n_sharing == 0:
            return codes.DONE
    elif state.n_left == 0:
        return codes.DONE
    # Reading the clock takes a good part of the time of a small plan. While a thread has the start,
    # `now` must not be called.
    end_ns = np.int64(0)
    if not state.has_thread:
        end_ns = now(state) + state.turn_ns
    found = _begin_or_take_back(state, what, end_ns)
    if found != codes.DONE or what == codes.START or what == codes.GO_ON_STARTING:
        return found
    if state.has_thread:
        end_ns = now(state) + state.turn_ns
    if what == codes.TEST:
        return _test(state, end_ns)
    if state.last_stage < codes.STAGE_WAIT:
        release_held(state, codes.STAGE_WAIT)
    return _advance(state, codes.STAGE_WAIT, end_ns)
