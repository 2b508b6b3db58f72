"""Folding of any number of ranks to a power of two, and recursive halving and doubling.

Surplus ranks send their operand to a neighbor first, and receive the result from it in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import floor_log2


@dataclass(frozen=True)
class Survivors:
    """A group of any size p, reduced to q survivors, of which there are at least p/2.

    The first 2·(p - q) positions form pairs of neighbors, and one position of each pair
    does not take part. Survivors keep their order. Therefore the ranks that survivor u
    represents form an interval between those of u - 1 and u + 1::

        0+1  2+3  4+5  6        p = 7, q = 4
         u0   u1   u2  u3

    Parameters
    ----------
    survivors : ndarray, shape (q,)
        Position of survivor u.
    folded : ndarray, shape (p - q,)
        Positions that do not take part; survivor i represents position ``folded[i]``, too.
    """

    survivors: Ints
    folded: Ints

    @property
    def n_survivors(self) -> int:
        """Return q."""
        return len(self.survivors)

    def numbers(self, group: Group) -> Any:
        """Return the numbers of the survivors; `Relative` if the group has such positions."""
        return np.arange(self.n_survivors) if len(self.folded) else group.positions

    def position(self, number: Any) -> Any:
        """Return the positions of survivors, given by their numbers."""
        return self.survivors[number] if len(self.folded) else number

    def partial(self, group: Group, number: Any, level: int) -> Any:
        """Return the space that holds the partial results of survivors before round `level`.

        It is the input until an operand has been combined into the output.
        """
        if level > 0 or not len(self.folded):
            return group.output if level > 0 else group.input
        return np.where(number < len(self.folded), group.output, group.input)

    def exchange(
        self, group: Group, me: Any, level: int, partner: Any, first: Any = 0, n: int | None = None
    ) -> Round:
        """Return a round in which survivors combine runs of chunks with those of their partners.

        Parameters
        ----------
        group : Group
        me, partner : array
            Numbers of survivors.
        level : int
            Number of previous exchanges.
        first : array or int
            First chunk that each survivor sends to its partner.
        n : int, optional
            Number of chunks; by default all.
        """
        n = group.n_chunks if n is None else n
        own, other = (at(self.partial(group, one, level), first, n) for one in (me, partner))
        result = at(group.output, first, n)
        ends = self.position(me), self.position(partner)
        return Round(Message(*ends, own, result, combine=other, incoming_left=None))

    @property
    def hosts(self) -> Ints:
        """Return the positions of survivors that represent a folded neighbor."""
        return self.survivors[: len(self.folded)]

    def fold(self, group: Group) -> Round:
        """Return a round that combines the inputs of folded positions into their hosts' output."""
        own, result = group.whole(group.input), group.whole(group.output)
        return Round(Message(self.folded, self.hosts, own, result, combine=own, incoming_left=None))

    def unfold(self, group: Group) -> Round:
        """Return a round that sends the output of hosts to folded positions."""
        vector = group.whole(group.output)
        return Round(Message(self.hosts, self.folded, vector, vector))


def fold(size: int, survivor: int = 0, n_survivors: int | None = None) -> Survivors:
    """Fold `size` positions to a power of two, or to `n_survivors`, which is at least size/2.

    Position `survivor` is kept.

    Examples
    --------
    >>> fold(6).survivors.tolist(), fold(6, survivor=3).survivors.tolist()
    ([0, 2, 4, 5], [0, 3, 4, 5])
    >>> fold(7, n_survivors=6).survivors.tolist()
    [0, 2, 3, 4, 5, 6]
    """
    surplus = size - (n_survivors or 1 << floor_log2(size))
    even = 2 * np.arange(surplus)
    kept = even + (even + 1 == survivor)
    return Survivors(
        survivors=np.concatenate((kept, np.arange(2 * surplus, size))),
        folded=2 * even + 1 - kept,
    )


def owned(survivor: Ints, q: int, level: int) -> tuple[Ints, int]:
    """Return the run of chunks that each survivor holds before halving `level`.

    Bit k of a survivor's number decides which half it keeps at level k. Therefore
    operands are combined with nearest neighbors first and stay in rank order.

    Returns
    -------
    first : ndarray
        First chunk of every survivor.
    n : int
        Number of chunks, the same for all survivors.
    """
    first = np.zeros_like(survivor)
    for k in range(level):
        first += (survivor >> k & 1) * (q >> (k + 1))
    return first, q >> level


def halving_reduce_scatter(group: Group, folding: Survivors) -> Rounds:
    """Yield rounds that halve vectors until each survivor has one combined chunk in its output."""
    q = folding.n_survivors
    me = np.arange(q)
    for level in range(floor_log2(q)):
        partner = me ^ (1 << level)
        yield folding.exchange(group, me, level, partner, *owned(partner, q, level + 1))


def doubling_gather(group: Group, folding: Survivors, root: int | None = None) -> Rounds:
    """Yield rounds that reverse the halving: runs double until all survivors have the vector.

    With `root`, the number of a survivor, only this survivor receives the vector.
    """
    q = folding.n_survivors
    me = np.arange(q)
    for level in reversed(range(floor_log2(q))):
        # Survivors that differ from the root in a higher bit have sent their chunks already.
        sending = me if root is None else me[(me ^ root) >> level == 1]
        first, n = owned(sending, q, level + 1)
        ends = folding.survivors[sending], folding.survivors[sending ^ (1 << level)]
        run = at(group.output, first, n)
        yield Round(Message(*ends, run, run))
