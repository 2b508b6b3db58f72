"""Numbers relative to positions: each operation against the same on all positions at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collplan.planner.algorithms.relative import NotRelativeError, Relative
from collplan.planner.arrays.motion import Motion
from looping import looped

MOTIONS = [Motion("shift", 12, 1), Motion("shift", 12, 2), Motion("shift", 12, 4),
           Motion("xor", 16, 1), Motion("xor", 16, 4)]  # fmt: skip
HELD = [
    lambda me, size: (me + 5) % size,
    lambda me, size: (me - 7) % size,
    lambda me, size: me ^ 1,
    lambda me, size: me ^ 6,
    lambda me, size: me % 2,
    lambda me, size: me - me % 2,
    lambda me, size: 3 * size + me,
    lambda me, size: np.where(me % 2 == 0, me - 1, me + 1) % size,
    lambda me, size: ((me + 1) % size)[(me + 3) % size],
]


def changed_in_place(me: Any, size: int) -> Any:
    """Change numbers in place, and return what another name of them sees."""
    same = me
    me += 9
    me -= 2
    me %= size
    if size & (size - 1) == 0:
        me ^= 1
    return same


HELD.append(changed_in_place)
REFUSED = [
    lambda me: me < 3,
    lambda me: me == 0,
    lambda me: 5 - me,
    lambda me: 2 * me,
    lambda me: me >> 1,
    lambda me: me // 2,
    lambda me: me & 1,
    lambda me: me[1:],
    lambda me: me + me,
    lambda me: me + np.zeros(12, dtype=int),
    lambda me: me + 0.5,
    lambda me: np.where(np.arange(12) < 3, me, me + 1),
    lambda me: np.flatnonzero(me),
    lambda me: np.arange(12)[me],
    lambda me: np.arange(12) < me,
    lambda me: range(me.size),
    lambda me: me.shape,
    lambda me: np.size(me),
    lambda me: me.max(),
    list,
    range,
    bool,
    int,
]


def at_all(value: Any, motion: Motion) -> list[int]:
    """Return a value of a block's positions at all positions."""
    found = []
    for block in range(motion.n_blocks):
        if isinstance(value, Relative):
            numbers = motion.move(value.values, block) + value.offset
        else:
            numbers = value
        found += np.broadcast_to(numbers, motion.step).tolist()
    return found


@looped("number", HELD)
def test_an_operation_gives_what_it_gives_on_all_positions(
    number: Callable[[Any, int], Any],
) -> None:
    n_held = 0
    for motion in MOTIONS:
        try:
            relative = number(Relative.positions(motion), motion.size)
        except NotRelativeError:
            continue
        n_held += 1
        wanted = number(np.arange(motion.size), motion.size)
        assert at_all(relative, motion) == wanted.tolist(), motion
    assert n_held > 0


@looped("motion", MOTIONS)
@looped("number", REFUSED)
def test_what_depends_on_the_position_is_refused(
    motion: Motion, number: Callable[[Any], Any]
) -> None:
    with pytest.raises((NotRelativeError, TypeError, AttributeError)):
        number(Relative.positions(motion))
