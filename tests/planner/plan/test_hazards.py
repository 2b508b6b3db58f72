"""Hazards: exactly the conflicts, in row order, and no more edges than needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.planner import compile_plan
from collplan.planner.arrays.csr import running_total
from collplan.planner.plan import hazards, pieces
from collplan.planner.plan.hazards import derive_dependencies
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer
from collplan.planner.plan.ragged import INTENT, ON_START
from oracle import make_spec
from tiers import examples

interval = st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(1, 5))
tasks_strategy = st.lists(
    st.tuples(st.integers(0, 2), st.lists(interval, max_size=2), st.lists(interval, max_size=1)),
    max_size=14,
)


def pieces_of(rows, spread=1):
    flat = [block for row in rows for block in row]
    buffer, offset, count = (np.array([b[i] for b in flat], dtype=np.int64) for i in range(3))
    indptr = running_total([len(row) for row in rows])
    # One element further on, so that no greater unit than one divides all ends.
    shift = int(spread > 1)
    return pieces.contiguous(
        indptr, buffer.astype(np.int8), offset * spread + shift, count * spread
    )


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


@settings(max_examples=examples(300))
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


strided = st.tuples(st.integers(0, 12), st.integers(1, 3), st.integers(1, 6), st.integers(1, 4))
"""Offset, count, stride and repeat of a read."""


@settings(max_examples=examples(200))
@given(
    st.lists(strided, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 7)), min_size=1, max_size=8),
    st.sampled_from([1, 8]),
    st.sampled_from([Buffer.SCRATCH, Buffer.SHARED]),
)
def test_strided_reads_conflict_with_what_touches_a_block(columns, rows, unit, buffer):
    """Writes that fit between two blocks don't; nor do block sizes matter."""
    n, k = len(rows), len(columns)
    offset, count, stride, repeat = (np.array(c) * unit for c in zip(*columns, strict=True))
    repeat //= unit
    stride = np.where(repeat > 1, np.maximum(stride, count), 0)
    low, length = (np.array(c) * unit for c in zip(*rows, strict=True))
    kind = np.full(n + k, buffer, dtype=np.int8)
    # Every column is read twice: before all rows are written, and after.
    order = np.concatenate((np.arange(k), k + np.arange(n), np.arange(k)))
    once = pieces.contiguous(np.arange(n + 1), kind[:n], low, length)
    read = Pieces(np.arange(k + 1), kind[:k], offset, count, stride, repeat)
    owner, node = np.arange(n + 2 * k, dtype=np.int32) % 2, np.zeros(2, dtype=np.int32)
    if buffer == Buffer.SCRATCH:
        owner[:] = 0
    reads = pieces.stack((read, pieces.empty(n))).take(order)
    writes = pieces.stack((pieces.empty(k), once)).take(order)
    deps = derive_dependencies(owner, reads, writes, node)
    blocks = [
        [(o + t * s, c) for t in range(r)]
        for o, c, s, r in zip(offset, count, stride, repeat, strict=True)
    ]
    before = closure(deps, n + 2 * k)
    for column in range(k):
        hit = [
            any(low[row] < b + c and b < low[row] + length[row] for b, c in blocks[column])
            for row in range(n)
        ]
        edges = [deps.task[slice(*deps.indptr[k + row : k + row + 2])] for row in range(n)]
        for row in range(n):
            assert hit[row] or column not in edges[row]
            assert not hit[row] or before[k + row] >> column & 1
            assert not hit[row] or before[k + n + column] >> (k + row) & 1
        last = deps.task[slice(*deps.indptr[k + n + column : k + n + column + 2])]
        assert {int(task) - k for task in last} <= set(np.flatnonzero(hit).tolist())


@pytest.mark.parametrize("fields", [{}, {"transport": "shared"}], ids=["messages", "shared"])
def test_nodes_by_turns_have_the_hazards_of_all_at_once(fields, monkeypatch):
    spec = make_spec("alltoall", "auto", 0, {"nodes": 4, "ranks_per_node": [3, 1, 2, 4]}, count=2)
    spec = spec.replace(decomposition={"name": "full_lane", "form": "collect"}, **fields)
    whole = compile_plan(spec)
    monkeypatch.setattr(hazards, "MOST_BLOCKS", 40)
    by_turns = compile_plan(spec)
    for name in ("indptr", "task", "kind"):
        assert np.array_equal(getattr(by_turns.deps, name), getattr(whole.deps, name))
