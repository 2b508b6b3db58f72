"""Costs of a network: LogGPS's parameters on a line, and the tables that compiled code reads."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from collplan.specs import Link, Network, SpecError

Floats = npt.NDArray[np.float64]

LINK_CLASSES: Final = ("core", "numa", "node", "network")
NETWORK, CONTINUATION = 3, 4
"""Rows of the table of links: messages between nodes, and what follows their first piece."""
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


_EXAMPLE: Final = "L=2500,o=1500,g=1000,G=6,O=0,S=65535"


class Loggps:
    """The parameters of the LogGPS model: letters and what they mean.

    ``L`` latency, ``o`` overhead of a message, ``g`` gap between messages, ``G``
    gap a byte, ``O`` overhead a byte (all ns), ``S`` the eager limit in bytes.
    """

    letters: Final = ("L", "o", "g", "G", "O", "S")

    @staticmethod
    def parse(text: str) -> Network:
        """Return a network whose links all have the parameters in `text`, and free copies.

        Parameters
        ----------
        text : str
            All six letters, like ``L=2500,o=1500,g=1000,G=6,O=0,S=65535``.

        Raises
        ------
        SpecError
            Naming the letter that is unknown, missing, doubled or no number.

        Examples
        --------
        >>> Loggps.parse("L=2500,o=1500,g=1000,G=6,O=0,S=65535").network.L_ns
        2500.0
        """
        values: dict[str, float] = {}
        for item in text.split(","):
            letter, equals, number = (part.strip() for part in item.partition("="))
            if letter not in Loggps.letters or not equals:
                raise SpecError(
                    f"loggps: {item.strip()!r} is not a parameter; give L, o, g, G, O and S, "
                    f"like {_EXAMPLE}"
                )
            if letter in values:
                raise SpecError(f"loggps: {letter} is given twice; give it once, like {_EXAMPLE}")
            values[letter] = _number(letter, number)
        missing = [letter for letter in Loggps.letters if letter not in values]
        if missing:
            raise SpecError(f"loggps: {', '.join(missing)} missing; give all, like {_EXAMPLE}")
        link = Link(
            L_ns=values["L"],
            o_ns=values["o"],
            g_ns=values["g"],
            G_ns_per_byte=values["G"],
            O_ns_per_byte=values["O"],
        )
        return Network(
            core=link,
            numa=link,
            node=link,
            network=link,
            eager_limit_bytes=int(values["S"]),
            copy_ns_per_byte=0.0,
            reduce_ns_per_byte=0.0,
        )


def _number(letter: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise SpecError(f"loggps: {letter}={text} must be a number from 0, like {_EXAMPLE}")
    if letter == "S" and value != int(value):
        raise SpecError(f"loggps: S={text} must be whole bytes, like {_EXAMPLE}")
    return value
