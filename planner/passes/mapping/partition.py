"""Partitions of an algorithm's positions into parts of given sizes, with few bytes between them.

References
----------
Kernighan, Lin, "An efficient heuristic procedure for partitioning graphs", Bell System Technical
Journal 49, 1970: swaps in passes, of which the best prefix is kept. Fiduccia, Mattheyses, "A
linear-time heuristic for improving network partitions", DAC 1982: gains that are updated.
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
"""Number of partitions up to which all are tried."""
MOST_PASSES: Final = 12
"""Passes of swaps between two parts; each of them ends earlier if it gains nothing."""
PATIENCE: Final = 64
"""Swaps without a better cut after which a pass ends, or a quarter of all if that is more."""
FREE: Final = -1
"""Part of a position that is bound to none."""


@dataclass(frozen=True, eq=False)
class Traffic:
    """Bytes between the positions of a group, in either direction, as a symmetric CSR matrix.

    Parameters
    ----------
    indptr, other, n_bytes : ndarray of int64
        Neighbors of every position, and the bytes exchanged with each.
    """

    indptr: Ints
    other: Ints
    n_bytes: Ints

    @classmethod
    def of(cls, source: Ints, dest: Ints, n_bytes: Ints, size: int) -> Traffic:
        """Return the traffic of messages between `size` positions."""
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
        """The position that every entry belongs to."""
        return csr.row_numbers(self.indptr)

    def among(self, positions: Ints) -> Traffic:
        """Return the traffic among some positions, numbered in their order."""
        number = np.full(len(self), FREE, dtype=np.int64)
        number[positions] = np.arange(len(positions))
        indptr, entries = csr.take_rows(self.indptr, positions)
        owner, other = csr.row_numbers(indptr), number[self.other[entries]]
        kept = other != FREE
        n_bytes = self.n_bytes[entries][kept]
        return Traffic(csr.indptr_of(owner[kept], len(positions)), other[kept], n_bytes)

    def cut(self, part: Ints) -> int:
        """Return the bytes between positions of different parts."""
        crosses = part[self.owner] != part[self.other]
        return int(self.n_bytes[crosses].sum()) // 2

    def of_position(self, position: int) -> tuple[Ints, Ints]:
        """Return the neighbors of a position, and the bytes exchanged with each."""
        here = slice(self.indptr[position], self.indptr[position + 1])
        return self.other[here], self.n_bytes[here]


def partition(traffic: Traffic, sizes: Sequence[int], bound: Ints) -> Ints:
    """Return the part of every position, such that few bytes are exchanged between parts.

    Parameters
    ----------
    traffic : Traffic
    sizes : sequence of int, shape (n_parts,)
        Positions of every part, which sum up to those of the traffic.
    bound : ndarray of int64, shape (n_positions,)
        The part that a position must be in, or `FREE`.

    Returns
    -------
    ndarray of int64, shape (n_positions,)
        The fewest bytes of all partitions, up to `MOST_PARTITIONS` of them; else by recursive
        bisection and swaps between pairs of parts.

    Examples
    --------
    >>> around = np.arange(6)
    >>> ring = Traffic.of(around, (around + 1) % 6, np.full(6, 10), 6)
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
    """Return the number of ways to deal positions to parts of given sizes."""
    left, number = sum(sizes), 1
    for size in sizes:
        number *= math.comb(left, size)
        left -= size
    return number


def _best_of_all(traffic: Traffic, sizes: Sequence[int], bound: Ints) -> Ints:
    """Return the first partition of those with the fewest bytes."""
    tried = np.array(list(_all_partitions(tuple(range(len(traffic))), sizes)), dtype=np.int8)
    tried = tried[((tried == bound) | (bound == FREE)).all(axis=1)]
    cuts = np.zeros(len(tried), dtype=np.int64)
    for one, other, n_bytes in zip(traffic.owner, traffic.other, traffic.n_bytes, strict=True):
        if one < other:
            cuts += n_bytes * (tried[:, one] != tried[:, other])
    return np.asarray(tried[cuts.argmin()], dtype=np.int64)


def _all_partitions(positions: tuple[int, ...], sizes: Sequence[int]) -> Iterator[Ints]:
    """Yield the parts of positions, one array for each way to deal them; the natural one first."""
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


def _bisected(traffic: Traffic, sizes: Sequence[int], bound: Ints) -> Ints:
    """Return parts by dividing positions in two, and each half again."""
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


def _halves(traffic: Traffic, n_first: int, bound: Ints) -> Ints:
    """Return the side, 0 or 1, of every position, `n_first` of them on side 0."""
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
    """Return the first positions of an order, those bound to side 0 before all others."""
    turn = np.where(bound[order] == FREE, 1, np.where(bound[order] == 0, 0, 2))
    return order[np.argsort(turn, kind="stable")[:n_first]]


def _orders(traffic: Traffic, bound: Ints) -> Iterator[Ints]:
    """Yield orders of positions to cut in two: as they are, by parity, and grown along edges."""
    positions = np.arange(len(traffic))
    yield positions
    yield np.argsort(positions % 2, kind="stable")
    held = np.flatnonzero(bound == 0)
    yield _grown(traffic, int(held[0]) if len(held) else 0)


def _grown(traffic: Traffic, first: int) -> Ints:
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


def _swapped(traffic: Traffic, side: Ints, is_held: Bools) -> Ints:
    """Return sides after swaps between them that leave fewer bytes to cross."""
    for _ in range(MOST_PASSES):
        better = _one_pass(traffic, side, is_held)
        if better is None:
            break
        side = better
    return side


def _one_pass(traffic: Traffic, side: Ints, is_held: Bools) -> Ints | None:
    """Swap pairs, the best first, each position once; return the best prefix, if it gains."""
    crosses = side[traffic.owner] != side[traffic.other]
    signed = np.where(crosses, traffic.n_bytes, -traffic.n_bytes)
    gain = csr.row_sums(traffic.indptr, signed).astype(np.int64)
    never = np.iinfo(np.int64).min // 4
    # What leaving its side gains, per side; positions of the other side, or done with, never do.
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
        # Neighbors of what left a side lose from leaving the other, and gain from leaving this one.
        _move(gains, traffic.of_position(one), 0)
        _move(gains, traffic.of_position(two), 1)
    if not n_best:
        return None
    side = side.copy()
    for one, two in swaps[:n_best]:
        side[one], side[two] = 1, 0
    return side


def _move(gains: Ints, neighbors: tuple[Ints, Ints], left: int) -> None:
    """Change the gains of neighbors of a position that has left a side."""
    other, n_bytes = neighbors
    gains[left, other] += 2 * n_bytes
    gains[1 - left, other] -= 2 * n_bytes


def _swapped_between_pairs(traffic: Traffic, part: Ints, bound: Ints) -> Ints:
    """Return parts after swaps between any two of them that exchange bytes."""
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
            # What goes to other parts crosses anyway.
            side = _swapped(traffic.among(there), side, bound[there] != FREE)
            part[there] = np.where(side == 0, one, two)
        if traffic.cut(part) == before:
            break
    return part
