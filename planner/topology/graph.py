"""Links and routes of graphs, with given or shortest routes."""

from __future__ import annotations

from itertools import chain

import numpy as np

from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.topology.hashing import spread
from collplan.planner.topology.links import GLOBAL, HOST, LinkList, named
from collplan.specs.topology import Graph


class GivenRoutes:
    """Routes that the spec of a graph states for all pairs of hosts."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        rows = graph.routes or ()
        given = [
            () if a == b or route is None else route
            for a, row in enumerate(rows)
            for b, route in enumerate(row)
        ]
        self._begin = csr.running_total(np.array([len(route) for route in given], dtype=np.int64))
        self._links = np.fromiter(chain.from_iterable(given), dtype=np.int32)
        self._first, self._last = self._own_links()

    def _own_links(self) -> tuple[Ints, Ints]:
        """Return the first link of all routes from each host, and the last link of all to it.

        If the routes of a host differ in this link, the number is -1.
        """
        n = self.graph.n_hosts
        lengths = csr.lengths_of(self._begin).reshape(n, n)
        heads, tails = np.full((n, n), -1), np.full((n, n), -1)
        has = lengths > 0
        heads[has] = self._links[self._begin[:-1].reshape(n, n)[has]]
        tails[has] = self._links[self._begin[1:].reshape(n, n)[has] - 1]
        own = []
        for table, marks in ((heads, has), (tails.T, has.T)):
            least = np.where(marks, table, np.iinfo(np.int64).max).min(axis=1, initial=2**62)
            most = table.max(axis=1, initial=-1)
            own.append(np.where(least == most, most, -1))
        return own[0], own[1]

    def links(self, lane: float) -> LinkList:
        """Return all links. The rate of a lane is `lane` bytes per second."""
        graph = self.graph
        classes = np.full(len(graph.links), GLOBAL, dtype=np.int8)
        for own in (self._first, self._last):
            classes[own[own >= 0]] = HOST
        return LinkList(
            _rates(graph, lane),
            np.array([link.latency_ns for link in graph.links], dtype=np.float64),
            classes,
            lambda link: graph.links[link].name or f"link {link}",
        )

    @property
    def host_switch(self) -> Ints:
        """Return the switch of every host, shape (n_hosts,).

        Two hosts share a switch if their routes in both directions have two links, which all
        routes of the respective hosts use. The first such host gives the switch its number.
        """
        n = self.graph.n_hosts
        lengths = csr.lengths_of(self._begin).reshape(n, n)
        near = (lengths == 2) & (self._first[:, None] >= 0) & (self._last[None, :] >= 0)
        np.fill_diagonal(near, val=True)
        return _renumbered(np.argmax(near & near.T, axis=1))

    @property
    def host_group(self) -> Ints:
        """Return the group of every host."""
        groups = self.graph.groups
        return self.host_switch if groups is None else _renumbered(np.array(groups))

    def routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the links of routes from sources to targets, in CSR form."""
        begin, entries = csr.take_rows(self._begin, source * self.graph.n_hosts + target)
        return begin, self._links[entries]


