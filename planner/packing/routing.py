"""Routing: ways of chunks from member to member that load all links evenly.

Every chunk takes the cheapest of its ways, and then others make room: the search takes each chunk
up again, and chooses its way anew. A link costs its time, times a high power of its load relative
to the most loaded link. These are prices as in multiplicative-weights algorithms for concurrent
flows (Garg and Könemann, 2007), which also give a lower bound of the greatest load.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.packing.dissemination import Hops
from collplan.planner.packing.heap import pop, push

POWER: Final = 8.0
"""Exponent of relative loads in prices."""
MOST_HOPS: Final = 64
"""Greatest number of hops of a way, unless the shortest way has more."""
_LEAST_PRICE: Final = 1e-3
"""Price of an unused link relative to that of the most loaded one."""


def balanced_ways(
    hops: Hops, origin: Ints, dest: Ints, n_passes: int, seed: int
) -> tuple[Ints, Ints, Floats]:
    """Return a way for every chunk.

    Parameters
    ----------
    hops : Hops
    origin, dest : ndarray of int64, shape (n_chunks,)
        Members at the ends of every way.
    n_passes : int
        Number of times that the way of a chunk is chosen.
    seed : int
        Seed of the order of chunks.

    Returns
    -------
    begin, way : ndarray of int64
        Hops of every way in CSR form.
    load_ns : ndarray of float64, shape (n_links,)
        Time for which chunks occupy every link, in ns.
    """
    order = np.random.default_rng(seed).permutation(np.flatnonzero(origin != dest))
    room = MOST_HOPS
    while True:
        way = np.zeros((len(origin), room), dtype=np.int32)
        length, load = np.zeros(len(origin), dtype=np.int64), np.zeros(len(hops.busy_ns))
        needed = _choose_ways(hops, (origin, dest, order), n_passes, way, length, load)
        if needed <= room:
            break
        room = 2 * int(needed)
    is_used = np.arange(way.shape[1]) < length[:, None]
    return csr.running_total(length), way[is_used].astype(np.int64), load


def prices_of(load: Floats, busy_ns: Floats) -> Floats:
    """Return the prices of links with these loads, as the search counts them."""
    return np.asarray((load / max(load.max(initial=0.0), 1e-300)) ** POWER * busy_ns)


@compiled
def _choose_ways(
    hops: Hops,
    ends: tuple[Ints, Ints, Ints],
    n_passes: int,
    way: Ints,
    length: Ints,
    load: Floats,
) -> int:
    """Write the ways, their lengths and the loads of links.

    The number of hops of the first way that does not fit into the table is returned, or 0.
    """
    origin, dest, order = ends
    n = len(hops.out_begin) - 1
    price = np.zeros(len(load))
    tree = np.zeros(n), np.zeros(n, dtype=np.int64)
    heap = np.zeros(len(hops.source) + 1), np.zeros(len(hops.source) + 1, dtype=np.int64)
    most = 1.0
    for turn in range(n_passes * len(order)):
        chunk = order[turn % len(order)]
        for i in range(length[chunk]):
            _add_load(hops, way[chunk, i], -1.0, most, load, price)
        if turn % 16 == 0:
            most = 1e-300
            for link in range(len(load)):
                most = max(most, load[link] + hops.busy_ns[link])
            for link in range(len(load)):
                price[link] = _price(load[link], hops.busy_ns[link], most)
        n_hops = _cheapest_way(hops, origin[chunk], dest[chunk], price, tree, heap)
        if n_hops > way.shape[1]:
            # Ways with many detours are rare. The one with the fewest links is short enough.
            n_hops = _cheapest_way(hops, origin[chunk], dest[chunk], hops.busy_ns, tree, heap)
            if n_hops > way.shape[1]:
                return int(n_hops)
        member = dest[chunk]
        for i in range(n_hops - 1, -1, -1):
            way[chunk, i] = tree[1][member]
            member = hops.source[tree[1][member]]
            _add_load(hops, way[chunk, i], 1.0, most, load, price)
        length[chunk] = n_hops
    return 0


@inner
def _price(load: float, busy: float, most: float) -> float:
    """Return the price of a link: its time for a chunk, times a power of its relative load."""
    return float(busy * (_LEAST_PRICE + ((load + busy) / most) ** POWER))


@inner
def _add_load(hops: Hops, hop: int, times: float, most: float, load: Floats, price: Floats) -> None:
    """Add a chunk to the loads of a hop's links, or remove it, and renew their prices."""
    for j in range(hops.route_begin[hop], hops.route_begin[hop + 1]):
        link = hops.route[j]
        load[link] += times * hops.busy_ns[link]
        price[link] = _price(load[link], hops.busy_ns[link], most)


@inner
def _cheapest_way(
    hops: Hops,
    first: int,
    last: int,
    price: Floats,
    tree: tuple[Floats, Ints],
    heap: tuple[Floats, Ints],
) -> int:
    """Write the last hop of the cheapest way to every member, and return the number of hops.

    This is Dijkstra's algorithm, which ends when it has found the way to `last`.
    """
    cost, best = tree
    for member in range(len(cost)):
        cost[member] = np.inf
    cost[first] = 0.0
    best[first] = -1
    size = push(heap[0], heap[1], 0, 0.0, first)
    while size > 0:
        now, member = heap[0][0], heap[1][0]
        size = pop(heap[0], heap[1], size)
        if now > cost[member]:
            continue
        if member == last:
            break
        for hop in range(hops.out_begin[member], hops.out_begin[member + 1]):
            target, total = hops.target[hop], now
            for j in range(hops.route_begin[hop], hops.route_begin[hop + 1]):
                total += price[hops.route[j]]
            if total < cost[target]:
                cost[target], best[target] = total, hop
                size = push(heap[0], heap[1], size, total, target)
    n_hops = 0
    while best[last] >= 0:
        n_hops += 1
        last = hops.source[best[last]]
    return n_hops
