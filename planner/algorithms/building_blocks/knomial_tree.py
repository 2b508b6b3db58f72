"""Trees in which each node feeds radix - 1 others per level, for any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collplan.planner.algorithms.rounds import Group, option_int
from collplan.planner.arrays import Bools, Ints


@dataclass(frozen=True, eq=False, slots=True)
class Edges:
    """Edges of a k-nomial tree that are used in one round.

    Parameters
    ----------
    parent, child : ndarray of int64, shape (m,)
        Relative to the root.
    n : ndarray of int64, shape (m,)
        Nodes of the subtree below each edge, which are numbered from the child on.
    """

    parent: Ints
    child: Ints
    n: Ints


def radix_of(group: Group) -> int:
    """Return the option `radix`, but the size of the group where it is larger.

    A larger radix than the group makes the same tree: all are children of the root.
    """
    return min(option_int(group, "radix", 2), max(2, group.size))


def spans(size: int, radix: int) -> list[int]:
    """Return the distances of the first children of all levels, leaves first.

    Examples
    --------
    >>> spans(10, 3)
    [1, 3, 9]
    """
    found = [1] if size > 1 else []
    while found and found[-1] * radix < size:
        found.append(found[-1] * radix)
    return found


def knomial_tree(group: Group, *, is_up: bool) -> Iterator[Edges]:
    """Yield the edges of all rounds, on the way down from the root or up to it.

    On the way up each node hears from its nearest child first, so that what it has heard is
    of a run of nodes.
    """
    size, radix = group.size, radix_of(group)
    levels = spans(size, radix)
    for span in levels if is_up else reversed(levels):
        holders = np.arange(0, size, span * radix)
        for number in range(1, radix):
            parent = holders[holders + number * span < size]
            child = parent + number * span
            yield Edges(parent, child, np.minimum(span, size - child))


def has_children(node: Ints, size: int, radix: int) -> Bools:
    """Return whether nodes have any children."""
    return np.asarray((node % radix == 0) & (node + 1 < size))
