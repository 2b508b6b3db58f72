"""What a network costs, as the flat tables that the compiled kernel reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collplan.specs import Link, Network

Floats = npt.NDArray[np.float64]

LINK_CLASSES: Final = ("core", "numa", "node", "network")
CONTINUATION: Final = len(LINK_CLASSES)
"""Row of the table of links for what follows the first piece of a message between nodes."""
L, o, g, G, O, OFFLOAD, LAST = range(7)  # noqa: E741 - LogGPS's own letters
"""Columns of the table of links."""
HANDSHAKE, BURST, COPY, REDUCE, STRIDED, UNCACHED, MEMORY, MISS, SWITCH = range(9)
RECONNECT, AT_ONCE, PACKET, PACKET_BYTES = range(9, 13)
"""Entries of the table of costs."""


def link_table(network: Network) -> Floats:
    """Return what links cost: a row a class, then one for pieces that follow.

    Columns are L, o, g, G, O (ns), 1 where adapters write memory, and o again:
    what is left to do when a message's last byte is there. Between nodes o includes
    a message's first packet.
    """

    def row(link: Link, packet_ns: float = 0.0) -> tuple[float, ...]:
        overhead = link.o_ns + packet_ns
        costs = link.L_ns, overhead, link.g_ns, link.G_ns_per_byte, link.O_ns_per_byte
        return *costs, link.offload, overhead

    rows = [row(getattr(network, name)) for name in LINK_CLASSES[:-1]]
    rows.append(row(network.network, packet_cost(network)))
    latency, overhead, *rest = rows[-1]
    return np.array([*rows, (latency + overhead, 0, *rest)], dtype=np.float64)


def packet_cost(network: Network) -> float:
    """Return what a packet between nodes costs the cores at both ends, in ns."""
    nic = network.nic
    return nic.packet_ns if nic is not None and nic.transport == "ud" else 0.0


def cost_table(network: Network) -> Floats:
    """Return whether long messages ask first, and what memory, adapters and switches cost."""
    return np.array(
        (
            network.handshake,
            network.burst_bytes * network.network.G_ns_per_byte,
            network.copy_ns_per_byte,
            network.reduce_ns_per_byte,
            network.strided_ns_per_byte,
            network.uncached_ns_per_byte if network.cache_bytes is not None else 0.0,
            network.memory_ns_per_byte,
            0.0 if network.nic is None else network.nic.miss_ns,
            # Whole ns stay whole.
            round(network.switch_s * 1e9, 6),
            0.0 if network.nic is None else network.nic.reconnect_ns,
            1.0 if network.nic is None else network.nic.reads_at_once,
            packet_cost(network),
            1.0 if network.nic is None else network.nic.packet_bytes,
        ),
        dtype=np.float64,
    )
