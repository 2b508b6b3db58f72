"""Heaps of task indices in memory of the engine, for compiled code."""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop.calls import Ints, compiled


@compiled
def push(heap: Ints, n: int, task: int) -> None:
    """Add a task to a heap of n tasks; ascending tasks stay where they are put."""
    place = n
    while place > 0:
        above = (place - 1) >> 1
        if heap[above] <= task:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = task


@compiled
def pop(heap: Ints, n: int) -> np.int32:
    """Take the least task out of a heap of n tasks."""
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
