"""Tests of the heap of events."""

from __future__ import annotations

import numpy as np

from collplan.planner.machine_code.kernel import compiled
from collplan.planner.packing.heap import pop, push


@compiled
def _sorted(values, times, items, found):
    size = 0
    for i in range(len(values)):
        size = push(times, items, size, values[i], i)
    for i in range(len(values)):
        found[i] = items[0]
        size = pop(times, items, size)


def test_events_leave_in_the_order_of_their_times():
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 7, 100):
        values = rng.integers(0, 50, n).astype(np.float64)
        times, items, found = np.zeros(n + 1), np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
        _sorted(values, times, items, found)
        assert values[found].tolist() == sorted(values)
        assert sorted(found.tolist()) == list(range(n))
