"""Steps of algorithms that ran recently: parts of many plans have the same algorithm and size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from collplan.planner.algorithms.chunks import Scratch
from collplan.planner.arrays import Ints
from collplan.planner.lowering.collect import Collected

MOST_KEPT: Final = 256
"""Largest number of runs of algorithms that are remembered."""
MOST_ROWS: Final = 1 << 18
"""Largest total number of messages, local steps and runs of chunks that are remembered."""

Made = tuple[Collected, Sequence[Scratch]]
"""Steps of an algorithm, and the layouts of its scratch."""


class RecentSteps:
    """Steps of algorithms that ran recently, with their scratch, the oldest first."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], tuple[Made | None, int]] = {}

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
        found = self._kept.get(key)
        if found is not None:
            made, _ = found
            if made is None or counts is None:
                return made
            return made[0], [one.sized(counts) for one in made[1]]
        made = make()
        is_sized = made is None or counts is None or all(one.counts is counts for one in made[1])
        n_rows = 0 if made is None else made[0].n_rows
        if is_sized and n_rows <= MOST_ROWS:
            self._kept[key] = made, n_rows
            while len(self._kept) > MOST_KEPT or sum(n for _, n in self._kept.values()) > MOST_ROWS:
                self._kept.pop(next(iter(self._kept)), None)
        return made
