"""What the start and the end of a task let run, on this rank and on others of its node."""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop.atomics import store_release
from collplan.executors.mpi.loop.calls import compiled, compiled_inline, ints, longs
from collplan.executors.mpi.loop.queues import push
from collplan.executors.mpi.loop.state import (
    RECV,
    STAGE_START,
    STAGE_WAIT,
    Record,
    now,
    task_at,
)

WORD_BYTES = 8


@compiled_inline
def queue(state: Record, task: int, kind: int) -> None:
    """Let a task run that waits for nothing on this rank any more."""
    row = task_at(state, task)
    if row.waits:
        ints(state.waiting, state.n_tasks)[state.n_waiting] = task
        ints(state.next_wait, state.n_tasks)[task] = row.first_wait
        state.n_waiting += 1
    else:
        queue_free(state, task, kind)


@compiled_inline
def queue_free(state: Record, task: int, kind: int) -> None:
    """Let a task run that waits for nothing at all."""
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
            if task_at(state, task).stage > state.last_stage:
                ints(state.held, state.n_tasks)[state.n_held] = task
                state.n_held += 1
            else:
                queue(state, task, task_at(state, task).kind)


@compiled_inline
def note_start(state: Record, task: int) -> None:
    """Record when a task starts, where tasks are recorded."""
    if state.is_recorded:
        longs(state.start_ns, state.n_tasks)[task] = now(state)


@compiled_inline
def started(state: Record, task: int) -> None:
    """Release those that wait for a task's start."""
    first = task_at(state, task).first_on_start
    last = task_at(state, task + 1).first_on_start
    if first < last:
        _release(state, state.on_start, first, last)


@compiled_inline
def complete(state: Record, task: int) -> None:
    """Count a task that is over, tell other ranks, and release those that wait for its end."""
    if state.is_recorded:
        longs(state.end_ns, state.n_tasks)[task] = now(state)
    state.n_left -= 1
    state.progress += 1
    flag = task_at(state, task).flag
    if flag >= 0:
        store_release(state.own_flags + flag * WORD_BYTES, state.epoch)
    if state.n_left == state.is_ending + state.is_handed and state.n_sharing:
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
def release_held(state: Record, last_stage: int) -> None:
    """Let tasks of a stage and of those before it run from now on."""
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
