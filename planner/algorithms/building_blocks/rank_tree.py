"""The rank tree: one order of combination, which depends on nothing but the number of ranks.

Of n ranks, the first 2^k < n, with the greatest such k, are combined in their own rank tree, the
others in theirs, and then both results, in the order of ranks. The tree of any prefix is thus found
on the way to that of all ranks, as each rank is joined to aligned blocks of 1, 2, 4, ... ranks::

    ((0 1) (2 3)) (4 5)     6 ranks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from collplan.planner.algorithms.rounds import (
    Chunks,
    Copy,
    Group,
    Message,
    Reduce,
    Round,
    Rounds,
    at,
)
from collplan.planner.arrays import Ints


class Joint(NamedTuple):
    """A combination of two neighboring blocks of ranks, whose results belong to their last ranks.

    Parameters
    ----------
    left, right : int
        Last ranks of the two blocks; the result belongs to the right one.
    first : int
        First rank of the left block.
    span : int
        Number of ranks of the left block.
    """

    left: int
    right: int
    first: int
    span: int


def always(size: int, options: Mapping[str, Any]) -> bool:
    """Return whether an algorithm combines in the rank tree that does so for any inputs."""
    return True


def with_radix_2(size: int, options: Mapping[str, Any]) -> bool:
    """Return whether an algorithm combines in the rank tree that does so with radix 2."""
    return bool(options["radix"] == 2)


def of_powers_of_two(size: int, options: Mapping[str, Any]) -> bool:
    """Return whether an algorithm does so that takes factors of a power of two with radix 2."""
    return size & (size - 1) == 0 and with_radix_2(size, options)


def by_folding(size: int, options: Mapping[str, Any]) -> bool:
    """Return whether `fold` and exchanges with the nearest ranks first combine in the rank tree.

    They do if in the binary number of ranks no 1 follows a 0: left halves are then full.

    Examples
    --------
    >>> [size for size in range(1, 17) if by_folding(size, {})]
    [1, 2, 3, 4, 6, 7, 8, 12, 14, 15, 16]
    """
    above = size + (size & -size)
    return above & (above - 1) == 0 and options.get("radix", 2) == 2


def joints(size: int) -> Iterator[Joint]:
    """Yield the combinations of the rank tree of `size` ranks, smallest blocks first.

    Examples
    --------
    >>> [(left, right) for left, right, *_ in joints(6)]
    [(0, 1), (2, 3), (4, 5), (1, 3), (3, 5)]
    """
    span = 1
    while span < size:
        for first in range(0, size - span, 2 * span):
            yield Joint(first + span - 1, min(first + 2 * span, size) - 1, first, span)
        span *= 2


def prefix_joints(size: int) -> Iterator[Joint]:
    """Yield the combinations that leave the rank tree of ranks 0 to r at every rank r.

    Before blocks of 2^k ranks are joined, rank r has the result of its block up to itself, so that
    the last rank of a block has that of the whole block.

    Examples
    --------
    >>> [(left, right) for left, right, *_ in prefix_joints(4)]
    [(0, 1), (2, 3), (1, 2), (1, 3)]
    """
    span = 1
    while span < size:
        for first in range(0, size - span, 2 * span):
            for right in range(first + span, min(first + 2 * span, size)):
                yield Joint(first + span - 1, right, first, span)
        span *= 2


def combine_parts(group: Group) -> Rounds:
    """Send every chunk to its owner, which combines it in the rank tree into its output."""
    size, arrived = group.size, group.scratch_slots(group.size)
    yield _to_owners(group, arrived, size)

    def steps() -> Iterator[Reduce]:
        me = _owners(group)
        for left, right, first, span in joints(size):
            one, other = (
                _place(me, at_input & (me == rank), group.input, arrived, rank * size + me)
                for rank, at_input in ((left, span == 1), (right, right == first + span))
            )
            is_last = np.full(len(me), first == 0 and right == size - 1)
            write = _place(me, is_last, group.output, arrived, right * size + me)
            yield Reduce(me, one, other, write)

    yield Round.of(steps())


def prefix_parts(group: Group, *, is_exclusive: bool) -> Rounds:
    """Send every chunk to its owner, which returns to each rank what is combined up to it.

    Every prefix is combined in its own rank tree. An owner's own prefix ends in its output.
    """
    size, arrived, later = group.size, group.scratch_slots(group.size), int(is_exclusive)
    n = size - later
    yield _to_owners(group, arrived, n)

    def steps() -> Iterator[Reduce]:
        me = _owners(group)
        for left, right, first, span in prefix_joints(n):
            # What is combined from rank 0 on is a result already.
            one = _place(me, (span == 1) & (me == left), group.input, arrived, left * size + me)
            if first == 0 and span > 1:
                one = _place(me, me == left + later, group.output, arrived, left * size + me)
            is_own = (right == first + span) & (me == right)
            other = _place(me, is_own, group.input, arrived, right * size + me)
            is_last = (first == 0) & (me == right + later)
            yield Reduce(
                me, one, other, _place(me, is_last, group.output, arrived, right * size + me)
            )

    yield Round.of(steps())
    own, result = group.whole(group.input), group.whole(group.output)
    yield Round(Message(0, 1, own, result) if is_exclusive else Copy(0, own, result))
    yield Round.of(
        Message(me, dest, at(arrived, (dest - later) * size + me), at(group.output, me))
        for owners, distances in group.pairs(np.arange(1, size))
        for me, dest in _chosen(owners, (owners + distances) % size, first=1 + later)
    )


def _owners(group: Group) -> Ints:
    me = np.arange(group.size)
    kept: Ints = group.needed(me, me, me)
    return kept


def _place(me: Ints, is_there: Any, space: int, arrived: int, slot: Ints) -> Chunks:
    """Name the own chunk in a space at the owners that are marked, and a slot at the others."""
    return at(np.where(is_there, space, arrived), np.where(is_there, me, slot))


def _to_owners(group: Group, arrived: int, n_sources: int) -> Round:
    """Return the round in which the first ranks send every chunk to its owner, into their slot."""
    size = group.size
    return Round.of(
        Message(me, dest, at(group.input, dest), at(arrived, me * size + dest))
        for ranks, distances in group.pairs(np.arange(1, size))
        for dest, me in _chosen((ranks + distances) % size, ranks, last=n_sources)
    )


def _chosen(
    one: Ints, other: Ints, *, first: int = 0, last: int | None = None
) -> Iterator[tuple[Ints, Ints]]:
    """Yield both columns where the second one is in a range."""
    is_in = (other >= first) & (True if last is None else other < last)
    if is_in.any():
        yield one[is_in], other[is_in]
