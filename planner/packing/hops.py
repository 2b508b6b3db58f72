"""Hops between the ranks of a component, and the links that they use."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.packing.dissemination import Hops
from collplan.planner.packing.link_ends import link_ends
from collplan.planner.plan.assembly import RankPlaces
from collplan.planner.topology import Fabric, fabric_of
from collplan.specs.machines.machine import Machine

ALL_PAIRS: Final = 64
"""Number of ranks of a group up to which all pairs may be hops."""


@dataclass(frozen=True, eq=False)
class HopTable:
    """Hops between members of groups, sources ascending.

    A member is a rank of a group. Two links per lane of a node stand for its adapter, one out of
    the node and one into it.

    Parameters
    ----------
    group_of : ndarray of int64, shape (n_members,)
        Group of every member, ascending.
    source, target : ndarray of int64, shape (n_hops,)
        Members at the ends.
    route_begin, route : ndarray of int64
        Links of every hop in CSR form.
    ns_per_byte, least_ns : ndarray of float64, shape (n_links,)
        Time for which a byte, and any message at least, occupies every link, in ns.
    latency_ns : ndarray of float64, shape (n_hops,)
        Time of a message without bytes, in ns.
    turn_ns : ndarray of float64, shape (n_hops,)
        Part of this time after which the next message of the hop may start, in ns.
    """

    group_of: Ints
    source: Ints
    target: Ints
    route_begin: Ints
    route: Ints
    ns_per_byte: Floats
    least_ns: Floats
    latency_ns: Floats
    turn_ns: Floats

    @property
    def n_members(self) -> int:
        """Return the number of members of all groups."""
        return len(self.group_of)

    def slowest(self, per_link: Floats) -> Floats:
        """Return the largest value of the links of every hop, shape (n_hops,)."""
        if not len(self.source):
            return np.zeros(0)
        return np.asarray(np.maximum.reduceat(per_link[self.route], self.route_begin[:-1]))

    def reversed(self) -> HopTable:
        """Return the hops from targets to sources, which occupy the same links."""
        turned = replace(self, source=self.target, target=self.source)
        return turned.take(np.lexsort((self.source, self.target)))

    def take(self, hops: Ints) -> HopTable:
        """Return some of the hops, in the given order."""
        begin, entries = csr.take_rows(self.route_begin, hops)
        return replace(
            self,
            source=self.source[hops],
            target=self.target[hops],
            route_begin=begin,
            route=self.route[entries],
            latency_ns=self.latency_ns[hops],
            turn_ns=self.turn_ns[hops],
        )

    def one_per_link(self) -> HopTable | None:
        """Return hops of which no two leave a member over the same link.

        Members that all reach each other over such links, as behind a switch, get the hops of a
        ring. If others reach the same members, each of them gets a hop to another one of these.

        Returns
        -------
        HopTable or None
            None if these are all hops.
        """
        first = self.route[self.route_begin[:-1] + 1]
        reached: dict[tuple[int, int], list[int]] = {}
        for hop, key in enumerate(zip(self.source.tolist(), first.tolist(), strict=True)):
            reached.setdefault(key, []).append(hop)
        if len(reached) == len(first):
            return None
        targets = {key: self.target[hops].tolist() for key, hops in reached.items()}
        circles = {key: frozenset((key[0], *found)) for key, found in targets.items()}
        n_alike = Counter(circles.values())
        n_before: Counter[frozenset[int]] = Counter()
        chosen = []
        for key, hops in reached.items():
            source, found = key[0], targets[key]
            order = sorted(range(len(hops)), key=lambda i: (found[i] - source) % self.n_members)
            turn = 0
            if n_alike[circles[key]] != len(circles[key]):
                turn = n_before[frozenset(found)]
                n_before[frozenset(found)] += 1
            chosen.append(hops[order[turn % len(order)]])
        return self.take(np.array(sorted(chosen)))

    def for_chunks(self, n_bytes: float) -> Hops:
        """Return the hops for chunks of a size in bytes."""
        busy = np.maximum(self.ns_per_byte * n_bytes, self.least_ns)
        longest = self.slowest(busy)
        return Hops(
            self.source,
            self.target,
            np.searchsorted(self.source, np.arange(self.n_members + 1)),
            self.route_begin,
            self.route,
            busy,
            longest + self.latency_ns,
            longest + self.turn_ns,
        )


def find_hops(machine: Machine, ranks: Ints, indptr: Ints) -> HopTable | None:
    """Return the hops between the ranks of groups.

    All pairs of ranks are hops whose routes pass no other rank of the group. Groups of more than
    `ALL_PAIRS` ranks have the pairs whose positions differ by a power of two, and all pairs on the
    same or on neighboring switches that these routes pass.

    Parameters
    ----------
    machine : Machine
    ranks : ndarray of int64
        Ranks of all groups.
    indptr : ndarray of int64, shape (n_groups + 1,)
        Offsets of the groups.

    Returns
    -------
    HopTable or None
        None if the machine has no topology, or if two ranks of a group are on one node.
    """
    fabric, places = fabric_of(machine), RankPlaces.of(machine)
    node, lane = places.node[ranks].astype(np.int64), places.lane[ranks].astype(np.int64)
    group_of = csr.row_numbers(indptr)
    if fabric is None or len(np.unique(group_of * places.n_nodes + node)) < len(ranks):
        return None
    source, target = _pairs(indptr, group_of, fabric.node_host[node], fabric, lane)
    order = np.lexsort((target, source))
    source, target = source[order], target[order]
    begin, links = fabric.node_routes(node[source], node[target], lane[source])
    adapters = (node * machine.n_lanes + lane) * 2 + fabric.n_links
    width = csr.lengths_of(begin) + 2
    route_begin = csr.running_total(width)
    route = np.empty(route_begin[-1], dtype=np.int64)
    route[route_begin[:-1]], route[route_begin[1:] - 1] = adapters[source], adapters[target] + 1
    inside = np.ones(len(route), dtype=bool)
    inside[route_begin[:-1]] = inside[route_begin[1:] - 1] = False
    route[inside] = links
    latency = np.zeros(len(source))
    np.add.at(latency, csr.row_numbers(begin), fabric.latency_ns[links])
    return _with_costs(machine, fabric, group_of, (source, target), (route_begin, route), latency)


def _with_costs(
    machine: Machine,
    fabric: Fabric,
    group_of: Ints,
    ends: tuple[Ints, Ints],
    routes: tuple[Ints, Ints],
    latency: Floats,
) -> HopTable:
    cost = machine.network.network
    slowness = np.tile(np.repeat(np.array(machine.lane_slowness), 2), machine.nodes)
    per_byte = np.concatenate((1e9 / fabric.bandwidth, cost.G_ns_per_byte * slowness))
    least = np.zeros(len(per_byte))
    least[fabric.n_links :] = max(cost.g_ns, cost.o_ns)
    number, used = np.full(len(per_byte), -1, dtype=np.int64), csr.sorted_unique(routes[1])
    number[used] = np.arange(len(used))
    return HopTable(
        group_of,
        *ends,
        routes[0],
        number[routes[1]],
        per_byte[used],
        least[used],
        latency + cost.L_ns + 2 * cost.o_ns,
        latency,
    )


def _pairs(
    indptr: Ints, group_of: Ints, host: Ints, fabric: Fabric, lane: Ints
) -> tuple[Ints, Ints]:
    """Return the members at the ends of all hops."""
    parts = [_candidates(low, high) for low, high in pairwise(indptr.tolist())]
    source, target = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    ends = link_ends(fabric)
    if ends is None:
        return source, target
    place = csr.joint_key(group_of, ends.host[lane, host], ends.n_vertices)
    order = np.argsort(place)
    is_large = csr.lengths_of(indptr)[group_of] > ALL_PAIRS
    done: list[tuple[Ints, Ints]] = [(source[:0], target[:0])]
    known = csr.sorted_unique(source * len(group_of) + target)
    while len(source):
        begin, links = fabric.routes(host[source], host[target], lane[source])
        pair = csr.row_numbers(begin)
        passed = csr.joint_key(group_of[source][pair], ends.head[links], ends.n_vertices)
        found = np.minimum(np.searchsorted(place, passed, sorter=order), len(place) - 1)
        member = order[found]
        is_stop = (place[member] == passed) & (member != target[pair])
        is_hop = np.bincount(pair, is_stop, minlength=len(source)) == 0
        done.append((source[is_hop], target[is_hop]))
        # Pairs of large groups whose routes pass members are replaced by the parts of the routes.
        stop = is_stop & is_large[source[pair]]
        which, via = pair[stop], member[stop]
        first = np.ones(len(which), dtype=bool)
        first[1:] = which[1:] != which[:-1]
        last = np.roll(first, -1)
        one = np.concatenate((np.where(first, source[which], np.roll(via, 1)), via[last]))
        two = np.concatenate((via, target[which[last]]))
        keys = csr.sorted_unique(one * len(group_of) + two)
        keys = keys[~np.isin(keys, known)]
        known = np.union1d(known, keys)
        source, target = np.divmod(keys, len(group_of))
    return np.concatenate([one for one, _ in done]), np.concatenate([two for _, two in done])


def _candidates(low: int, high: int) -> tuple[Ints, Ints]:
    """Return pairs of the members from `low` to `high`."""
    n = int(high - low)
    if n <= ALL_PAIRS:
        offsets: Ints = np.arange(1, n)
    else:
        powers = 2 ** np.arange(int(np.log2(n - 1)) + 1)
        offsets = csr.sorted_unique(np.concatenate((powers, n - powers)))
    me = np.repeat(np.arange(n), len(offsets))
    return low + me, low + (me + np.tile(offsets, n)) % n
