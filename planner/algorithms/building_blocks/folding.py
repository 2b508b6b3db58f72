"""Handier numbers for any number of ranks, and recursive halving and doubling on powers of two.

Surplus ranks fold into a neighbour first and get the result from it in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import floor_log2


@dataclass(frozen=True)
class Folding:
    """A group of any size p seen as one of q survivors, at least half as many.

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
        """Return q."""
        return len(self.survivors)

    def numbers(self, group: Group) -> Any:
        """Return the numbers of the survivors, relative ones if the group asks for these."""
        return np.arange(self.n_survivors) if len(self.folded) else group.positions

    def position(self, number: Any) -> Any:
        """Return the positions of survivors."""
        return self.survivors[number] if len(self.folded) else number

    def partial(self, group: Group, number: Any, level: int) -> Any:
        """Return the space in which survivors have their partial result before round `level`.

        It is their input until something was combined into their output.
        """
        if level > 0 or not len(self.folded):
            return group.output if level > 0 else group.input
        return np.where(number < len(self.folded), group.output, group.input)

    def exchange(
        self, group: Group, me: Any, level: int, partner: Any, first: Any = 0, n: int | None = None
    ) -> Round:
        """Combine runs of chunks with those of partners, whole vectors unless `n` says how many.

        Parameters
        ----------
        group : Group
        me, partner : array
            Numbers of survivors.
        level : int
            How many exchanges came before.
        first : array or int
            The first chunk that each survivor gives its partner.
        n : int, optional
        """
        n = group.n_chunks if n is None else n
        own, other = (at(self.partial(group, one, level), first, n) for one in (me, partner))
        result = at(group.output, first, n)
        ends = self.position(me), self.position(partner)
        return Round(Message(*ends, own, result, combine=other, incoming_left=None))

    @property
    def hosts(self) -> Ints:
        """Return the survivors that stand in for a folded neighbour."""
        return self.survivors[: len(self.folded)]

    def fold(self, group: Group) -> Round:
        """Combine the inputs of folded positions into their hosts' output."""
        own, result = group.whole(group.input), group.whole(group.output)
        return Round(Message(self.folded, self.hosts, own, result, combine=own, incoming_left=None))

    def unfold(self, group: Group) -> Round:
        """Send the hosts' output to the positions that sat out."""
        vector = group.whole(group.output)
        return Round(Message(self.hosts, self.folded, vector, vector))


def fold(size: int, survivor: int = 0, n_survivors: int | None = None) -> Folding:
    """Fold `size` positions to a power of two, or to a number from size/2 on that is given.

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
    return Folding(
        survivors=np.concatenate((kept, np.arange(2 * surplus, size))),
        folded=2 * even + 1 - kept,
    )


def owned(survivor: Ints, q: int, level: int) -> tuple[Ints, int]:
    """Return the run of chunks each survivor holds before halving `level`.

    Bit k of a survivor's number decides the half it keeps at level k, so
    operands combine with nearest neighbours first and stay in rank order.

    Returns
    -------
    first : ndarray
        First chunk, one entry a survivor.
    n : int
        How many chunks.
    """
    first = np.zeros_like(survivor)
    for k in range(level):
        first += (survivor >> k & 1) * (q >> (k + 1))
    return first, q >> level


def halving_reduce_scatter(group: Group, folding: Folding) -> Rounds:
    """Halve vectors until every survivor holds one combined chunk in its output."""
    q = folding.n_survivors
    me = np.arange(q)
    for level in range(floor_log2(q)):
        partner = me ^ (1 << level)
        yield folding.exchange(group, me, level, partner, *owned(partner, q, level + 1))


def doubling_gather(group: Group, folding: Folding, root: int | None = None) -> Rounds:
    """Undo the halving: exchange ever larger runs until all survivors hold the vector.

    With a `root`, a survivor's number, only that one gets the vector.
    """
    q = folding.n_survivors
    me = np.arange(q)
    for level in reversed(range(floor_log2(q))):
        # Of those that differ from the root in bits undone already nobody holds anything.
        sending = me if root is None else me[(me ^ root) >> level == 1]
        first, n = owned(sending, q, level + 1)
        ends = folding.survivors[sending], folding.survivors[sending ^ (1 << level)]
        run = at(group.output, first, n)
        yield Round(Message(*ends, run, run))
