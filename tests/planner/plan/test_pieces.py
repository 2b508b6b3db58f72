"""CSR tables of pieces: what they say element by element never changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.planner.arrays.csr import running_total
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan import pieces
from collplan.planner.plan.pieces import slice_blocks

Blocks = list[list[tuple[int, int, int]]]
rows_of_blocks = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 4)), max_size=6),
    min_size=1,
    max_size=5,
)


def table(rows: Blocks) -> pieces.Pieces:
    flat = [block for row in rows for block in row]
    buffer, offset, count = (np.array([b[i] for b in flat], dtype=np.int64) for i in range(3))
    indptr = running_total([len(row) for row in rows])
    return pieces.contiguous(indptr, buffer.astype(np.int8), offset, count)


def elements(made: pieces.Pieces) -> list[list[tuple[int, int]]]:
    """Return every row as its (buffer, offset) elements, in order."""
    rows: list[list[tuple[int, int]]] = [[] for _ in range(len(made))]
    for row, buffer, low, high in zip(*(c.tolist() for c in made.blocks()), strict=True):
        rows[row] += [(buffer, x) for x in range(low, high)]
    return rows


def spelt(rows: Blocks) -> list[list[tuple[int, int]]]:
    return [[(b, o + i) for b, o, n in row for i in range(n)] for row in rows]


@settings(deadline=None)  # the first call loads machine code
@given(rows_of_blocks)
def test_compression_keeps_every_element_in_its_place(rows):
    made = table(rows)
    assert elements(made) == spelt(rows)
    assert made.elements.tolist() == [sum(n for *_, n in row) for row in rows]


def test_blocks_at_one_distance_become_one_strided_piece():
    made = table([[(1, 4 * i, 2) for i in range(5)], [(1, 9, 1), (1, 6, 1), (1, 3, 1)]])
    assert len(made.buffer) == 2
    assert made.stride.tolist() == [4, -3]
    assert made.repeat.tolist() == [5, 3]


@given(rows_of_blocks, st.data())
def test_take_join_and_stack_go_by_rows(rows, data):
    made, want = table(rows), spelt(rows)
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    assert elements(made.take(np.array(index, dtype=np.int64))) == [want[i] for i in index]
    assert elements(pieces.join(made, made)) == [row + row for row in want]
    assert elements(pieces.stack((made, made))) == want + want
    kept = np.array([len(row) % 2 == 0 for row in rows])
    masked = [row if keep else [] for row, keep in zip(want, kept, strict=True)]
    assert elements(made.masked(kept)) == masked


@given(rows_of_blocks)
def test_extents_and_pieces_say_the_same(rows):
    made = table(rows)
    reads, writes, patterns = pieces.to_extents(made, pieces.empty(len(rows)))
    assert len(writes) == 0
    assert elements(pieces.from_extents(reads, patterns)) == spelt(rows)


def test_an_outer_repeat_is_written_out():
    made = table([[(0, 5, 2)]])
    reads, _, _ = pieces.to_extents(made, pieces.empty(1))
    patterns = np.array([[0, 1, 0, 1], [3, 2, 10, 2]])
    twice = type(reads)(reads.indptr, reads.buffer, reads.offset, reads.count, np.array([1]))
    want = [(0, x) for start in (5, 8, 15, 18) for x in (start, start + 1)]
    assert elements(pieces.from_extents(twice, patterns)) == [want]


@given(rows_of_blocks, st.integers(1, 5))
def test_slices_put_together_are_the_row(rows, size):
    want = spelt(rows)
    made = table(rows)
    owner, buffer, low, high = made.blocks()
    indptr = running_total(np.bincount(owner, minlength=len(rows)))
    cuts = [(i, a, min(a + size, len(row))) for i, row in enumerate(want)
            for a in range(0, len(row), size)]  # fmt: skip
    row, first, last = np.array(cuts, dtype=np.int64).reshape(-1, 3).T.copy()
    parts = slice_blocks(indptr, buffer.astype(np.int64), low, high - low, row, first, last)
    got = elements(pieces.contiguous(parts[0], parts[1].astype(np.int8), *parts[2:]))
    assert got == [want[i][a:b] for i, a, b in cuts]


def test_too_many_blocks_are_refused_before_they_are_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pieces, "MOST_BLOCKS_IN_ALL", 2)
    pieces.compress(table([[(0, 0, 1), (0, 2, 1)]]))
    with pytest.raises(AlgorithmError, match="have 3 blocks of memory, at most 2 are planned; use"):
        pieces.compress(table([[(0, 0, 1), (0, 2, 1), (0, 4, 1)]]))
