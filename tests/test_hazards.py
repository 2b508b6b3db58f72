"""Hazards: exactly the conflicts, in row order, and no more edges than needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import pieces as csr
from planner.hazards import derive_dependencies
from planner.plan import INTENT, ON_START, Buffer

interval = st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(1, 5))
tasks_strategy = st.lists(
    st.tuples(st.integers(0, 2), st.lists(interval, max_size=2), st.lists(interval, max_size=1)),
    max_size=14,
)


def pieces_of(rows, spread=1):
    flat = [block for row in rows for block in row]
    buffer, offset, count = (np.array([b[i] for b in flat], dtype=np.int64) for i in range(3))
    indptr = csr.running_total([len(row) for row in rows])
    return csr.contiguous(indptr, buffer.astype(np.int8), offset * spread, count * spread)


def closure(deps, n):
    """Return for every task the set of tasks before it, as bits."""
    before = [0] * n
    for task in range(n):
        for j in range(deps.indptr[task], deps.indptr[task + 1]):
            predecessor = int(deps.task[j])
            assert predecessor < task
            before[task] |= before[predecessor] | 1 << predecessor
    return before


def touches(one, other):
    return any(a[0] == b[0] and a[1] < b[1] + b[2] and b[1] < a[1] + a[2]
               for a in one for b in other)  # fmt: skip


@settings(max_examples=300)
@given(tasks_strategy, st.sampled_from([1, 10**7]))
def test_every_conflict_is_ordered_and_nothing_else_is(tasks, spread):
    """With a spread of ten million elements the sorted table of atoms takes over."""
    n = len(tasks)
    owner = np.array([rank for rank, *_ in tasks], dtype=np.int32)
    reads = pieces_of([task[1] for task in tasks], spread)
    writes = pieces_of([task[2] for task in tasks], spread)
    deps = derive_dependencies(owner, reads, writes, np.zeros(3, dtype=np.int32), NO_EDGES)
    before = closure(deps, n)
    needed = [0] * n
    for b, (rank_b, reads_b, writes_b) in enumerate(tasks):
        for a, (rank_a, reads_a, writes_a) in enumerate(tasks[:b]):
            if rank_a == rank_b and (
                touches(writes_a, reads_b + writes_b) or touches(reads_a, writes_b)
            ):
                needed[b] |= needed[a] | 1 << a
    assert before == needed


NO_EDGES = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int8))


@pytest.mark.parametrize(("nodes", "is_ordered"), [([0, 0], True), ([0, 1], False)])
def test_ranks_of_a_node_share_the_shared_buffer(nodes, is_ordered):
    owner = np.array([0, 1], dtype=np.int32)
    place = [[(int(Buffer.SHARED), 0, 4)]]
    reads, writes = pieces_of([[], *place]), pieces_of([*place, []])
    deps = derive_dependencies(owner, reads, writes, np.array(nodes, dtype=np.int32), NO_EDGES)
    assert (deps.task.tolist() == [0]) == is_ordered


def test_stated_edges_are_kept_and_a_hazard_says_more():
    owner = np.zeros(3, dtype=np.int32)
    place = [(int(Buffer.RECV), 0, 1)]
    reads, writes = pieces_of([[], place, []]), pieces_of([place, [], []])
    edges = (np.array([0, 0]), np.array([1, 2]), np.array([ON_START, 0], dtype=np.int8))
    deps = derive_dependencies(owner, reads, writes, np.zeros(1, dtype=np.int32), edges)
    assert deps.task.tolist() == [0, 0]
    assert deps.kind.tolist() == [0, INTENT]
