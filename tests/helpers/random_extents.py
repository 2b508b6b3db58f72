"""Random extents of buffers, and an operation that shows the order of its operands."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from collplan.planner.plan.plan import NO_PATTERN, Buffer
from mpi_plans import Interval, cells_of

PATTERNS = [NO_PATTERN[0].tolist(), [3, 2, 0, 1], [2, 3, 0, 1], [4, 2, 9, 2], [-3, 2, 0, 1]]
SIZE = 24
BUFFERS = (Buffer.SEND, Buffer.RECV, Buffer.SCRATCH)


def elements(interval: Interval) -> list[tuple[int, int]]:
    """Return (buffer, index) of every element of an extent, in order."""
    return cells_of(interval, PATTERNS)


@st.composite
def sides(draw: st.DrawFn, n_elements: int, buffers: tuple[Buffer, ...]) -> list[Interval]:
    """Draw extents of exactly `n` elements, all inside their buffers and disjoint."""
    found: list[Interval] = []
    taken: set[tuple[int, int]] = set()
    left = n_elements
    while left:
        pattern = draw(st.integers(0, len(PATTERNS) - 1))
        repeats = PATTERNS[pattern][1] * PATTERNS[pattern][3]
        if repeats > left:
            pattern, repeats = 0, 1
        count = draw(st.integers(1, left // repeats))
        buffer = draw(st.sampled_from(buffers))
        fits = [
            (buffer, offset, count, pattern)
            for offset in range(SIZE)
            if all(0 <= i < SIZE for _, i in elements((buffer, offset, count, pattern)))
            and not taken & set(elements((buffer, offset, count, pattern)))
        ]
        if not fits:
            pattern, count = 0, 1
            free = [i for i in range(SIZE) if (buffer, i) not in taken]
            if not free:
                continue
            fits = [(buffer, free[0], 1, 0)]
        interval = draw(st.sampled_from(fits))
        cells = elements(interval)
        if len(set(cells)) < len(cells):
            continue
        taken |= set(cells)
        found.append(interval)
        left -= len(cells)
    return found


class Subtracting:
    """An operation that shows which operand was taken for the left one."""

    def apply(self, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
        np.subtract(left, right, out=out)
