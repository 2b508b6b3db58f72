"""Fields of all topologies: levels of links, with rates and latencies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema

from collplan.specs.errors import show_value
from collplan.specs.syntax.base import SpecModel, raise_together
from collplan.specs.syntax.numbers import MAX_NS, RATE_SCHEMA, Nanoseconds, parse_rate, write_rates

MAX_HOSTS: Final = 2**20
MAX_LINKS: Final = 2**24
"""Greatest number of hosts and of links in a topology, as tables have an entry for each."""


def _read_rates(value: Any) -> Any:
    """Return bits per second: one number for all levels, or one for each level."""
    if isinstance(value, list | tuple):
        return tuple(map(parse_rate, value))
    return None if value is None else parse_rate(value)


def read_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _read_latencies(value: Any) -> Any:
    return read_within(
        value, "a latency", f"0 to {MAX_NS} ns", lambda number: 0 <= number <= MAX_NS
    )


def read_within(value: Any, what: str, limits: str, is_within: Callable[[float], bool]) -> Any:
    """Return a number, or a tuple of numbers; raise `ValueError` if one is not within limits."""
    for number in value if isinstance(value, list | tuple) else [value]:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not is_within(number):
            raise ValueError(f"{show_value(number)} is not {what}; give {limits}")
    return read_list(value)


Rates = Annotated[
    int | tuple[int, ...] | None,
    PlainValidator(_read_rates),
    PlainSerializer(write_rates),
    WithJsonSchema(
        {"anyOf": [RATE_SCHEMA, {"type": "array", "items": RATE_SCHEMA}, {"type": "null"}]}
    ),
]
"""Rate of all links, or one rate per level; None for the rate of the fastest lane."""
Latencies = Annotated[Nanoseconds | tuple[Nanoseconds, ...], BeforeValidator(_read_latencies)]
"""Latency of all links, or one latency per level."""


class TopologyModel(SpecModel, ABC):
    """Fields of all topologies: levels of links, and one network per lane or for all lanes.

    Parameters
    ----------
    bandwidth : rate, list of rates, or None
        Rate of every link in each direction: one for all levels, or one per level,
        beginning with the links of the hosts. None for the rate of the fastest lane.
    latency_ns : float or list of float
        Latency that each link adds to a message, in ns: one for all levels, or one per level.
    lanes : "planes" or "shared"
        Networks of the lanes: one per lane (``planes``), or a single one that all lanes share
        apart from the links of the hosts (``shared``).
    """

    bandwidth: Rates = None
    latency_ns: Latencies = 0.0
    lanes: Literal["planes", "shared"] = "planes"

    @property
    @abstractmethod
    def n_hosts(self) -> int:
        """Return the number of hosts."""

    @property
    @abstractmethod
    def n_levels(self) -> int:
        """Return the number of levels of links; each can have its own rate and latency."""

    @property
    def hosts_per_switch(self) -> tuple[int, ...]:
        """Return the number of hosts below a switch, per level; none if switches differ."""
        return ()

    @property
    def host_names(self) -> tuple[str, ...] | None:
        """Return the names of the hosts; None if they have only numbers."""
        return None

    def level_rates(self, lane: float) -> tuple[float, ...]:
        """Return the rate of the links of every level in bytes per second.

        Parameters
        ----------
        lane : float
            Rate of the lane in bytes per second, which links have if no bandwidth is given.
        """
        if isinstance(self.bandwidth, tuple):
            return tuple(rate / 8 for rate in self.bandwidth)
        return (lane if self.bandwidth is None else self.bandwidth / 8,) * self.n_levels

    @property
    def level_latencies(self) -> tuple[float, ...]:
        """Return the latency of the links of every level, in ns."""
        if isinstance(self.latency_ns, tuple):
            return self.latency_ns
        return (self.latency_ns,) * self.n_levels

    def _check(self) -> None:
        raise_together(self._problems())

    def _problems(self) -> Iterator[str]:
        for name in ("bandwidth", "latency_ns"):
            given = getattr(self, name)
            if isinstance(given, tuple) and len(given) != self.n_levels:
                yield (
                    f"{name} lists {len(given)} levels of links, the topology has "
                    f"{self.n_levels}; give one value for all, or {self.n_levels}"
                )
        if self.n_hosts > MAX_HOSTS:
            yield f"has {self.n_hosts} hosts; give {MAX_HOSTS} or fewer"
