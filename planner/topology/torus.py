"""Links and routes of tori and grids."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.topology.links import GLOBAL, GROUP, LinkList, fill, named
from collplan.specs.topology import Torus


class TorusRoutes:
    """Routes of a torus, one dimension after another, each in the shorter direction.

    If both directions are equally long, a route goes up, unless it leads to the first place of the
    dimension.
    """

    def __init__(self, torus: Torus) -> None:
        self.torus = torus
        sizes = np.array(torus.dimensions)
        steps = np.cumprod([1, *torus.dimensions[:-1]])
        rings = np.array(torus.is_ring)
        self._table = np.array([sizes, steps, rings])
        hosts = np.arange(torus.n_hosts)[:, None]
        places = hosts // steps % sizes
        # Links from every host, along every dimension, up and down.
        has = np.stack((rings | (places < sizes - 1), rings | (places > 0)), axis=-1)
        has &= (sizes > 1)[:, None]
        self._slots = np.flatnonzero(has)
        number = np.full(has.size, -1, dtype=np.int32)
        number[self._slots] = np.arange(len(self._slots))
        self._number = number

    def links(self, lane: float) -> LinkList:
        """Return all links. The rate of a lane is `lane` bytes per second."""
        torus = self.torus
        dimension = self._slots // 2 % torus.n_levels
        classes = np.where(dimension < torus.group_dimensions, GROUP, GLOBAL)
        return LinkList(
            np.array(torus.level_rates(lane))[dimension],
            np.array(torus.level_latencies)[dimension],
            classes.astype(np.int8),
            named(self._ends),
            self._ends,
        )

    def _ends(self, link: int) -> tuple[str, str]:
        slot = int(self._slots[link])
        host, dimension = slot // 2 // self.torus.n_levels, slot // 2 % self.torus.n_levels
        size, step = (int(row[dimension]) for row in self._table[:2])
        place = host // step % size
        there = (place + (-1 if slot % 2 else 1)) % size
        return f"host {host}", f"host {host + (there - place) * step}"

    @property
    def host_switch(self) -> Ints:
        """Return the switch of every host, which is the host itself."""
        return np.arange(self.torus.n_hosts)

    @property
    def host_group(self) -> Ints:
        """Return the group of every host."""
        inside = int(np.prod(self.torus.dimensions[: self.torus.group_dimensions]))
        return np.arange(self.torus.n_hosts) // inside

    def routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the links of routes from sources to targets, in CSR form."""
        return fill(_walk, (self._table, self._number), source, target)


@compiled
def _walk(table: Ints, number: Ints, source: Ints, target: Ints, begin: Ints, links: Ints) -> None:
    """Write the links of routes, or, if `links` is empty, the lengths of routes to `begin[1:]`."""
    n_dimensions = table.shape[1]
    for i in range(len(source)):
        host, n = source[i], begin[i]
        for d in range(n_dimensions):
            size, step = table[0, d], table[1, d]
            here, there = host // step % size, target[i] // step % size
            way, distance = 1, there - here
            if table[2, d] == 1:
                up = (there - here) % size
                distance = up
                if up > size - up or (up == size - up and there == 0):
                    way, distance = -1, size - up
            elif distance < 0:
                way, distance = -1, -distance
            if len(links) == 0:
                begin[i + 1] += distance
                continue
            for _ in range(distance):
                slot = 2 * (host * n_dimensions + d) + (0 if way == 1 else 1)
                links[n] = number[slot]
                n += 1
                place = host // step % size
                host += ((place + way) % size - place) * step
            # In this dimension, the route has now reached the place of the target.
