"""Time that programs compute: what ranks agree on, and when."""

from __future__ import annotations

import time
from typing import Any

import pytest

from collplan.dropin.observation import OBSERVED, Observation


@pytest.mark.ranks(3)
def test_ranks_agree_on_the_longest_of_their_usual_computations(comm: Any) -> None:
    own, seen = comm.Dup(), Observation()
    for _ in range(OBSERVED):
        assert not seen.count(own)
        for seconds in (0.1 + comm.rank, 9.0, 0.01):
            seen.note(seconds)
    assert not seen.count(own)
    end = time.monotonic() + 120
    while not seen.count(own):
        assert time.monotonic() < end
    assert seen.agreed_s == 2.1
    # What comes later changes nothing.
    assert not seen.count(own)
    seen.end()
    unseen = Observation()
    for _ in range(OBSERVED + 1):
        unseen.count(own)
    unseen.end()
    unseen.count(own)
    assert unseen.agreed_s == -1.0
    own.Free()
