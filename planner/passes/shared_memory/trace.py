"""Elements traced through memory: where all that tasks read has been made.

Memory holds some elements at first, and tasks that do not copy make others. All of them lie
on one line, whose places are called origins: what memory holds at first has its addresses as
origins. Copies and messages move elements, which keep their origins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.arrays.jit import compiled, inner
from collplan.planner.passes.shared_memory.values import COPY, Tasks
from collplan.planner.plan.hazards import Accesses


class Trace(NamedTuple):
    """What tasks find in memory, what they overwrite, and what they put there.

    A stretch is a row of three numbers: elements with neighbouring origins that one writing
    has put next to each other. Tables are in CSR by task.

    Parameters
    ----------
    indptr : ndarray of int64, shape (3, n_tasks + 1)
        Offsets in `found`, `overwritten` and `writings`.
    found, overwritten : ndarray of int64, shape (n, 3)
        Stretches: the writing, the first origin, and the one past the last.
    writings : ndarray of int64, shape (n_writings, 3)
        The first origin, the one past the last, and the first address. Writing 0 is no
        task's, but what memory holds at first.
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
    found, n_found = np.empty((n_intervals + 16, 3), np.int64), 0
    over, n_over = np.empty((n_intervals + 16, 3), np.int64), 0
    made, n_made = np.empty((n_intervals + 16, 3), np.int64), 1
    made[0, 0], made[0, 1], made[0, 2] = edges[0], edges[-1], edges[0]
    indptr[2, 0], unmade = 1, edges[-1]
    # Interval i holds stretches run[i, 0]:run[i, 1].
    run = np.arange(2 * n_intervals).reshape(n_intervals, 2) // 2
    run[:, 1] += 1
    held, n_held = np.zeros((2 * n_intervals + 16, 3), np.int64), n_intervals
    held[:n_intervals, 1], held[:n_intervals, 2] = edges[:-1], edges[1:]
    for row in range(n_tasks):
        for j in range(reads.indptr[row], reads.indptr[row + 1]):
            block = run[reads.low[j] : reads.high[j]]
            found, n_found = _copy_stretches(held, block, found, n_found)
        indptr[0, row + 1] = n_found
        source = row if tasks.op[row] == COPY else tasks.sender[row]
        taken, done = indptr[0, max(source, 0)], 0
        for j in range(writes.indptr[row], writes.indptr[row + 1]):
            low, high = writes.low[j], writes.high[j]
            over, n_over = _copy_stretches(held, run[low:high], over, n_over)
            first, at, end = n_made, edges[low], edges[high]
            while at < end:
                origin, size = unmade, end - at
                if source < 0:
                    unmade += size
                else:
                    origin = found[taken, 1] + done
                    size = min(size, found[taken, 2] - origin)
                    done += size
                    if origin + size == found[taken, 2]:
                        taken, done = taken + 1, 0
                made = _with_room(made, n_made)
                made[n_made, 0], made[n_made, 1], made[n_made, 2] = origin, origin + size, at
                n_made += 1
                at += size
            held, n_held = _hold(made, first, edges[low : high + 1], run[low:high], held, n_held)
        indptr[1, row + 1], indptr[2, row + 1] = n_over, n_made
    return Trace(indptr, found[:n_found].copy(), over[:n_over].copy(), made[:n_made].copy())


@inner
def _copy_stretches(held: Ints, runs: Ints, table: Ints, n: int) -> Any:
    """Append what some intervals hold to a table, neighbours joined; return it and its length."""
    first = n
    for i in range(len(runs)):
        for k in range(runs[i, 0], runs[i, 1]):
            writing, low = held[k, 0], held[k, 1]
            if n > first and table[n - 1, 0] == writing and table[n - 1, 2] == low:
                table[n - 1, 2] = held[k, 2]
                continue
            table = _with_room(table, n)
            table[n, 0], table[n, 1], table[n, 2] = writing, low, held[k, 2]
            n += 1
    return table, n


@inner
def _hold(made: Ints, writing: int, edges: Ints, runs: Ints, held: Ints, n: int) -> Any:
    """Let intervals hold what writings from `writing` on put there; return the stretches held."""
    for i in range(len(runs)):
        at = edges[i]
        end = made[writing, 2] + made[writing, 1] - made[writing, 0]
        if end < edges[i + 1]:
            runs[i, 0] = n
        # What one writing fills takes the place of a stretch that was there.
        k = runs[i, 0]
        while at < edges[i + 1]:
            end = made[writing, 2] + made[writing, 1] - made[writing, 0]
            origin = made[writing, 0] + at - made[writing, 2]
            size = min(end, edges[i + 1]) - at
            if k == n:
                held = _with_room(held, n)
                n += 1
            held[k, 0], held[k, 1], held[k, 2] = writing, origin, origin + size
            k += 1
            at += size
            if at == end:
                writing += 1
        runs[i, 1] = k
    return held, n


@inner
def _with_room(table: Ints, n: int) -> Any:
    """Return a table that has a row n: itself, or one of twice as many rows."""
    return np.concatenate((table, np.empty_like(table))) if n == len(table) else table
