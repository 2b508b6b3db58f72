"""Use of the links between adapters by a plan: bytes per link, and the busiest links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from collplan.executors.cost.flows import Routes
from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.topology.links import GLOBAL, LINK_CLASSES

REACHES: Final = ("switch", "group", "global")
"""Reaches of messages between nodes: behind one switch, inside a group, or between groups."""
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
        """Number of bytes over every link."""
        routes = self.routes
        sizes = np.repeat(routes.n_bytes, csr.lengths_of(routes.begin))
        n_bytes = np.bincount(routes.links, sizes, minlength=routes.fabric.n_links)
        return n_bytes.astype(np.float64)

    @cached_property
    def busy_ns(self) -> Floats:
        """Transfer time of all bytes over every link in ns, a lower bound of the makespan."""
        return np.asarray(self.n_bytes / self.routes.fabric.bandwidth * 1e9)

    @property
    def bytes_by_class(self) -> dict[str, float]:
        """Return the bytes over all links of each class; a message counts once per link."""
        fabric = self.routes.fabric
        totals = np.bincount(fabric.link_class, self.n_bytes, minlength=len(LINK_CLASSES))
        return dict(zip(LINK_CLASSES, totals.tolist(), strict=True))

    @property
    def bytes_by_reach(self) -> dict[str, float]:
        """Return the bytes of messages behind one switch, inside a group, and between groups."""
        routes, fabric = self.routes, self.routes.fabric
        one, other = routes.source, routes.target
        is_far = fabric.node_group[one] != fabric.node_group[other]
        is_near = fabric.node_switch[one] == fabric.node_switch[other]
        reach = np.where(is_far, 2, np.where(is_near, 0, 1))
        totals = np.bincount(reach, routes.n_bytes, minlength=len(REACHES))
        return dict(zip(REACHES, totals.tolist(), strict=True))

    @property
    def halves(self) -> tuple[float, float, float]:
        """Return a lower bound of the time that messages between two halves of the nodes take.

        The halves are the first and the second half of the nodes in the order of groups.

        Returns
        -------
        n_bytes : float
            Bytes of messages between groups from one half to the other, in the direction that
            takes longer.
        bandwidth : float
            Total bandwidth, in bytes per second, of the links by which these messages leave their
            groups.
        bound_ns : float
            Quotient of both in ns. With these routes, the makespan cannot be shorter, because
            each of these messages uses one of these links. The links are not a minimum cut of the
            topology.
        """
        routes, fabric = self.routes, self.routes.fabric
        order = np.argsort(fabric.node_group, kind="stable")
        is_late = csr.inverse(order) >= len(order) // 2
        message = csr.row_numbers(routes.begin)
        is_global = fabric.link_class[routes.links] == GLOBAL
        worst = (0.0, 0.0, 0.0)
        for side in (False, True):
            crosses = (is_late[routes.source] == side) & (is_late[routes.target] != side)
            # If a group lies in both halves, messages inside it use no link between groups.
            hops = np.flatnonzero(is_global & crosses[message])
            leaving, first = np.unique(message[hops], return_index=True)
            links = np.unique(routes.links[hops[first]])
            rate = float(fabric.bandwidth[links].sum())
            n_bytes = float(routes.n_bytes[leaving].sum())
            if rate > 0 and n_bytes / rate * 1e9 > worst[2]:
                worst = (n_bytes, rate, n_bytes / rate * 1e9)
        return worst

    def messages_over(self, link: int) -> Ints:
        """Return the messages with bytes that use a link.

        Parameters
        ----------
        link : int
            Number of the link in the fabric.

        Returns
        -------
        ndarray of int64
            Messages, numbered as in `routes`.
        """
        found = csr.row_numbers(self.routes.begin)[self.routes.links == link]
        return np.asarray(found[self.routes.n_bytes[found] > 0])

    def busiest(self, most: int) -> list[int]:
        """Return at most `most` links that carry bytes, in descending order of busy time.

        Parameters
        ----------
        most : int
            Largest number of links to return.

        Returns
        -------
        list of int
            Numbers of links in the fabric.
        """
        order = np.argsort(-self.busy_ns, kind="stable")[:most]
        return [link for link in order.tolist() if self.n_bytes[link] > 0]

    def report(self, makespan_ns: float) -> dict[str, Any]:
        """Return the use of links, ready for JSON.

        Parameters
        ----------
        makespan_ns : float
            Makespan of the plan in ns, to which the utilization of the busiest link refers.

        Returns
        -------
        dict
            `n_links` and `n_used`; `bytes_by_class` and `bytes_by_reach`, as the properties
            return them; `busiest`, which is None if no message has bytes; and `halves` with
            `bytes`, `bandwidth_B_per_s` and `bound_s`. Entries of `busiest` are `link`, `class`,
            `bytes`, `bandwidth_B_per_s`, `busy_s` (the quotient), `utilisation` (its share of the
            makespan), `messages` (their number), `senders` and `receivers` (ranks), and `alike`
            (the number of links that are as busy).
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
