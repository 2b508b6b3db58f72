"""Recent steps of algorithms: made once, with scratch of the size that is wanted."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.chunks import Packed
from collplan.planner.algorithms.rounds import Copy, Group, Round
from collplan.planner.arrays import Ints
from collplan.planner.lowering.collect import collect
from collplan.planner.lowering.recent_steps import LEAST_ROWS, MOST_ROWS, Made, RecentSteps


class Maker:
    """A function that makes steps with two rows and runs each, and counts its calls."""

    def __init__(self, counts: Ints) -> None:
        self.counts, self.n_calls = counts, 0

    def __call__(self) -> Made:
        self.n_calls += 1
        group = Group(2, 0, True, self.counts)
        me = group.positions
        step = Copy(me, group.whole(group.input), group.whole(group.output))
        return collect([Round(step)]), [Packed(self.counts, 2)]


def counts_of(n: int) -> Ints:
    return np.full((1, 3), n, dtype=np.int64)


def test_steps_are_made_once_and_scratch_has_the_wanted_sizes() -> None:
    recent, make = RecentSteps(), Maker(counts_of(4))
    first, again = (recent.find(("a",), counts, make) for counts in (make.counts, counts_of(7)))
    assert first is not None
    assert again is not None
    assert make.n_calls == 1
    assert first[0] is again[0]
    assert [one.counts.tolist() for one in (*first[1], *again[1])] == [[[4, 4, 4]], [[7, 7, 7]]]


def test_that_there_are_no_steps_is_remembered() -> None:
    asked = []
    recent = RecentSteps()
    for _ in range(2):
        assert recent.find(("a",), counts_of(1), lambda: asked.append(1)) is None
    assert asked == [1]


def test_scratch_of_sizes_of_its_own_is_made_every_time() -> None:
    """It does not follow from the sizes of chunks."""
    recent, make = RecentSteps(), Maker(counts_of(4))
    for _ in range(2):
        recent.find(("a",), counts_of(4), make)
    assert make.n_calls == 2


def test_many_steps_displace_others() -> None:
    recent, make = RecentSteps(), Maker(counts_of(4))
    for key in range(MOST_ROWS // LEAST_ROWS + 1):
        recent.find((key,), None, make)
    n_made = make.n_calls
    recent.find((1,), None, make)
    assert make.n_calls == n_made
    recent.find((0,), None, make)
    assert make.n_calls == n_made + 1
