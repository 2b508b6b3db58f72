"""The description of an emulated cluster: nodes, ranks, lanes, and what a lane carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from collplan.specs import numbers
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
    rate_bits_per_s : int or tuple of int
        What a lane carries in each direction, headers included; or what each of them does.
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
    rate_bits_per_s: int | tuple[int, ...]
    rank_order: str | tuple[int, ...] = "block"
    striped: bool = False

    def __post_init__(self) -> None:
        for field, value, least, most in (
            ("nodes", self.nodes, 1, MAX_NODES),
            ("lanes", self.lanes, 1, MAX_LANES),
            *(("rate", rate, MIN_RATE, MAX_RATE) for rate in set(self.lane_rates)),
        ):
            if not least <= value <= most:
                unit = " bit/s" if field == "rate" else ""
                raise EmulationError(
                    f"{field}: {value}{unit} cannot be emulated; give {least} to {most}{unit}"
                )
        if len(self.lane_rates) != self.lanes:
            raise EmulationError(
                f"rate: {len(self.lane_rates)} rates for {self.lanes} lanes; give one rate, or one "
                f"for each lane"
            )

    @property
    def lane_rates(self) -> tuple[int, ...]:
        """Return the rate of every lane."""
        rates = self.rate_bits_per_s
        return (rates,) * self.lanes if isinstance(rates, int) else rates


def parse_rate(text: str) -> int:
    """Turn ``"100Mbit"`` or ``"12.5MB/s"`` into bits per second.

    Raises
    ------
    EmulationError
        If `text` is not a rate, or not a whole number of bits per second.
    """
    try:
        return numbers.parse_rate(text)
    except ValueError as error:
        raise EmulationError(f"rate: {error}") from None


def parse_rates(text: str) -> int | tuple[int, ...]:
    """Turn ``"100Mbit"`` into bits per second, or ``"100Mbit,50Mbit"`` into those of each lane.

    Raises
    ------
    EmulationError
        If one of them is not a rate.

    Examples
    --------
    >>> parse_rates("100Mbit"), parse_rates("100Mbit,12.5MB/s")
    (100000000, (100000000, 100000000))
    """
    rates = tuple(parse_rate(word) for word in text.split(","))
    return rates if len(rates) > 1 else rates[0]
