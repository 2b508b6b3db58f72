"""Terms of the fitted time: the costs that are counted along the path of an algorithm.

The time of a collective is the sum over terms of their number along the longest path times their
cost. Costs are in ns: per message by size and link, per further message, byte or change of the
peer, per byte that is combined or copied, by the bytes that a node works on, and of some effects
of several ranks together.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from collplan.planner.arrays import Floats, Ints
from collplan.specs import Network

KNOTS: Final = tuple(float(8**exponent) for exponent in range(11))
"""Sizes in bytes between which costs are interpolated."""
LINKS: Final = ("numa", "node", "network")
"""Classes of links, from the nearest to the farthest."""
N_KNOTS: Final = len(KNOTS)
PER_LINK: Final = N_KNOTS + 3
MESSAGES, BYTES, PEERS = range(N_KNOTS, PER_LINK)
"""Places among the terms of a link, after the times of a message by size."""
_AFTER: Final = len(LINKS) * PER_LINK
REDUCTIONS: Final = slice(_AFTER, _AFTER + N_KNOTS)
COPIES: Final = slice(_AFTER + N_KNOTS, _AFTER + 2 * N_KNOTS)
_LAST: Final = _AFTER + 2 * N_KNOTS
PIECES, LANE, MEMORY, GLOBAL, FAR, LOGS, STEPS = range(_LAST, _LAST + 7)
"""Places of the terms that exist once.

Further pieces of memory of a message; bytes that the other ranks of a node send at the same time,
per lane, and inside the node; bytes and messages between groups of switches; messages times the
logarithm of the number of ranks; reductions and copies.
"""
N_TERMS: Final = STEPS + 1


def waits_of(link: int) -> slice:
    """Return the places of the times of a message by size on a link."""
    return slice(link * PER_LINK, link * PER_LINK + N_KNOTS)


def groups_of_terms() -> list[Ints]:
    """Return the places of terms whose neighbors have similar costs."""
    parts = [*(waits_of(link) for link in range(len(LINKS))), REDUCTIONS, COPIES]
    return [np.arange(N_TERMS)[part] for part in parts]


def start_costs(network: Network) -> Floats:
    """Return the costs of all terms by the parameters of a network, shape (N_TERMS,), in ns."""
    knots, costs = np.array(KNOTS), np.zeros(N_TERMS)
    for place, link in enumerate((network.numa, network.node, network.network)):
        per_byte = max(link.G_ns_per_byte, link.O_ns_per_byte)
        asks = network.handshake and knots > network.eager_limit_bytes
        alone = link.L_ns + 2 * link.o_ns
        costs[waits_of(place)] = alone + knots * per_byte + asks * 2 * (link.L_ns + link.o_ns)
        base = place * PER_LINK
        costs[base + MESSAGES] = max(1.0, link.o_ns, link.g_ns)
        costs[base + BYTES], costs[base + PEERS] = per_byte, 100.0
    costs[REDUCTIONS], costs[COPIES] = network.reduce_ns_per_byte, network.copy_ns_per_byte
    costs[[PIECES, STEPS, LOGS, FAR]] = 100.0, 50.0, 50.0, 200.0
    costs[[LANE, MEMORY, GLOBAL]] = network.network.G_ns_per_byte, 0.05, 0.02
    return costs


def size_weights(sizes: Floats) -> Floats:
    """Return the weights of the knots that interpolate at sizes linearly.

    Parameters
    ----------
    sizes : ndarray of float64, shape (...)
        Sizes in bytes. An empty message counts as one byte; beyond the last knot, the last slope
        continues.

    Returns
    -------
    ndarray of float64, shape (..., N_KNOTS)
        Weights with the sum 1, of which two differ from 0.
    """
    knots, sizes = np.array(KNOTS), np.maximum(sizes, 1.0)
    left = _left_knots(sizes)
    return _between(left, (sizes - knots[left]) / (knots[left + 1] - knots[left]))


def level_weights(sizes: Floats) -> Floats:
    """Return the weights of the knots that interpolate at sizes linearly in their logarithm."""
    place = np.minimum(np.log2(np.maximum(sizes, 1.0)) / 3, N_KNOTS - 1.0)
    left = np.minimum(place.astype(np.int64), N_KNOTS - 2)
    return _between(left, place - left)


def times_at(sizes: Floats, times: Floats) -> Floats:
    """Return the times at sizes, by the times at the knots."""
    knots, sizes = np.array(KNOTS), np.maximum(sizes, 1.0)
    left = _left_knots(sizes)
    slope = np.diff(times) / np.diff(knots)
    found: Floats = times[left] + (sizes - knots[left]) * slope[left]
    return found


def _left_knots(sizes: Floats) -> Ints:
    found = np.searchsorted(np.array(KNOTS), sizes, side="right") - 1
    return np.clip(found, 0, N_KNOTS - 2)


def _between(left: Ints, part: Floats) -> Floats:
    weights = np.zeros((*left.shape, N_KNOTS))
    np.put_along_axis(weights, left[..., None], (1 - part)[..., None], -1)
    np.put_along_axis(weights, left[..., None] + 1, part[..., None], -1)
    return weights
