"""``--loggps L=2500,o=1500,...``: one set of parameters for all links."""

from __future__ import annotations

from typing import Final

from specs import Link, Network
from specs.errors import CollplanError

DEFAULTS: Final = {"L": 2500.0, "o": 1500.0, "g": 1000.0, "G": 6.0, "O": 0.0, "S": 65535.0}
"""LogGOPSim's own defaults, in ns; S in bytes."""


def parse_loggps(text: str) -> dict[str, float]:
    """Read ``L=2500,o=1500``; what is not said keeps LogGOPSim's default.

    Raises
    ------
    CollplanError
        If a letter is unknown or a value is no number from 0.

    Examples
    --------
    >>> parse_loggps("L=100, S=0")["L"], parse_loggps("")["G"]
    (100.0, 6.0)
    """
    values = dict(DEFAULTS)
    for entry in filter(None, (part.strip() for part in text.split(","))):
        letter, equals, number = (part.strip() for part in entry.partition("="))
        if letter not in DEFAULTS or not equals:
            raise CollplanError(
                f"--loggps: {entry!r} is no parameter; give {','.join(DEFAULTS)} like L=2500"
            )
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not 0 <= value < 2**53:
            raise CollplanError(f"--loggps: {letter} is {number!r}; give a number from 0, in ns")
        values[letter] = value
    return values


def loggps_network(values: dict[str, float], base: Network) -> Network:
    """Return `base` with all links set to the same parameters; memory costs stay."""
    link = Link(
        L_ns=values["L"],
        o_ns=values["o"],
        g_ns=values["g"],
        G_ns_per_byte=values["G"],
        O_ns_per_byte=values["O"],
    )
    return base.replace(
        core=link, numa=link, node=link, network=link, eager_limit_bytes=int(values["S"])
    )
