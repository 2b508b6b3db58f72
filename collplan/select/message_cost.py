"""What a message between nodes takes of cores, lanes and adapters, from its bytes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collplan.specs import Network

Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Floats)


@dataclass(frozen=True)
class Wire:
    """Costs of messages between nodes on a network whose adapters serve so many queue pairs.

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
        """What passes before a message arrives: o + L, and reading its queue pair."""
        link = self.network.network
        return link.o_ns + link.L_ns + self._read_ns

    @property
    def burst_ns(self) -> float:
        """How long an idle lane's first bytes would take it, which pass at once."""
        return self.network.burst_bytes * self.network.network.G_ns_per_byte

    def core_ns(self, n_bytes: Floats) -> Floats:
        """Return how long a message keeps the core at either end, whoever moves its bytes."""
        link, nic = self.network.network, self.network.nic
        works = link.o_ns + np.maximum(n_bytes - 1, 0) * link.O_ns_per_byte
        if nic is not None and nic.transport == "ud":
            works += (np.maximum(1, np.ceil(n_bytes / nic.packet_bytes)) - 1) * nic.packet_ns
        return np.asarray(works)

    def arrival_ns(self, n_bytes: Floats) -> Floats:
        """Return how long a message keeps the core that receives it."""
        link, works = self.network.network, self.core_ns(n_bytes)
        if link.offload:
            return works
        return np.maximum(works, link.o_ns + np.maximum(n_bytes - 1, 0) * link.G_ns_per_byte)

    def lane_ns(self, n_bytes: Floats) -> Floats:
        """Return how long a message keeps a lane at either end."""
        link = self.network.network
        return np.asarray(link.g_ns + np.maximum(n_bytes - 1, 0) * link.G_ns_per_byte)

    @property
    def reading_ns(self) -> float:
        """How long a message's queue pair keeps the lane that sends it."""
        nic = self.network.nic
        return 0.0 if nic is None else self._read_ns / nic.reads_at_once

    def asking_ns(self, n_bytes: Floats) -> Floats:
        """Return how long a message above the eager limit asks before it sets out."""
        link = self.network.network
        asks = self.network.handshake & (n_bytes > self.network.eager_limit_bytes)
        return np.asarray(np.where(asks, 2 * (link.o_ns + link.L_ns), 0.0))

    @property
    def _read_ns(self) -> float:
        nic = self.network.nic
        if nic is None:
            return 0.0
        if nic.transport == "dc":
            return nic.reconnect_ns
        is_missing = nic.transport == "rc" and self.n_pairs > nic.connections
        return nic.miss_ns if is_missing else 0.0
