"""What a network costs, as the flat tables the simulator's kernel reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from specs import Link, Network

Floats = npt.NDArray[np.float64]

LINK_CLASSES: Final = ("core", "numa", "node", "network")
L, o, g, G, O, OFFLOAD = range(6)  # noqa: E741 - LogGPS's own letters
"""Columns of the table of links."""
EAGER, HANDSHAKE, COPY, REDUCE, STRIDED, UNCACHED, MEMORY, MISS = range(8)
"""Entries of the table of costs."""


def link_table(network: Network) -> Floats:
    """Return L, o, g, G and O (ns), and 1 where adapters write memory: a row a class of link."""

    def row(link: Link) -> tuple[float, ...]:
        return link.L_ns, link.o_ns, link.g_ns, link.G_ns_per_byte, link.O_ns_per_byte, link.offload

    return np.array([row(getattr(network, name)) for name in LINK_CLASSES], dtype=np.float64)


def cost_table(network: Network) -> Floats:
    """Return the eager limit, whether long messages ask first, and what memory and NIC cost."""
    return np.array(
        (
            network.eager_limit_bytes,
            network.handshake,
            network.copy_ns_per_byte,
            network.reduce_ns_per_byte,
            network.strided_ns_per_byte,
            network.uncached_ns_per_byte if network.cache_bytes is not None else 0.0,
            network.memory_ns_per_byte,
            0.0 if network.nic is None else network.nic.miss_ns,
        ),
        dtype=np.float64,
    )
