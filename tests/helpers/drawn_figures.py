"""Figures that reports draw, kept in memory in place of files, and what is on their axes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from collplan.planner.arrays import Floats


def keep_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return a list to which figures are added when a report would write them to a file."""
    found: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: found.append(figure))
    return found


def boxes_of(collections: Iterable[Collection]) -> Floats:
    """Return left, low, right and high of each polygon or line, shape (n, 4)."""
    found = [path.get_extents().extents for one in collections for path in one.get_paths()]
    return np.array(found).reshape(-1, 4)


def in_order(boxes: Floats) -> Floats:
    """Return boxes in ascending order."""
    return boxes[np.lexsort(boxes.T[::-1])]


def fill_of(collection: Collection) -> str:
    """Return the color of the first polygon."""
    return to_hex(tuple(np.ravel(collection.get_facecolor())[:4].tolist()))
