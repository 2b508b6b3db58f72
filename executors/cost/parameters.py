"""Costs of a network: LogGPS parameters as text, and the tables that compiled code reads."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from collplan.executors.cost.tables import Records
from collplan.specs import Link, Network, Nic, SpecError
from collplan.specs.errors import show_value
from collplan.specs.machines.network import LINKS

NETWORK, CONTINUATION = 3, 4
"""Rows of the table of links for messages between nodes, and for their pieces after the first."""
LINK: Final = np.dtype([(name, "f8") for name in ("L", "o", "g", "G", "O", "offload", "last")])
_NO_NIC: Final = Nic(connections=1, miss_ns=0)
"""Placeholder for an adapter that holds all queue pairs and therefore reads none."""


def link_table(network: Network) -> Records:
    """Return the costs of links, one row per class and one for pieces after the first.

    Fields are L, o, g, G and O in ns; `offload`, which is 1 if adapters write to memory; and
    `last`, the overhead that remains when the last byte of a message has arrived. Between nodes,
    o includes the first packet of a message.

    Parameters
    ----------
    network : Network

    Returns
    -------
    ndarray of LINK, shape (5,)
        Rows in the order of `LINKS`, then the row `CONTINUATION`.
    """
    rows: list[tuple[float, ...]] = []
    for name in LINKS:
        link: Link = getattr(network, name)
        overhead = link.o_ns + (packet_cost(network) if name == "network" else 0.0)
        passing = (link.g_ns, link.G_ns_per_byte, link.O_ns_per_byte)
        rows.append((link.L_ns, overhead, *passing, link.offload, overhead))
    latency, overhead, *rest = rows[-1]
    return np.array([*rows, (latency + overhead, 0, *rest)], dtype=LINK)


def packet_cost(network: Network) -> float:
    """Return the cost of a packet between nodes on the cores at both ends, in ns.

    Parameters
    ----------
    network : Network

    Returns
    -------
    float
        0 if adapters do not send unreliable datagrams.
    """
    nic = network.nic
    return nic.packet_ns if nic is not None and nic.transport == "ud" else 0.0


def cost_table(network: Network) -> Records:
    """Return the costs of handshakes, memory, adapters and switches in a table of one row.

    Parameters
    ----------
    network : Network

    Returns
    -------
    ndarray of records, shape (1,)
        Times in ns, costs of data in ns per byte, and the size of packets in bytes.
    """
    nic = network.nic or _NO_NIC
    costs = {
        "handshake": network.handshake,
        "burst": network.burst_bytes * network.network.G_ns_per_byte,
        "copy": network.copy_ns_per_byte,
        "reduce": network.reduce_ns_per_byte,
        "strided": network.strided_ns_per_byte,
        "uncached": network.uncached_ns_per_byte,
        "memory": network.memory_ns_per_byte,
        "miss": nic.miss_ns,
        # Rounding keeps whole numbers of ns exact.
        "switch": round(network.switch_s * 1e9, 6),
        "reconnect": nic.reconnect_ns,
        "at_once": nic.reads_at_once,
        "packet": packet_cost(network),
        "packet_bytes": nic.packet_bytes,
    }
    return np.array([tuple(costs.values())], dtype=[(name, "f8") for name in costs])


_EXAMPLE: Final = "L=2500,o=1500,g=1000,G=6,O=0,S=65535"
_BYTES: Final = {letter: f"{letter}_ns_per_byte" for letter in "GO"}
_FIELDS: Final = {letter: f"{letter}_ns" for letter in "Log"} | _BYTES
"""Field of a link by letter."""


class Loggps:
    """The parameters of the LogGPS model.

    They are the latency ``L``, the overhead per message ``o``, the gap between messages ``g``,
    the gap per byte ``G``, the overhead per byte ``O`` (all in ns), and the eager limit ``S``
    in bytes.
    """

    letters: Final = (*_FIELDS, "S")

    @staticmethod
    def parse(text: str) -> Network:
        """Return a network whose links all have the given parameters, and whose copies are free.

        Parameters
        ----------
        text : str
            All six parameters, like ``L=2500,o=1500,g=1000,G=6,O=0,S=65535``.

        Raises
        ------
        SpecError
            If a letter is unknown, missing, given twice or not a number. The message names it.

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
                    f"loggps: {show_value(item.strip())} is not a parameter; "
                    f"give L, o, g, G, O and S, like {_EXAMPLE}"
                )
            if letter in values:
                raise SpecError(f"loggps: {letter} is given twice; give it once, like {_EXAMPLE}")
            values[letter] = _number(letter, number)
        missing = [letter for letter in Loggps.letters if letter not in values]
        if missing:
            raise SpecError(f"loggps: {', '.join(missing)} missing; give all, like {_EXAMPLE}")
        link = Link.model_validate({name: values[letter] for letter, name in _FIELDS.items()})
        costs = {"copy_ns_per_byte": 0.0, "reduce_ns_per_byte": 0.0}
        limit = {"eager_limit_bytes": int(values["S"])}
        return Network.model_validate(dict.fromkeys(LINKS, link) | costs | limit)


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
