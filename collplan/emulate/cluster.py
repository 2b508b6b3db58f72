"""The description of an emulated cluster: nodes, ranks, lanes, and what a lane carries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from collplan.specs.errors import CollplanError


class EmulationError(CollplanError):
    """A cluster that cannot be: badly described, or not possible on this machine."""


MAX_NODES: Final = 1000
"""A switch is a Linux bridge, and that has 1,023 ports."""
MAX_LANES: Final = 64
"""UCX, which MPICH stripes with, breaks down where it finds 250 interfaces; 100 went well."""
MIN_RATE: Final = 10**4
MAX_RATE: Final = 10**11
"""Bits per second; above, tc's 32-bit limit of the queue overflows."""

_PREFIXES: Final = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
}
_RATE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG]?i?)(bit|Bit|B)(?:/s)?\s*")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes joined by lanes, with ranks on them.

    Parameters
    ----------
    nodes : int
        Number of nodes.
    ranks_per_node : int or tuple of int
        Ranks on every node, or a number for each node.
    lanes : int
        Network interfaces per node, each on a switch of its own.
    rate_bits_per_s : int
        What a lane carries in each direction, headers included.
    rank_order : "block", "cyclic" or tuple of int
        As `collplan.specs.Machine` has it.
    striped : bool
        Leave the choice of lanes to the MPI, instead of one lane per rank.

    Raises
    ------
    EmulationError
        If a number is out of bounds.
    """

    nodes: int
    ranks_per_node: int | tuple[int, ...]
    lanes: int
    rate_bits_per_s: int
    rank_order: str | tuple[int, ...] = "block"
    striped: bool = False

    def __post_init__(self) -> None:
        for field, value, least, most in (
            ("nodes", self.nodes, 1, MAX_NODES),
            ("lanes", self.lanes, 1, MAX_LANES),
            ("rate", self.rate_bits_per_s, MIN_RATE, MAX_RATE),
        ):
            if not least <= value <= most:
                unit = " bit/s" if field == "rate" else ""
                raise EmulationError(
                    f"{field}: {value}{unit} cannot be emulated; give {least} to {most}{unit}"
                )


def parse_rate(text: str) -> int:
    """Turn ``"100Mbit"`` or ``"12.5MB/s"`` into bits per second.

    Parameters
    ----------
    text : str
        A number, a prefix (k, M, G; or Ki, Mi, Gi), and ``bit`` or ``B``; ``/s`` may follow.

    Returns
    -------
    int
        Bits per second.

    Raises
    ------
    EmulationError
        If `text` is not a rate, or not a whole number of bits per second.

    Examples
    --------
    >>> parse_rate("100Mbit"), parse_rate("12.5MB/s"), parse_rate("1 Gbit/s")
    (100000000, 100000000, 1000000000)
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise EmulationError(
            f"rate: {text!r} is not a rate; give bits or bytes per second, as 100Mbit, 1Gbit "
            f"or 12.5MB/s"
        )
    bits = Fraction(match[1]) * _PREFIXES[match[2].lower()] * (8 if match[3] == "B" else 1)
    if bits.denominator != 1:
        raise EmulationError(
            f"rate: {text!r} is {float(bits):g} bit/s; give a whole number of bits per second"
        )
    return int(bits)