class ShortestRoutes:
    """Shortest routes of a graph, by number of links."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        numbers = graph.vertices
        ends: list[tuple[int, int]] = []
        self._edges: list[int] = []  # entry in the graph's list, for each unidirectional link
        for i, link in enumerate(graph.links):
            one, other = numbers[str(link.source)], numbers[str(link.target)]
            ends += [(one, other), (other, one)] if link.both else [(one, other)]
            self._edges += [i, i] if link.both else [i]
        self._ends = np.array(ends, dtype=np.int64).reshape(-1, 2)
        n = len(numbers)
        outgoing, out_begin = csr.group_by(self._ends[:, 0], n)
        incoming, in_begin = csr.group_by(self._ends[:, 1], n)
        self._out = (out_begin, outgoing)
        self._in = (in_begin, self._ends[incoming, 0])

    def links(self, lane: float) -> LinkList:
        """Return all links, with both directions of a link next to each other.

        The rate of a lane is `lane` bytes per second.
        """
        graph, names = self.graph, list(self.graph.vertices)
        latency = np.array([link.latency_ns for link in graph.links], dtype=np.float64)
        is_leaf = np.bincount(self._ends[:, 0], minlength=len(names)) == 1
        is_leaf[graph.n_hosts :] = False
        own = is_leaf[self._ends].any(axis=1)

        def ends(link: int) -> tuple[str, str]:
            one, other = self._ends[link]
            return names[one], names[other]

        return LinkList(
            _rates(graph, lane)[self._edges],
            latency[self._edges],
            np.where(own, HOST, self._inner_classes()).astype(np.int8),
            named(ends),
            ends,
        )

    def _inner_classes(self) -> Ints:
        """Return the class of every link, on the assumption that it is not the link of a host.

        Links between switches of the same group have class `GROUP`, and all others `GLOBAL`.
        """
        group = np.full(len(self.graph.vertices), -1)
        group[: self.graph.n_hosts] = self.host_group
        switch = self._switch_vertex
        has_switch = switch >= self.graph.n_hosts
        group[switch[has_switch]] = group[: self.graph.n_hosts][has_switch]
        one, other = group[self._ends].T
        # Switches without hosts belong to no group.
        return np.where((one == other) & (one >= 0), 2, GLOBAL)

    @property
    def _switch_vertex(self) -> Ints:
        """Return the switch of every host that has one link, which leads to a switch.

        Other hosts are their own switches.
        """
        begin, links = self._out
        near = self._ends[links[begin[: self.graph.n_hosts]], 1]
        is_one = csr.lengths_of(begin)[: self.graph.n_hosts] == 1
        return np.where(is_one & (near >= self.graph.n_hosts), near, np.arange(self.graph.n_hosts))

    @property
    def host_switch(self) -> Ints:
        """Return the switch of every host."""
        return _renumbered(self._switch_vertex)

    @property
    def host_group(self) -> Ints:
        """Return the group of every host."""
        groups = self.graph.groups
        return self.host_switch if groups is None else _renumbered(np.array(groups))

    def routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the links of routes from sources to targets, in CSR form."""
        hosts = csr.sorted_unique(target)
        distance = np.empty((len(hosts), len(self.graph.vertices)), dtype=np.int32)
        _measure(*self._in, hosts, distance)
        rule = np.array([self.graph.routing == "ecmp", self.graph.seed])
        tables = (*self._out, self._ends[:, 1].copy(), distance, rule)
        rows = np.searchsorted(hosts, target)
        begin = csr.running_total(distance[rows, source])
        links = np.empty(begin[-1], dtype=np.int32)
        pairs = np.stack((source, target, rows))
        _walk(tables, pairs, begin, links)
        return begin, links


def _rates(graph: Graph, lane: float) -> Floats:
    own = graph.level_rates(lane)[0]
    return np.array([link.bandwidth / 8 if link.bandwidth else own for link in graph.links])


def _renumbered(keys: Ints) -> Ints:
    """Return numbers for keys, counted from 0 in the order of their first occurrence."""
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]


@compiled
def _measure(in_begin: Ints, before: Ints, hosts: Ints, distance: Ints) -> None:
    """Write the number of links on the shortest route from every vertex to each of the hosts.

    The number is -1 if there is no route.
    """
    n = distance.shape[1]
    todo = np.empty(n, dtype=np.int64)
    for i in range(len(hosts)):
        for vertex in range(n):
            distance[i, vertex] = -1
        distance[i, hosts[i]] = 0
        todo[0] = hosts[i]
        n_done, n_known = 0, 1
        while n_done < n_known:
            vertex = todo[n_done]
            n_done += 1
            for j in range(in_begin[vertex], in_begin[vertex + 1]):
                other = before[j]
                if distance[i, other] < 0:
                    distance[i, other] = distance[i, vertex] + 1
                    todo[n_known] = other
                    n_known += 1


@compiled
def _walk(tables: tuple[Ints, ...], pairs: Ints, begin: Ints, links: Ints) -> None:
    """Write the links of routes. Each link reduces the distance to the target by one."""
    out_begin, outgoing, head, distance, rule = tables
    for i in range(pairs.shape[1]):
        vertex, target, row = pairs[0, i], pairs[1, i], pairs[2, i]
        for place in range(begin[i], begin[i + 1]):
            left = distance[row, vertex] - 1
            n_ways = 0
            for j in range(out_begin[vertex], out_begin[vertex + 1]):
                n_ways += distance[row, head[outgoing[j]]] == left
            way = 0
            if rule[0] == 1:
                way = spread(rule[1], pairs[0, i], target, place - begin[i]) % n_ways
            for j in range(out_begin[vertex], out_begin[vertex + 1]):
                if distance[row, head[outgoing[j]]] == left:
                    if way == 0:
                        links[place] = outgoing[j]
                        vertex = head[outgoing[j]]
                        break
                    way -= 1
