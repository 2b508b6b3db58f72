"""Heaps of ready tasks, and updates of them when a task starts or ends."""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.calls import (
    Ints,
    inlined,
    inner,
    ints,
    load_acquire,
    longs,
    store_release,
)
from collplan.executors.mpi.loop.state import Long, Record, now, task_at

WORD_BYTES = 8
COUNTER_BYTES = 64


@inner
def push(heap: Ints, n: int, task: int) -> None:
    """Add a task to a heap of n tasks; no task is moved if tasks are added in ascending order."""
    place = n
    while place > 0:
        above = (place - 1) >> 1
        if heap[above] <= task:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = task


@inner
def pop(heap: Ints, n: int) -> np.int32:
    """Remove and return the smallest task of a heap of n tasks."""
    least: np.int32 = heap[0]
    last = heap[n - 1]
    n -= 1
    place = 0
    while True:
        below = 2 * place + 1
        if below >= n:
            break
        if below + 1 < n and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= last:
            break
        heap[place] = heap[below]
        place = below
    heap[place] = last
    return least


@inlined
def queue(state: Record, task: int, kind: int) -> None:
    """Queue a task whose dependencies on this rank are all fulfilled."""
    row = task_at(state, task)
    if row.waits:
        ints(state.waiting, state.n_tasks)[state.n_waiting] = task
        ints(state.next_wait, state.n_tasks)[task] = row.first_wait
        state.n_waiting += 1
    else:
        queue_free(state, task, kind)


@inlined
def queue_free(state: Record, task: int, kind: int) -> None:
    """Queue a task whose dependencies are all fulfilled, so that it is ready."""
    if kind <= codes.RECV:
        push(ints(state.messages, state.n_tasks), state.n_messages, task)
        state.n_messages += 1
    else:
        push(ints(state.local, state.n_tasks), state.n_local, task)
        state.n_local += 1


@inner
def _release(state: Record, successors: int, first: int, last: int) -> None:
    before = ints(state.before, state.n_tasks)
    after = ints(successors, last)
    for i in range(first, last):
        task = after[i]
        before[task] -= 1
        if before[task] == 0:
            if task_at(state, task).stage > state.last_stage:
                ints(state.held, state.n_tasks)[state.n_held] = task
                state.n_held += 1
            else:
                queue(state, task, task_at(state, task).kind)


@inlined
def note_start(state: Record, task: int) -> None:
    """Record the start time of a task, if times are recorded."""
    if state.is_recorded:
        longs(state.start_ns, state.n_tasks)[task] = now(state)


@inlined
def started(state: Record, task: int) -> None:
    """Release the tasks that wait for the start of a task."""
    first = task_at(state, task).first_on_start
    last = task_at(state, task + 1).first_on_start
    if first < last:
        _release(state, state.on_start, first, last)


@inlined
def complete(state: Record, task: int) -> None:
    """Count a task that has ended, notify other ranks, and release the tasks that wait for it."""
    if state.is_recorded:
        longs(state.end_ns, state.n_tasks)[task] = now(state)
    state.n_left -= 1
    state.progress += 1
    flag = task_at(state, task).flag
    if flag >= 0:
        store_release(state.own_flags + flag * WORD_BYTES, state.epoch)
    if state.n_left == state.is_ending + state.is_handed and state.n_sharing:
        store_release(state.own_counter, state.epoch)
    if task_at(state, task).stage == codes.STAGE_START:
        state.n_left_in_start -= 1
    elif task_at(state, task).stage == codes.STAGE_WAIT:
        state.n_left_held -= 1
    first = task_at(state, task).first_on_completion
    last = task_at(state, task + 1).first_on_completion
    if first < last:
        _release(state, state.on_completion, first, last)


@inner
def release_held(state: Record, last_stage: int) -> None:
    """Queue the held tasks of a stage and of earlier stages, which are no longer held."""
    state.last_stage = last_stage
    held = ints(state.held, state.n_tasks)
    n_held = state.n_held
    state.n_held = 0
    for i in range(n_held):
        task = np.int64(held[i])
        if task_at(state, task).stage > last_stage:
            held[state.n_held] = task
            state.n_held += 1
        else:
            queue(state, task, task_at(state, task).kind)


@inner
def _n_completed(state: Record, epoch: int, n_seen: int) -> Long:
    """Return the number of ranks of the node, before the first that has not completed a start.

    Parameters
    ----------
    state : Record
    epoch : int
        Number of the start.
    n_seen : int
        Number of ranks that are known to have completed it.
    """
    while n_seen < state.n_sharing:
        if load_acquire(state.counters + n_seen * COUNTER_BYTES) < epoch:
            break
        n_seen += 1
    return n_seen


@inner
def _is_free(state: Record, task: int) -> bool:
    """Return whether a task no longer waits for tasks of other ranks."""
    if task_at(state, task).is_gated:
        # All ranks of the node must have completed the previous start.
        state.n_past_gate = _n_completed(state, state.epoch - 1, state.n_past_gate)
        if state.n_past_gate < state.n_sharing:
            return False
    next_wait = ints(state.next_wait, state.n_tasks)
    at, last = np.int64(next_wait[task]), np.int64(task_at(state, task + 1).first_wait)
    flags = longs(state.waits, last)
    while at < last and load_acquire(flags[at]) >= state.epoch:
        at += 1
    next_wait[task] = at
    return bool(at == last)


@inner
def look_around(state: Record) -> None:
    """Queue tasks whose awaited tasks of other ranks have ended.

    If this rank only waits for other ranks of the node, and all of them have completed the start,
    the start ends.
    """
    waiting = ints(state.waiting, state.n_tasks)
    i = 0
    while i < state.n_waiting:
        task = np.int64(waiting[i])
        if _is_free(state, task):
            state.n_waiting -= 1
            waiting[i] = waiting[state.n_waiting]
            state.progress += 1
            queue_free(state, task, task_at(state, task).kind)
        else:
            i += 1
    if is_only_ending(state):
        state.n_at_end = _n_completed(state, state.epoch, state.n_at_end)
        if state.n_at_end == state.n_sharing:
            state.n_left = 0
            state.progress += 1


@inlined
def is_only_ending(state: Record) -> bool:
    """Return whether this rank only waits until other ranks have completed the start."""
    return bool(state.is_ending == 1 and state.n_left == 1)
