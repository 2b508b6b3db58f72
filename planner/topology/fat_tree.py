"""Links and routes of fat trees.

A switch of level l is identified by the number of its subtree and by its *column* among the
switches of this level in the subtree. The column encodes the choices of parents that lead to the
switch from any host below. If children have n parents, the link of a child to parent j has the
number ``child * n + j`` among the links of its level.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.topology.hashing import spread
from collplan.planner.topology.links import GLOBAL, GROUP, HOST, SWITCH, LinkList, fill, named
from collplan.specs.topology import FatTree


class FatTreeRoutes:
    """Routes of a fat tree, which go up to the first common subtree and then down."""

    def __init__(self, tree: FatTree) -> None:
        self.tree = tree
        down, up = tree.down, tree.parents
        below = [1, *accumulate(down, mul)]  # hosts below a switch of each level
        columns = [1, *accumulate(up, mul)]
        counts = [tree.n_hosts // below[i] * columns[i] for i in range(len(down))]
        edges = [n * ports for n, ports in zip(counts, up, strict=True)]
        # Links of hosts, up and down, are followed by all other links up, and all others down.
        n_inner = sum(edges[1:])
        firsts = csr.running_total(edges[1:])[:-1] + 2 * edges[0]
        up_first = np.array([0, *firsts], dtype=np.int64)
        down_first = np.array([edges[0], *(firsts + n_inner)], dtype=np.int64)
        self._shape = np.array([down, up, below[:-1], columns[:-1], up_first, down_first])
        self._rule = np.array([tree.routing == "ecmp", tree.seed])
        self._edges, self._counts = edges, counts

    def links(self, lane: float) -> LinkList:
        """Return all links, starting with those of hosts.

        The rate of a lane is `lane` bytes per second.
        """
        n = len(self._edges)
        order = [0, 0, *range(1, n), *range(1, n)]
        classes = [HOST, *(SWITCH,) * (n - 3), *(GROUP,) * (n > 2), *(GLOBAL,) * (n > 1)]
        ups = [True, False, *(True,) * (n - 1), *(False,) * (n - 1)]
        sizes = [self._edges[level] for level in order]
        rates, latencies = self.tree.level_rates(lane), self.tree.level_latencies
        last = np.cumsum(sizes)

        def ends(link: int) -> tuple[str, str]:
            return self._ends(link, last, order, ups)

        return LinkList(
            np.repeat([rates[level] for level in order], sizes),
            np.repeat([latencies[level] for level in order], sizes),
            np.repeat(np.array([classes[level] for level in order], dtype=np.int8), sizes),
            named(ends),
            ends,
        )

    def _ends(self, link: int, last: Ints, order: list[int], ups: list[bool]) -> tuple[str, str]:
        """Return the names of both ends: the number of a host, or level and number of a switch."""
        block = int(np.searchsorted(last, link, side="right"))
        level, place = order[block], link - int(last[block - 1] if block else 0)
        child, port = divmod(place, self.tree.parents[level])
        lower = f"host {child}" if level == 0 else f"switch {level}.{child}"
        parent = self._parent(level, child, port)
        upper = f"switch {level + 1}.{parent}"
        return (lower, upper) if ups[block] else (upper, lower)

    def _parent(self, level: int, child: int, port: int) -> int:
        """Return the number of a parent among the switches of its level."""
        columns = int(self._shape[3, level])
        subtree, column = divmod(child, columns)
        ports = self.tree.parents[level]
        return subtree // self.tree.down[level] * columns * ports + column * ports + port

    @property
    def host_switch(self) -> Ints:
        """Return the switch of every host."""
        return np.arange(self.tree.n_hosts) // self.tree.down[0]

    @property
    def host_group(self) -> Ints:
        """Return the group of every host, which is its subtree below the top level of links.

        A tree of one level is a single group.
        """
        is_one = len(self.tree.down) == 1
        return np.arange(self.tree.n_hosts) // (self.tree.n_hosts if is_one else self._shape[2, -1])

    def routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the links of routes from sources to targets, in CSR form."""
        return fill(_walk, (self._shape, self._rule), source, target)


@compiled
def _walk(shape: Ints, rule: Ints, source: Ints, target: Ints, begin: Ints, links: Ints) -> None:
    """Write the links of routes, or, if `links` is empty, the lengths of routes to `begin[1:]`."""
    down, up, below, columns, up_first, down_first = (
        shape[0], shape[1], shape[2], shape[3], shape[4], shape[5],
    )  # fmt: skip
    for i in range(len(source)):
        a, b = source[i], target[i]
        top = 0
        subtree, other = a, b
        while subtree != other:
            subtree, other = subtree // down[top], other // down[top]
            top += 1
        if len(links) == 0:
            begin[i + 1] = 2 * top
            continue
        first, column = begin[i], 0
        for level in range(top):
            port = b // columns[level]
            if rule[0] == 1:
                port = spread(rule[1], a, b, level)
            port %= up[level]
            ours = (a // below[level] * columns[level] + column) * up[level] + port
            its = (b // below[level] * columns[level] + column) * up[level] + port
            links[first + level] = up_first[level] + ours
            links[first + 2 * top - 1 - level] = down_first[level] + its
            column = column * up[level] + port
