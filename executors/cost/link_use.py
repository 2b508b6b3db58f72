"""The use of links between adapters by a plan: bytes, the busiest link, and who shares it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from collplan.executors.cost.flows import Routes
from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.topology.links import GLOBAL, LINK_CLASSES

REACHES: Final = ("switch", "group", "global")
"""Reaches of messages between nodes: they stay behind one switch, in a group, or leave it."""
_SAME: Final = 1 - 1e-9


@dataclass(frozen=True, eq=False)
class LinkUse:
    """Bytes over the links of a topology.

    Parameters
    ----------
    routes : Routes
        Messages between nodes, with their routes.
    """

    routes: Routes

    @cached_property
    def n_bytes(self) -> Floats:
        """Bytes over every link."""
        routes = self.routes
        sizes = np.repeat(routes.n_bytes, csr.lengths_of(routes.begin))
        n_bytes = np.bincount(routes.links, sizes, minlength=routes.fabric.n_links)
        return n_bytes.astype(np.float64)

    @cached_property
    def busy_ns(self) -> Floats:
        """Time that the bytes over every link take at its rate: no makespan is less."""
        return np.asarray(self.n_bytes / self.routes.fabric.bandwidth * 1e9)

    @property
    def bytes_by_class(self) -> dict[str, float]:
        """Return bytes over all links of each class; a message counts once per link."""
        fabric = self.routes.fabric
        totals = np.bincount(fabric.link_class, self.n_bytes, minlength=len(LINK_CLASSES))
        return dict(zip(LINK_CLASSES, totals.tolist(), strict=True))

    @property
    def bytes_by_reach(self) -> dict[str, float]:
        """Return bytes of messages that stay behind a switch, in a group, or leave it."""
        routes, fabric = self.routes, self.routes.fabric
        one, other = routes.source, routes.target
        is_far = fabric.node_group[one] != fabric.node_group[other]
        is_near = fabric.node_switch[one] == fabric.node_switch[other]
        reach = np.where(is_far, 2, np.where(is_near, 0, 1))
        totals = np.bincount(reach, routes.n_bytes, minlength=len(REACHES))
        return dict(zip(REACHES, totals.tolist(), strict=True))

    @property
    def halves(self) -> tuple[float, float, float]:
        """Return what the bytes between two halves of the nodes take at least.

        Returns
        -------
        n_bytes : float
            Of messages between groups, from one half of the nodes, group after group, to the
            other: of the direction that takes longer.
        bandwidth : float
            Bytes per second of the links by which these messages leave their groups, together.
        bound_ns : float
            The quotient. No makespan with these routes is less, as each of these messages takes
            one of these links. It is no minimum cut of the topology.
        """
        routes, fabric = self.routes, self.routes.fabric
        order = np.argsort(fabric.node_group, kind="stable")
        is_late = csr.inverse(order) >= len(order) // 2
        message = csr.row_numbers(routes.begin)
        is_global = fabric.link_class[routes.links] == GLOBAL
        worst = (0.0, 0.0, 0.0)
        for side in (False, True):
            crosses = (is_late[routes.source] == side) & (is_late[routes.target] != side)
            # Where a group lies in both halves, messages inside it take no link between groups.
            hops = np.flatnonzero(is_global & crosses[message])
            leaving, first = np.unique(message[hops], return_index=True)
            links = np.unique(routes.links[hops[first]])
            rate = float(fabric.bandwidth[links].sum())
            n_bytes = float(routes.n_bytes[leaving].sum())
            if rate > 0 and n_bytes / rate * 1e9 > worst[2]:
                worst = (n_bytes, rate, n_bytes / rate * 1e9)
        return worst

    def messages_over(self, link: int) -> Ints:
        """Return the messages that a link carries."""
        found = csr.row_numbers(self.routes.begin)[self.routes.links == link]
        return np.asarray(found[self.routes.n_bytes[found] > 0])

    def busiest(self, most: int) -> list[int]:
        """Return the busiest links that carry bytes, the busiest first; no more than `most`."""
        order = np.argsort(-self.busy_ns, kind="stable")[:most]
        return [link for link in order.tolist() if self.n_bytes[link] > 0]

    def report(self, makespan_ns: float) -> dict[str, Any]:
        """Return the use of links, ready for JSON.

        Returns
        -------
        dict
            `bytes_by_class` and `bytes_by_reach`, as of the properties; `busiest`, None where no
            message has bytes, with `link`, `class`, `bytes`, `bandwidth_B_per_s`, `busy_s` (the
            quotient), `utilisation` (its share of the makespan), `messages`, `senders` and
            `receivers` (ranks), and `alike` (links that are as busy); `halves` with
            `bytes`, `bandwidth_B_per_s` and `bound_s`; `n_links` and `n_used`.
        """
        n_bytes, rate, bound_ns = self.halves
        return {
            "n_links": self.routes.fabric.n_links,
            "n_used": int((self.n_bytes > 0).sum()),
            "bytes_by_class": self.bytes_by_class,
            "bytes_by_reach": self.bytes_by_reach,
            "busiest": self._busiest(makespan_ns),
            "halves": {
                "bytes": n_bytes, "bandwidth_B_per_s": rate, "bound_s": bound_ns / 1e9
            },
        }  # fmt: skip

    def _busiest(self, makespan_ns: float) -> dict[str, Any] | None:
        if self.busy_ns.max(initial=0.0) == 0:
            return None
        fabric, routes = self.routes.fabric, self.routes
        link = int(np.argmax(self.busy_ns))
        busy_ns = float(self.busy_ns[link])
        messages = self.messages_over(link)
        return {
            "link": fabric.link_name(link),
            "class": LINK_CLASSES[fabric.link_class[link]],
            "bytes": float(self.n_bytes[link]),
            "bandwidth_B_per_s": float(fabric.bandwidth[link]),
            "busy_s": busy_ns / 1e9,
            "utilisation": busy_ns / makespan_ns if makespan_ns > 0 else 0.0,
            "messages": len(messages),
            "senders": np.unique(routes.sender[messages]).tolist(),
            "receivers": np.unique(routes.receiver[messages]).tolist(),
            "alike": int((self.busy_ns >= busy_ns * _SAME).sum()),
        }
