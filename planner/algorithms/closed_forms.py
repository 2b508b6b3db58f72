"""Closed forms of the time of algorithms on blocks of different sizes.

``auto`` uses them to rank the algorithms of a collective if sizes differ between ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from collplan.planner.algorithms.building_blocks.block_schedule import doubling_skips
from collplan.planner.arrays import Bools, Floats, Ints
from collplan.planner.arrays.logarithms import ceil_log2
from collplan.specs.machines.network import Link

MOST_BLOCKS: Final = 16
"""Greatest number of blocks per round that only fills or drains the pipeline.

More blocks would save at most 1/16 of the time.
"""


@dataclass(frozen=True, eq=False)
class Traffic:
    """Bytes that a group moves, and costs of its messages.

    Parameters
    ----------
    n_bytes : ndarray of int64, shape (size,) or (size, size)
        Size of every rank's block, or of the block of every sender (row) for every receiver
        (column), in bytes.
    node : ndarray of int64, shape (size,)
        Node of every rank.
    near, far : Link
        Links inside nodes and between them.
    crowd : float
        Number of ranks of all groups on a node, per rank of this group and per lane. Slower
        lanes count less than 1.
    strided_ns_per_byte, combining_ns_per_byte : float
        Additional costs per byte that is not contiguous, and per byte that is combined.
    """

    n_bytes: Ints
    node: Ints
    near: Link
    far: Link
    crowd: float = 1.0
    strided_ns_per_byte: float = 0.0
    combining_ns_per_byte: float = 0.0

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.node)

    @cached_property
    def total(self) -> int:
        """Number of bytes of all blocks."""
        return int(self.n_bytes.sum())

    @cached_property
    def n_filled(self) -> int:
        """Number of ranks whose block is not empty."""
        return int(np.count_nonzero(self.n_bytes))

    @cached_property
    def wait_ns(self) -> float:
        """Time L + 2o of messages over the farthest links of the group, in ns."""
        return _wait_ns(self.far if (self.node != self.node[0]).any() else self.near)

    def hops(self, skip: int) -> tuple[Floats, Floats, Bools]:
        """Return costs of a message from every rank to the rank at distance `skip` after it.

        Returns
        -------
        wait_ns, per_byte : ndarray of float64, shape (size,)
            Time L + 2o in ns, and time per byte in ns.
        crosses : ndarray of bool, shape (size,)
            Whether the message is sent to another node.
        """
        crosses = self.node != np.roll(self.node, -skip)
        wait_ns, per_byte = (
            np.where(crosses, of(self.far), of(self.near)) for of in (_wait_ns, _per_byte)
        )
        return wait_ns, per_byte, crosses

    def round_ns(self, skip: int, n_bytes: Ints) -> float:
        """Return the time of a round in which rank r sends ``n_bytes[r]`` to rank r + `skip`."""
        wait_ns, per_byte, crosses = self.hops(skip)
        own_ns = float((n_bytes * (per_byte + self.combining_ns_per_byte)).max())
        return float(wait_ns.max()) + max(own_ns, self.lanes_ns(n_bytes * crosses))

    def lanes_ns(self, crossing: Ints) -> float:
        """Return the time for which lanes are busy with bytes that ranks send to other nodes."""
        most = float(np.bincount(self.node, crossing).max())
        return self.crowd * most * _per_byte(self.far)


def _wait_ns(link: Link) -> float:
    return link.L_ns + 2 * link.o_ns


def _per_byte(link: Link) -> float:
    return max(link.G_ns_per_byte, link.O_ns_per_byte)


def circulant_filling_rounds(size: int) -> float:
    """Return the number of rounds beyond that of blocks in broadcasts on circulant graphs.

    It is q - 1, where q = ⌈log₂ p⌉.
    """
    return max(0, ceil_log2(size) - 1)


def best_blocks(traffic: Traffic, filling: float) -> int:
    """Return the number n of blocks that minimizes (f + n)·(α + β·m/n): √(f·β·m/α), rounded.

    Parameters
    ----------
    traffic : Traffic
    filling : float
        Number f of rounds that only fill and drain the pipeline, per round of a block.
    """
    whole_ns = _mean_round_ns(traffic, traffic.total) - _mean_round_ns(traffic, 0)
    ratio = whole_ns / max(1.0, traffic.wait_ns)
    return max(1, min(round(math.sqrt(filling * ratio)), int(MOST_BLOCKS * filling)))


def blocks_ns(traffic: Traffic) -> float:
    """Return the time of q - 1 + n rounds of α + β·m/n, for n blocks of m bytes in total."""
    n_blocks = best_blocks(traffic, circulant_filling_rounds(traffic.size))
    each_ns = _mean_round_ns(traffic, traffic.total // n_blocks)
    if traffic.n_filled > 1:
        each_ns += 2 * traffic.strided_ns_per_byte * traffic.total / n_blocks
    return (n_blocks - 1 + ceil_log2(traffic.size)) * each_ns


def _mean_round_ns(traffic: Traffic, n_bytes: int) -> float:
    """Return the mean time, over all skips, of a round in which every rank sends `n_bytes`."""
    all_alike = np.full(traffic.size, n_bytes)
    found = [traffic.round_ns(skip, all_alike) for skip in doubling_skips(traffic.size)[:-1]]
    return sum(found) / max(1, len(found))


def ring_ns(traffic: Traffic) -> float:
    """Return the time of the largest block around the ring, and of all other blocks behind it."""
    largest = int(traffic.n_bytes.max(initial=0))
    wait_ns, wire_ns, _ = traffic.hops(1)
    per_byte = wire_ns[:-1] + traffic.combining_ns_per_byte
    around_ns = float((wait_ns[:-1] + per_byte * largest).sum())
    return around_ns + float(per_byte.max(initial=0.0)) * (traffic.total - largest)


def doubling_ns(traffic: Traffic) -> float:
    """Return the time of rounds in which all ranks pass on runs of 1, 2, 4, ... blocks."""
    size = traffic.size
    spans = [1 << level for level in range(ceil_log2(size))]
    return _runs_ns(traffic, ((span, min(span, size - span)) for span in spans))


def halving_ns(traffic: Traffic) -> float:
    """Return the time of rounds in which all ranks pass on half of the blocks still held."""
    skips = doubling_skips(traffic.size)
    return _runs_ns(traffic, ((skip, end - skip) for skip, end in pairwise(skips)))


def _runs_ns(traffic: Traffic, rounds: Iterable[tuple[int, int]]) -> float:
    """Return the time of rounds that are each given by a skip and a number of adjacent blocks.

    Runs that wrap around the end of the buffer are in two pieces.
    """
    bounds = np.concatenate(([0], np.cumsum(np.tile(traffic.n_bytes, 2))))
    first = np.arange(traffic.size)
    time_ns = traffic.strided_ns_per_byte * traffic.total * (traffic.n_filled > 1)
    for skip, n in rounds:
        time_ns += traffic.round_ns(skip, bounds[first + n] - bounds[first])
    return time_ns


def owners_ns(traffic: Traffic) -> float:
    """Return the time if all ranks send directly to the owner of each block."""
    n_bytes, node, n_others = traffic.n_bytes, traffic.node, traffic.size - 1
    n_near = np.bincount(node)[node] - 1
    on_node = np.bincount(node, n_bytes)[node]
    arriving = n_bytes * (n_others - n_near), n_bytes * n_near
    leaving = traffic.total - on_node, on_node - n_bytes
    is_filled = n_bytes > 0
    n_messages = is_filled * n_others + np.count_nonzero(is_filled) - is_filled
    largest = n_others * int(n_bytes.max(initial=0))
    straight_ns = _busiest_ns(traffic, n_messages, arriving, leaving)
    return straight_ns + traffic.combining_ns_per_byte * largest


def straight_ns(traffic: Traffic) -> float:
    """Return the time of direct messages between all pairs with blocks that are not empty."""
    node = traffic.node
    pairs = traffic.n_bytes * ~np.eye(traffic.size, dtype=bool)
    crossing = pairs * (node[:, None] != node)
    n_messages = (pairs > 0).sum(axis=0) + (pairs > 0).sum(axis=1)
    ends = ((crossing.sum(axis=axis), (pairs - crossing).sum(axis=axis)) for axis in (0, 1))
    return _busiest_ns(traffic, n_messages, *ends)


def _busiest_ns(traffic: Traffic, n_messages: Ints, *ends: tuple[Ints, Ints]) -> float:
    """Return the time of the busiest rank or lane.

    Parameters
    ----------
    traffic : Traffic
    n_messages : ndarray of int64, shape (size,)
        Number of messages per rank.
    *ends : tuple of two ndarrays, shape (size,)
        Bytes per rank between nodes and inside nodes: those received, and those sent.
    """
    times = [int(n_messages.max()) * traffic.far.o_ns]
    for far, near in ends:
        busy_ns = far * _per_byte(traffic.far) + near * _per_byte(traffic.near)
        times += [traffic.lanes_ns(far), float(busy_ns.max())]
    return traffic.wait_ns + max(times)


def digits_ns(traffic: Traffic) -> float:
    """Return the time of rounds that move all blocks by the binary digits of their distance."""
    size = traffic.size
    ranks = np.arange(size)
    by_distance = traffic.n_bytes[ranks[:, None], (ranks[:, None] + ranks) % size]
    time_ns = 0.0
    for level in range(ceil_log2(size)):
        span = 1 << level
        moving = ranks[ranks & span > 0]
        passing = by_distance[(ranks[:, None] - moving % span) % size, moving].sum(axis=1)
        time_ns += traffic.round_ns(span, passing)
        time_ns += 2 * traffic.strided_ns_per_byte * int(passing.max())
    return time_ns
