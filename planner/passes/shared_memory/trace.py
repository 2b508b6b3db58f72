"""Tracing of elements through memory, to find where the data that tasks read was produced.

Memory holds some elements at first, and tasks other than copies produce more. Every element has a
number, its origin. The origins of elements that memory holds at first are their addresses; those
of later elements follow. Copies and messages move elements, which keep their origins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.passes.shared_memory.values import COPY, Tasks
from collplan.planner.plan.hazards import Accesses


class Trace(NamedTuple):
    """Elements that tasks read, overwrite and write.

    A writing stores elements at contiguous addresses with contiguous origins. A stretch is a
    part of a writing: elements with contiguous origins. Tables are in CSR form by task.

    Parameters
    ----------
    indptr : ndarray of int64, shape (3, n_tasks + 1)
        Offsets in `found`, `overwritten` and `writings`.
    found, overwritten : ndarray of int64, shape (n, 3)
        Stretches that tasks read and overwrite: the writing, the first origin, and the origin
        past the last.
    writings : ndarray of int64, shape (n_writings, 4)
        The first origin, the origin past the last, the first address, and 1 for a copy of a whole
        stretch that the task read, else 0. Writing 0 belongs to no task: it is the initial content
        of memory.
    """

    indptr: Ints
    found: Ints
    overwritten: Ints
    writings: Ints


@compiled
def trace(tasks: Tasks, reads: Accesses, writes: Accesses, edges: Ints) -> Any:
    """Return the `Trace` of tasks; interval i of their accesses is ``edges[i]:edges[i+1]``."""
    n_tasks, n_intervals = len(tasks.op), len(edges) - 1
    indptr = np.zeros((3, n_tasks + 1), np.int64)
    found, n_found = np.empty(((reads.high - reads.low).sum() + 1, 3), np.int64), 0
    over, n_over = np.empty(((writes.high - writes.low).sum() + 1, 3), np.int64), 0
    made, n_made = np.empty((len(over), 4), np.int64), 1
    made[0, 0], made[0, 1], made[0, 2], made[0, 3] = edges[0], edges[-1], edges[0], 0
    indptr[2, 0], unmade = 1, edges[-1]
    # Interval i holds the stretches run[i, 0]:run[i, 1] of `held`.
    run = np.empty((n_intervals, 2), np.int64)
    run[:, 0], run[:, 1] = np.arange(n_intervals), np.arange(1, n_intervals + 1)
    held, n_held = np.zeros((n_intervals + len(over), 3), np.int64), n_intervals
    held[:n_intervals, 1], held[:n_intervals, 2] = edges[:-1], edges[1:]
    for row in range(n_tasks):
        for j in range(reads.indptr[row], reads.indptr[row + 1]):
            most = n_found + _n_held(run, reads.low[j], reads.high[j])
            if most > len(found):
                found = _longer(found, most)
            n_found = _look(held, run, reads.low[j], reads.high[j], found, n_found)
        indptr[0, row + 1] = n_found
        source = row if tasks.op[row] == COPY else tasks.sender[row]
        taken, done = indptr[0, max(source, 0)], 0
        for j in range(writes.indptr[row], writes.indptr[row + 1]):
            low, high = writes.low[j], writes.high[j]
            most = n_over + _n_held(run, low, high)
            if most > len(over):
                over = _longer(over, most)
            n_over = _look(held, run, low, high, over, n_over)
            first, at = n_made, edges[low]
            while at < edges[high]:
                origin, size, is_whole = unmade, edges[high] - at, False
                if source < 0:
                    unmade += size
                else:
                    origin, is_whole = found[taken, 1] + done, done == 0
                    size = min(size, found[taken, 2] - origin)
                    done += size
                    if origin + size == found[taken, 2]:
                        taken, done = taken + 1, 0
                if n_made == len(made):
                    made = _longer(made, n_made + 1)
                made[n_made, 0], made[n_made, 1], made[n_made, 2] = origin, origin + size, at
                made[n_made, 3] = is_whole and done == 0
                n_made += 1
                at += size
            # At most, each interval and each writing ends one stretch.
            most = n_held + high - low + n_made - first
            if most > len(held):
                held = _longer(held, most)
            n_held = _hold(made, first, edges, run, low, high, held, n_held)
        indptr[1, row + 1], indptr[2, row + 1] = n_over, n_made
    return Trace(indptr, found[:n_found], over[:n_over], made[:n_made])


@inner
def _n_held(run: Ints, low: int, high: int) -> Any:
    """Return the number of stretches in the intervals low:high."""
    n = 0
    for i in range(low, high):
        n += run[i, 1] - run[i, 0]
    return n


@inner
def _look(held: Ints, run: Ints, low: int, high: int, table: Ints, n: int) -> Any:
    """Append the stretches in intervals low:high to a table, and return the new length.

    Stretches of a writing whose origins are adjacent are joined.
    """
    first = n
    for i in range(low, high):
        for k in range(run[i, 0], run[i, 1]):
            if n > first and table[n - 1, 0] == held[k, 0] and table[n - 1, 2] == held[k, 1]:
                table[n - 1, 2] = held[k, 2]
                continue
            table[n, 0], table[n, 1], table[n, 2] = held[k, 0], held[k, 1], held[k, 2]
            n += 1
    return n


@inner
def _hold(
    made: Ints, writing: int, edges: Ints, run: Ints, low: int, high: int, held: Ints, n: int
) -> Any:
    """Store writings from `writing` on in the intervals low:high; return the length of `held`."""
    for i in range(low, high):
        at = edges[i]
        if made[writing, 2] + made[writing, 1] - made[writing, 0] < edges[i + 1]:
            run[i, 0] = n
        # If a single writing fills the interval, its stretch replaces the first one in place.
        k = run[i, 0]
        while at < edges[i + 1]:
            end = made[writing, 2] + made[writing, 1] - made[writing, 0]
            origin = made[writing, 0] + at - made[writing, 2]
            size = min(end, edges[i + 1]) - at
            held[k, 0], held[k, 1], held[k, 2] = writing, origin, origin + size
            k += 1
            at += size
            if at == end:
                writing += 1
        run[i, 1] = k
        n = max(n, k)
    return n


@inner
def _longer(table: Ints, most: int) -> Any:
    """Return a copy of a table with at least `most` rows, and at least twice as many as before."""
    longer = np.empty((max(most, 2 * len(table)), table.shape[1]), np.int64)
    longer[: len(table)] = table
    return longer
