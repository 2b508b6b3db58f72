"""Costs of single messages between nodes: lanes, cores, packets and queue pairs of adapters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Floats, Ints
from collplan.specs import Network


@dataclass(frozen=True)
class Wire:
    """Costs of messages between nodes on a network whose adapters cache queue pairs.

    Parameters
    ----------
    network : Network
    n_pairs : int
        Pairs of ranks that talk over the busiest adapter.
    """

    network: Network
    n_pairs: int = 0

    @property
    def latency_ns(self) -> float:
        """Latency of a message: o + L, and reading its queue pair."""
        link = self.network.network
        return link.o_ns + link.L_ns + self.read_ns

    @property
    def burst_ns(self) -> float:
        """Time of an idle lane's first bytes, which pass at once."""
        return self.network.burst_bytes * self.network.network.G_ns_per_byte

    def core_ns(self, n_bytes: Floats) -> Floats:
        """Return how long a message keeps the core at either end, whoever moves its bytes."""
        link = self.network.network
        works = link.o_ns + np.maximum(n_bytes - 1, 0) * link.O_ns_per_byte
        return np.asarray(works + self.packets_ns(n_bytes))

    def packets_ns(self, n_bytes: Floats | Ints) -> Floats:
        """Return how long further packets keep the core at either end, if it makes them."""
        nic = self.network.nic
        if nic is None or nic.transport != "ud":
            return np.zeros(len(n_bytes))
        return np.asarray((np.maximum(1, np.ceil(n_bytes / nic.packet_bytes)) - 1) * nic.packet_ns)

    def arrival_ns(self, n_bytes: Floats, slowness: Floats | float = 1.0) -> Floats:
        """Return how long a message keeps the core that receives it, on a lane as of `lane_ns`."""
        link, works = self.network.network, self.core_ns(n_bytes)
        if link.offload:
            return works
        per_byte = link.G_ns_per_byte * slowness
        return np.maximum(works, link.o_ns + np.maximum(n_bytes - 1, 0) * per_byte)

    def lane_ns(self, n_bytes: Floats, slowness: Floats | float = 1.0) -> Floats:
        """Return how long a message keeps a lane at either end.

        On one that is `slowness` times as slow as the fastest, its bytes take as many times as
        long.
        """
        link = self.network.network
        per_byte = link.G_ns_per_byte * slowness
        return np.asarray(link.g_ns + np.maximum(n_bytes - 1, 0) * per_byte)

    @property
    def reading_ns(self) -> float:
        """Time for which a message's queue pair occupies the sending lane."""
        nic = self.network.nic
        return 0.0 if nic is None else self.read_ns / nic.reads_at_once

    def asking_ns(self, n_bytes: Floats | Ints) -> Floats:
        """Return how long a message above the eager limit asks before it sets out."""
        link = self.network.network
        asks = self.network.handshake & (n_bytes > self.network.eager_limit_bytes)
        return np.asarray(np.where(asks, 2 * (link.o_ns + link.L_ns), 0.0))

    @property
    def read_ns(self) -> float:
        """Return how long an adapter reads a message's queue pair, if it does not hold it."""
        nic = self.network.nic
        if nic is None:
            return 0.0
        if nic.transport == "dc":
            return nic.reconnect_ns
        is_missing = nic.transport == "rc" and self.n_pairs > nic.connections
        return nic.miss_ns if is_missing else 0.0
