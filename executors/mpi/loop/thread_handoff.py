"""Hand a start from its caller to a progress thread and back; only who has it touches its state.

Two semaphores count: starts handed over, and those whose background is over. They order all
that one thread did before all that the other does. While the thread has a start, the caller
reads counters, for which any value will do, and writes nothing but where it waits and computes.
"""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.calls import call, inlined, inner, load_acquire, pointer
from collplan.executors.mpi.loop.state import SECOND_NS, Long, Record, sleep_on

SHORTEST_SLEEP_NS = 1_000


@inner
def hand_over(state: Record) -> None:
    """Let the thread have a start whose own part is over."""
    # To take it back counts as one more task.
    state.n_left += 1
    state.is_handed = 1
    state.idling = state.thread_idling
    call(state.sem_post, (pointer(state.handed),))


@inner
def take_back(state: Record, turn_ns: int) -> Long:
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
def compute_beside(state: Record) -> bool:
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
def await_start(state: Record) -> None:
    """Sleep until a start is handed over, or the thread is to stop."""
    # A debugger may interrupt it.
    while call(state.sem_wait, (pointer(state.handed),)) != 0:
        pass


@inner
def hand_back(state: Record, found: int) -> None:
    """Let the caller have the start, and say how its background went."""
    state.found = found
    call(state.sem_post, (pointer(state.over),))


@inlined
def is_stopping(state: Record) -> bool:
    """Return whether the thread is to stop."""
    return bool(load_acquire(state.stopping) != 0)


@inlined
def go_to_core(state: Record, task: Record) -> None:
    """Move the thread to the processor of a task; the caller's tasks have none."""
    if task.processor >= 0 and task.processor != state.processor:
        state.processor = task.processor
        mask = state.masks + task.processor * state.mask_bytes
        call(state.sched_setaffinity, (np.int32(0), state.mask_bytes, pointer(mask)))
