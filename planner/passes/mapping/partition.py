"""Partitions of an algorithm's positions into parts of given sizes, with few bytes between them.

References
----------
Kernighan, Lin, "An efficient heuristic procedure for partitioning graphs", Bell System Technical
Journal 49, 1970: passes of swaps, of which the best prefix is kept. Fiduccia, Mattheyses, "A
linear-time heuristic for improving network partitions", DAC 1982: incremental updates of gains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr

MOST_PARTITIONS: Final = 20_000
"""Maximum number of partitions of which all are tried."""
MOST_PASSES: Final = 12
"""Maximum number of passes of swaps between two parts. Passes end earlier if one gains nothing."""
PATIENCE: Final = 64
"""Swaps without a better cut after which a pass ends; a quarter of all swaps if that is more."""
FREE: Final = -1
"""Value for a position that may be in any part."""


@dataclass(frozen=True, eq=False)
class PositionTraffic:
    """Bytes exchanged between the positions of a group, as a symmetric CSR matrix.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_positions + 1,)
        Entries ``indptr[i]:indptr[i + 1]`` of the other arrays belong to position i.
    other : ndarray of int64, shape (n_entries,)
        Neighbor with which the position exchanges bytes.
    n_bytes : ndarray of int64, shape (n_entries,)
        Bytes in both directions.
    """

    indptr: Ints
    other: Ints
    n_bytes: Ints

    @classmethod
    def of(cls, source: Ints, dest: Ints, n_bytes: Ints, size: int) -> PositionTraffic:
        """Return the traffic of messages between `size` positions.

        Parameters
        ----------
        source, dest, n_bytes : ndarray of int64, shape (n_messages,)
            Positions at both ends of each message, and its bytes. Messages to the same position
            are ignored.
        size : int
        """
        apart = source != dest
        ends = np.asarray(source)[apart].astype(np.int64), np.asarray(dest)[apart].astype(np.int64)
        key = np.concatenate((ends[0] * size + ends[1], ends[1] * size + ends[0]))
        pairs, place = np.unique(key, return_inverse=True)
        total = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(total, place, np.tile(np.asarray(n_bytes, dtype=np.int64)[apart], 2))
        return cls(csr.indptr_of(pairs // size, size), pairs % size, total)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def owner(self) -> Ints:
        """The position of every entry."""
        return csr.row_numbers(self.indptr)

    def among(self, positions: Ints) -> PositionTraffic:
        """Return the traffic among some positions, which are renumbered in the given order."""
        number = np.full(len(self), FREE, dtype=np.int64)
        number[positions] = np.arange(len(positions))
        indptr, entries = csr.take_rows(self.indptr, positions)
        owner, other = csr.row_numbers(indptr), number[self.other[entries]]
        kept = other != FREE
        n_bytes = self.n_bytes[entries][kept]
        return PositionTraffic(csr.indptr_of(owner[kept], len(positions)), other[kept], n_bytes)

    def cut(self, part: Ints) -> int:
        """Return the number of bytes exchanged between positions of different parts.

        Parameters
        ----------
        part : ndarray of int64, shape (n_positions,)
            Part of every position.
        """
        crosses = part[self.owner] != part[self.other]
        return int(self.n_bytes[crosses].sum()) // 2

    def of_position(self, position: int) -> tuple[Ints, Ints]:
        """Return the neighbors of a position and the bytes exchanged with each."""
        here = slice(self.indptr[position], self.indptr[position + 1])
        return self.other[here], self.n_bytes[here]


def partition(traffic: PositionTraffic, sizes: Sequence[int], bound: Ints) -> Ints:
    """Return a partition of the positions in which few bytes are exchanged between parts.

    If there are at most `MOST_PARTITIONS` partitions, the result is the one with the fewest bytes.
    Otherwise, it is found by recursive bisection, and swaps between pairs of parts.

    Parameters
    ----------
    traffic : PositionTraffic
    sizes : sequence of int, length n_parts
        Number of positions of every part. The sum is the number of positions of `traffic`.
    bound : ndarray of int64, shape (n_positions,)
        Part in which each position must be, or `FREE`.

    Returns
    -------
    ndarray of int64, shape (n_positions,)
        Part of every position.

    Examples
    --------
    >>> around = np.arange(6)
    >>> ring = PositionTraffic.of(around, (around + 1) % 6, np.full(6, 10), 6)
    >>> halves = partition(ring, [3, 3], np.full(6, FREE))
    >>> ring.cut(halves), ring.cut(np.array([0, 1, 0, 1, 0, 1]))
    (20, 60)
    """
    if len(sizes) == 1:
        return np.zeros(len(traffic), dtype=np.int64)
    if count_partitions(sizes) <= MOST_PARTITIONS:
        return _best_of_all(traffic, sizes, bound)
    part = _bisected(traffic, sizes, bound)
    return part if len(sizes) == 2 else _swapped_between_pairs(traffic, part, bound)


def count_partitions(sizes: Sequence[int]) -> int:
    """Return the number of partitions into parts of given sizes."""
    left, number = sum(sizes), 1
    for size in sizes:
        number *= math.comb(left, size)
        left -= size
    return number


def _best_of_all(traffic: PositionTraffic, sizes: Sequence[int], bound: Ints) -> Ints:
    """Return the first of the allowed partitions with the fewest bytes between parts."""
    tried = np.array(list(_all_partitions(tuple(range(len(traffic))), sizes)), dtype=np.int8)
    tried = tried[((tried == bound) | (bound == FREE)).all(axis=1)]
    cuts = np.zeros(len(tried), dtype=np.int64)
    for one, other, n_bytes in zip(traffic.owner, traffic.other, traffic.n_bytes, strict=True):
        if one < other:
            cuts += n_bytes * (tried[:, one] != tried[:, other])
    return np.asarray(tried[cuts.argmin()], dtype=np.int64)


def _all_partitions(positions: tuple[int, ...], sizes: Sequence[int]) -> Iterator[Ints]:
    """Yield all partitions as arrays with the part of every position, the natural one first."""
    last = len(sizes) - 1

    def deal(part: Ints, left: tuple[int, ...], number: int) -> Iterator[Ints]:
        if number == last:
            part[list(left)] = last
            yield part.copy()
            return
        for chosen in combinations(left, sizes[number]):
            part[list(chosen)] = number
            yield from deal(part, tuple(p for p in left if p not in chosen), number + 1)

    yield from deal(np.empty(len(positions), dtype=np.int64), positions, 0)


def _bisected(traffic: PositionTraffic, sizes: Sequence[int], bound: Ints) -> Ints:
    """Return the part of every position by recursive bisection."""
    if len(sizes) == 1:
        return np.zeros(len(traffic), dtype=np.int64)
    half = len(sizes) // 2
    side_of_part = np.repeat([0, 1], [half, len(sizes) - half])
    bound_side = np.where(bound == FREE, FREE, side_of_part[bound])
    side = _halves(traffic, sum(sizes[:half]), bound_side)
    part = np.empty(len(traffic), dtype=np.int64)
    for number, (first, some) in enumerate(((0, sizes[:half]), (half, sizes[half:]))):
        there = np.flatnonzero(side == number)
        own = np.where(bound[there] == FREE, FREE, bound[there] - first)
        part[there] = first + _bisected(traffic.among(there), some, own)
    return part


def _halves(traffic: PositionTraffic, n_first: int, bound: Ints) -> Ints:
    """Return the side, 0 or 1, of every position, with `n_first` positions on side 0."""
    best: Ints = np.zeros(0, dtype=np.int64)
    fewest = -1
    for order in _orders(traffic, bound):
        side: Ints = np.ones(len(traffic), dtype=np.int64)
        side[_first_of(order, n_first, bound)] = 0
        side = _swapped(traffic, side, bound != FREE)
        n_bytes = traffic.cut(side)
        if fewest < 0 or n_bytes < fewest:
            best, fewest = side, n_bytes
    return best


def _first_of(order: Ints, n_first: int, bound: Ints) -> Ints:
    """Return `n_first` positions for side 0, in the given order.

    Positions bound to side 0 come first, and those bound to side 1 come last.
    """
    turn = np.where(bound[order] == FREE, 1, np.where(bound[order] == 0, 0, 2))
    return order[np.argsort(turn, kind="stable")[:n_first]]


def _orders(traffic: PositionTraffic, bound: Ints) -> Iterator[Ints]:
    """Yield orders to cut in two: ascending, even positions first, and grown along edges."""
    positions = np.arange(len(traffic))
    yield positions
    yield np.argsort(positions % 2, kind="stable")
    held = np.flatnonzero(bound == 0)
    yield _grown(traffic, int(held[0]) if len(held) else 0)


def _grown(traffic: PositionTraffic, first: int) -> Ints:
    """Return an order in which each position exchanges the most bytes with those before it."""
    n = len(traffic)
    order, joined = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    taken = np.iinfo(np.int64).min
    joined[first] = 1
    for i in range(n):
        position = int(joined.argmax())
        order[i] = position
        other, n_bytes = traffic.of_position(position)
        joined[other] += np.where(joined[other] == taken, 0, n_bytes)
        joined[position] = taken
    return order


def _swapped(traffic: PositionTraffic, side: Ints, is_held: Bools) -> Ints:
    """Return the sides after passes of swaps that reduce the bytes between them.

    Parameters
    ----------
    traffic : PositionTraffic
    side : ndarray of int64, shape (n_positions,)
        Side, 0 or 1, of every position.
    is_held : ndarray of bool, shape (n_positions,)
        Positions that must stay on their side.
    """
    for _ in range(MOST_PASSES):
        better = _one_pass(traffic, side, is_held)
        if better is None:
            break
        side = better
    return side


def _one_pass(traffic: PositionTraffic, side: Ints, is_held: Bools) -> Ints | None:
    """Swap pairs in the order of their gains, each position at most once.

    Returns
    -------
    ndarray of int64, shape (n_positions,), or None
        Sides after the best prefix of the swaps; None if no prefix reduces the bytes.
    """
    crosses = side[traffic.owner] != side[traffic.other]
    signed = np.where(crosses, traffic.n_bytes, -traffic.n_bytes)
    gain = csr.row_sums(traffic.indptr, signed).astype(np.int64)
    never = np.iinfo(np.int64).min // 4
    # gains[s, i] is the gain if position i leaves side s. It is `never` if the position is on the
    # other side, has been swapped, or must stay.
    gains = np.where((side == np.array([[0], [1]])) & ~is_held, gain, never)
    n_pairs = int((gains > never).sum(axis=1).min())
    patience = max(PATIENCE, n_pairs // 4)
    swaps: list[tuple[int, int]] = []
    total, best, n_best = 0, 0, 0
    for number in range(1, n_pairs + 1):
        one = int(gains[0].argmax())
        other, n_bytes = traffic.of_position(one)
        worth = gains[1].copy()
        worth[other] -= 2 * n_bytes
        two = int(worth.argmax())
        total += int(gains[0, one] + worth[two])
        swaps.append((one, two))
        if total > best:
            best, n_best = total, number
        elif number - n_best > patience:
            break
        gains[0, one] = gains[1, two] = never
        # Neighbors of a position that left a side gain more if they leave it, too, and less if
        # they leave the other side.
        _move(gains, traffic.of_position(one), 0)
        _move(gains, traffic.of_position(two), 1)
    if not n_best:
        return None
    side = side.copy()
    for one, two in swaps[:n_best]:
        side[one], side[two] = 1, 0
    return side


def _move(gains: Ints, neighbors: tuple[Ints, Ints], left: int) -> None:
    """Update the gains of the neighbors of a position that has left side `left`."""
    other, n_bytes = neighbors
    gains[left, other] += 2 * n_bytes
    gains[1 - left, other] -= 2 * n_bytes


def _swapped_between_pairs(traffic: PositionTraffic, part: Ints, bound: Ints) -> Ints:
    """Return the parts after swaps between each pair of parts that exchange bytes."""
    part = part.copy()
    n_parts = int(part.max()) + 1
    for _ in range(2):
        between = np.zeros((n_parts, n_parts), dtype=np.int64)
        np.add.at(between, (part[traffic.owner], part[traffic.other]), traffic.n_bytes)
        before = traffic.cut(part)
        for one, two in combinations(range(n_parts), 2):
            if not between[one, two]:
                continue
            there = np.flatnonzero((part == one) | (part == two))
            side = (part[there] == two).astype(np.int64)
            # Bytes to other parts cross in any case.
            side = _swapped(traffic.among(there), side, bound[there] != FREE)
            part[there] = np.where(side == 0, one, two)
        if traffic.cut(part) == before:
            break
    return part
