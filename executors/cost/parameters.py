"""What a network costs, as the flat tables that the compiled kernel reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from specs import Link, Network

Floats = npt.NDArray[np.float64]

LINK_CLASSES: Final = ("core", "numa", "node", "network")
CONTINUATION: Final = len(LINK_CLASSES)
"""Row of the table of links for what follows the first piece of a message between nodes."""
L, o, g, G, O, OFFLOAD, LAST = range(7)  # noqa: E741 - LogGPS's own letters
"""Columns of the table of links."""
HANDSHAKE, BURST, COPY, REDUCE, STRIDED, UNCACHED, MEMORY, MISS, SWITCH = range(9)
"""Entries of the table of costs."""


def link_table(network: Network) -> Floats:
    """Return what links cost: a row a class, then one for pieces that follow.

    Columns are L, o, g, G, O (ns), 1 where adapters write memory, and o again:
    what is left to do when a message's last byte is there.
    """

    def row(link: Link) -> tuple[float, ...]:
        costs = link.L_ns, link.o_ns, link.g_ns, link.G_ns_per_byte, link.O_ns_per_byte
        return *costs, link.offload, link.o_ns

    rows = [row(getattr(network, name)) for name in LINK_CLASSES]
    latency, overhead, *rest = row(network.network)
    return np.array([*rows, (latency + overhead, 0, *rest)], dtype=np.float64)


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
        ),
        dtype=np.float64,
    )
