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
        Number of pairs of ranks that use the busiest adapter.
    """

    network: Network
    n_pairs: int = 0

    @property
    def latency_ns(self) -> float:
        """Latency of a message in ns: o + L, and the time to read its queue pair."""
        link = self.network.network
        return link.o_ns + link.L_ns + self.read_ns

    @property
    def burst_ns(self) -> float:
        """Time in ns that the first bytes of an idle lane save, as they pass at once."""
        return self.network.burst_bytes * self.network.network.G_ns_per_byte

    def core_ns(self, n_bytes: Floats) -> Floats:
        """Return the time in ns for which a message holds the core at either end in any case."""
        link = self.network.network
        works = link.o_ns + np.maximum(n_bytes - 1, 0) * link.O_ns_per_byte
        return np.asarray(works + self.packets_ns(n_bytes))

    def packets_ns(self, n_bytes: Floats | Ints) -> Floats:
        """Return the time in ns for which further packets hold the core at either end."""
        nic = self.network.nic
        if nic is None or nic.transport != "ud":
            return np.zeros(len(n_bytes))
        return np.asarray((np.maximum(1, np.ceil(n_bytes / nic.packet_bytes)) - 1) * nic.packet_ns)

    def arrival_ns(self, n_bytes: Floats, slowness: Floats | float = 1.0) -> Floats:
        """Return the time in ns for which a message holds the receiver's core; see `lane_ns`."""
        link, works = self.network.network, self.core_ns(n_bytes)
        if link.offload:
            return works
        per_byte = link.G_ns_per_byte * slowness
        return np.maximum(works, link.o_ns + np.maximum(n_bytes - 1, 0) * per_byte)

    def lane_ns(self, n_bytes: Floats, slowness: Floats | float = 1.0) -> Floats:
        """Return the time in ns for which a message holds a lane at either end.

        Bytes take `slowness` times as long as on the fastest lane.
        """
        link = self.network.network
        per_byte = link.G_ns_per_byte * slowness
        return np.asarray(link.g_ns + np.maximum(n_bytes - 1, 0) * per_byte)

    @property
    def reading_ns(self) -> float:
        """Time in ns for which reading a queue pair holds the sending lane."""
        nic = self.network.nic
        return 0.0 if nic is None else self.read_ns / nic.reads_at_once

    def asking_ns(self, n_bytes: Floats | Ints) -> Floats:
        """Return the time in ns of the handshake of a message above the eager limit."""
        link = self.network.network
        asks = self.network.handshake & (n_bytes > self.network.eager_limit_bytes)
        return np.asarray(np.where(asks, 2 * (link.o_ns + link.L_ns), 0.0))

    @property
    def read_ns(self) -> float:
        """Return the time in ns to read a message's queue pair, if the adapter does not hold it."""
        nic = self.network.nic
        if nic is None:
            return 0.0
        if nic.transport == "dc":
            return nic.reconnect_ns
        is_missing = nic.transport == "rc" and self.n_pairs > nic.connections
        return nic.miss_ns if is_missing else 0.0
