"""Loads of the links of a topology: what messages between nodes carry over each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.topology import Fabric


@dataclass(frozen=True, eq=False)
class LinkLoads:
    """Routes of messages, and how long each link takes for a byte.

    Parameters
    ----------
    message : ndarray of int64
        The message that crosses a link, for every link of every route.
    link : ndarray of int64
        That link.
    ns_per_byte : ndarray of float64
        Of the same link.
    latency_ns : ndarray of float64
        What the links of its route add to the latency of every message.
    """

    message: Ints
    link: Ints
    ns_per_byte: Floats
    latency_ns: Floats

    @classmethod
    def of(cls, fabric: Fabric, source: Ints, dest: Ints, lane: Ints) -> LinkLoads:
        """Return the loads of messages between nodes; those within a node have no route."""
        begin, link = fabric.node_routes(source, dest, lane)
        message = csr.row_numbers(begin)
        latency: Floats = np.zeros(len(source))
        latency += np.bincount(message, fabric.latency_ns[link], minlength=len(source))
        link = link.astype(np.int64)
        return cls(message, link, 1e9 / fabric.bandwidth[link], latency)

    def most_ns(self, turn: Ints, n_turns: int, n_bytes: Ints | Floats) -> Floats:
        """Return how long the busiest link is busy in every turn, and, last, in all together.

        Parameters
        ----------
        turn : ndarray of int64
            The phase or round of every message.
        n_turns : int
        n_bytes : ndarray
            Bytes of every message.

        Returns
        -------
        ndarray of float64, shape (n_turns + 1,)

        Examples
        --------
        >>> one_link = np.zeros(2, dtype=np.int64)
        >>> loads = LinkLoads(np.arange(2), one_link, np.full(2, 0.5), np.zeros(2))
        >>> loads.most_ns(np.array([0, 1]), 2, np.array([10, 30]))
        array([ 5., 15., 20.])
        """
        busy_ns = self.ns_per_byte * n_bytes[self.message]
        most = np.zeros(n_turns + 1)
        if not len(busy_ns):
            return most
        n_links = int(self.link.max()) + 1
        keys, place = np.unique(turn[self.message] * n_links + self.link, return_inverse=True)
        np.maximum.at(most, keys // n_links, np.bincount(place, busy_ns))
        most[-1] = np.bincount(self.link, busy_ns).max()
        return most
