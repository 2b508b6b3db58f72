"""Prefetching changes nothing, in machine code and in Python, for any row."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.executors.cost.prefetching import prefetch
from collplan.executors.cost.tables import TASK, copy_of, table_of
from collplan.planner.machine_code.kernel import compile_with


@compile_with(_nrt=False)
def _count(records, places):
    """Return how many rows were asked for."""
    n = 0
    for place in places:
        prefetch(records, place)
        n += 1
    return n


@pytest.mark.parametrize("count", [_count, _count.call_compiled], ids=["kernel", "machine code"])
def test_prefetching_reads_and_writes_nothing(count):
    tasks = table_of(5, TASK)
    tasks["work"] = np.arange(5)
    before = tasks.copy()
    assert count(tasks, np.array([0, 4, -1, 5, 10**9])) == 5
    np.testing.assert_array_equal(tasks, before)


@pytest.mark.quick
@pytest.mark.parametrize("n", [1, 2, 7])
def test_tables_begin_where_a_line_of_the_cache_does(n):
    table = table_of(n, TASK)
    table["stamp"] = np.arange(n)
    copy = copy_of(table)
    assert TASK.itemsize == 64
    assert all(rows.ctypes.data % 64 == 0 and len(rows) == n for rows in (table, copy))
    np.testing.assert_array_equal(copy, table)
    assert not np.shares_memory(copy, table)
