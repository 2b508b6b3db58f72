"""Steps of algorithms that ran recently: parts of many plans have the same algorithm and size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from collplan.planner.algorithms.chunks import Scratch
from collplan.planner.arrays import Ints
from collplan.planner.arrays.recent import Recent
from collplan.planner.lowering.collect import Collected

MOST_ROWS: Final = 1 << 18
"""Largest total number of messages, local steps and runs of chunks that are remembered."""
LEAST_ROWS: Final = 1 << 10
"""Number of rows as which a run of an algorithm counts that has fewer."""

Made = tuple[Collected, Sequence[Scratch]]
"""Steps of an algorithm, and the layouts of its scratch."""


class RecentSteps:
    """Steps of algorithms that ran recently, with their scratch."""

    def __init__(self) -> None:
        self._kept: Recent[tuple[Any, ...], tuple[Made | None]] = Recent(MOST_ROWS, _n_rows)

    def find(
        self, key: tuple[Any, ...], counts: Ints | None, make: Callable[[], Made | None]
    ) -> Made | None:
        """Return the steps for a key, which are made if they are not remembered.

        Parameters
        ----------
        key : tuple
            All that the steps depend on.
        counts : ndarray of int64, shape (n_groups, n_chunks), or None
            Sizes of chunks on which only the scratch depends. None if the steps depend on sizes,
            which are then a part of the key.
        make : callable
            Returns the steps, or None if there are none.
        """
        kept = self._kept.get(key)
        if kept is None:
            made = make()
            # Scratch whose sizes are not those of chunks has to be made for every call.
            if made is None or counts is None or all(one.counts is counts for one in made[1]):
                self._kept.keep(key, (made,))
            return made
        (made,) = kept
        if made is None or counts is None:
            return made
        return made[0], [one.sized(counts) for one in made[1]]


def _n_rows(kept: tuple[Made | None]) -> int:
    (made,) = kept
    return max(LEAST_ROWS, 0 if made is None else made[0].n_rows)
