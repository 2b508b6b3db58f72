"""Powers of two for everybody: surplus ranks fold into a neighbour and unfold at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.algorithms.rounds import Group, Message, Round
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import floor_log2


@dataclass(frozen=True)
class Folding:
    """A group of any size seen as the greatest power of two of it.

    The first 2·(p - q) positions pair up; one of each pair sits out. Pairs are
    neighbours and survivors keep their order, so what survivor u stands for
    is an interval of ranks between those of u - 1 and u + 1::

        0+1  2+3  4  5  6        p = 7, q = 4, one more pair: 4+5
         u0   u1  u2    u3

    Parameters
    ----------
    survivors : ndarray, shape (q,)
        Position of survivor u.
    folded : ndarray, shape (p - q,)
        Positions that sit out; survivor i of the first p - q stands in for folded i.
    """

    survivors: Ints
    folded: Ints

    @property
    def n_survivors(self) -> int:
        """Return q, a power of two."""
        return len(self.survivors)

    @property
    def hosts(self) -> Ints:
        """Return the survivors that stand in for a folded neighbour."""
        return self.survivors[: len(self.folded)]

    def fold(self, group: Group) -> Round:
        """Combine the inputs of folded positions into their hosts' output."""
        return Round(
            Message(
                self.folded,
                self.hosts,
                group.whole(group.input),
                group.whole(group.output),
                combine=group.whole(group.input),
                incoming_left=self.folded < self.hosts,
            )
        )

    def unfold(self, group: Group) -> Round:
        """Send the hosts' output to the positions that sat out."""
        vector = group.whole(group.output)
        return Round(Message(self.hosts, self.folded, vector, vector))


def fold(size: int, survivor: int = 0) -> Folding:
    """Fold `size` positions to a power of two; position `survivor` is kept.

    Examples
    --------
    >>> fold(6).survivors.tolist(), fold(6, survivor=3).survivors.tolist()
    ([0, 2, 4, 5], [0, 3, 4, 5])
    """
    surplus = size - (1 << floor_log2(size))
    even = 2 * np.arange(surplus)
    kept = even + (even + 1 == survivor)
    return Folding(
        survivors=np.concatenate((kept, np.arange(2 * surplus, size))),
        folded=2 * even + 1 - kept,
    )
