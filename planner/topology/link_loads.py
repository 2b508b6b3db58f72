"""Loads of the links of a topology by messages between nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.topology import Fabric


@dataclass(frozen=True, eq=False)
class LinkLoads:
    """Routes of messages, with the time per byte of each link.

    Parameters
    ----------
    message : ndarray of int64, shape (n_hops,)
        Message that crosses a link, for every link of every route.
    link : ndarray of int64, shape (n_hops,)
        The link that it crosses.
    ns_per_byte : ndarray of float64, shape (n_hops,)
        Time per byte of this link in nanoseconds.
    latency_ns : ndarray of float64, shape (n_messages,)
        Sum of the latencies of the links of every message's route in nanoseconds.
    """

    message: Ints
    link: Ints
    ns_per_byte: Floats
    latency_ns: Floats

    @classmethod
    def of(cls, fabric: Fabric, source: Ints, dest: Ints, lane: Ints) -> LinkLoads:
        """Return the loads of messages between nodes. Messages within a node have no route.

        Parameters
        ----------
        fabric : Fabric
        source, dest : ndarray of int64, shape (n_messages,)
            Nodes that send and receive every message.
        lane : ndarray of int64, shape (n_messages,)
            Lane that every message uses.
        """
        begin, link = fabric.node_routes(source, dest, lane)
        message = csr.row_numbers(begin)
        latency: Floats = np.zeros(len(source))
        latency += np.bincount(message, fabric.latency_ns[link], minlength=len(source))
        link = link.astype(np.int64)
        return cls(message, link, 1e9 / fabric.bandwidth[link], latency)

    def most_ns(self, turn: Ints, n_turns: int, n_bytes: Ints | Floats) -> Floats:
        """Return the time of the busiest link in every turn and in all turns together.

        Parameters
        ----------
        turn : ndarray of int64, shape (n_messages,)
            Phase or round of every message.
        n_turns : int
            Number of phases or rounds.
        n_bytes : ndarray, shape (n_messages,)
            Bytes of every message.

        Returns
        -------
        ndarray of float64, shape (n_turns + 1,)
            Times in nanoseconds. The last one is that of the busiest link of all turns together.

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
        most[-1] = self.busiest_ns(n_bytes)
        return most

    def busiest_ns(self, n_bytes: Ints | Floats) -> float:
        """Return the time in nanoseconds that the busiest link takes for all messages.

        Parameters
        ----------
        n_bytes : ndarray, shape (n_messages,)
            Bytes of every message.
        """
        busy_ns = self.ns_per_byte * n_bytes[self.message]
        return float(np.bincount(self.link, busy_ns).max(initial=0.0))

    def chain_ns(self, turn: Ints, n_bytes: Ints, ends: tuple[Ints, Ints]) -> float:
        """Return the time at which the last rank finishes, if ranks do not wait between turns.

        A message begins when both of its ranks have finished their preceding turns. It takes as
        long as the busiest link of its route takes for all messages of the turn.

        Parameters
        ----------
        turn : ndarray of int64, shape (n_messages,)
            Round of every message.
        n_bytes : ndarray, shape (n_messages,)
            Bytes of every message.
        ends : tuple of ndarray of int64, shape (n_messages,) each
            Ranks that send and receive every message.

        Returns
        -------
        float
            Time in nanoseconds.

        Examples
        --------
        >>> links = np.array([0, 0, 1])
        >>> loads = LinkLoads(np.arange(3), links, np.full(3, 0.5), np.zeros(3))
        >>> ends = np.array([0, 1, 2]), np.array([3, 4, 5])
        >>> loads.chain_ns(np.zeros(3, dtype=np.int64), np.array([10, 20, 40]), ends)
        20.0
        """
        n_turns, n_links = (1 + int(rows.max(initial=-1)) for rows in (turn, self.link))
        done = np.zeros(1 + max(int(end.max(initial=-1)) for end in ends))
        takes = np.zeros(len(turn))
        hop_turn = turn[self.message]
        busy_ns = self.ns_per_byte * n_bytes[self.message]
        order, hop_order = (np.argsort(of, kind="stable") for of in (turn, hop_turn))
        begin, hop_begin = (
            csr.running_total(np.bincount(of, minlength=n_turns)) for of in (turn, hop_turn)
        )
        for now in range(n_turns):
            rows = order[begin[now] : begin[now + 1]]
            hops = hop_order[hop_begin[now] : hop_begin[now + 1]]
            link = self.link[hops]
            load_ns = np.bincount(link, busy_ns[hops], n_links)
            np.maximum.at(takes, self.message[hops], load_ns[link])
            source, dest = (end[rows] for end in ends)
            arrives = np.maximum(done[source], done[dest]) + takes[rows]
            np.maximum.at(done, source, arrives)
            np.maximum.at(done, dest, arrives)
        return float(done.max(initial=0.0))
