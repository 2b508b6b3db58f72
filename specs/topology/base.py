"""Fields of all topologies: links of some levels, with rates and latencies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from collplan.specs.base import SpecModel, raise_together
from collplan.specs.errors import show_value
from collplan.specs.numbers import MAX_NS, Nanoseconds, Rate, parse_rate

MAX_HOSTS: Final = 2**20
MAX_LINKS: Final = 2**24
"""Most hosts and links of a topology: tables are made of all of them."""


def _read_rates(value: Any) -> Any:
    """Return bits per second: a number, or one for each level."""
    if value is None:
        return None
    rates = [parse_rate(rate) for rate in value] if isinstance(value, list | tuple) else None
    for rate in rates if rates is not None else [parse_rate(value)]:
        if rate == 0:
            raise ValueError("a link of 0 bit/s carries nothing; give more, or leave it out")
    return tuple(rates) if rates is not None else parse_rate(value)


def read_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _read_latencies(value: Any) -> Any:
    return read_within(
        value, "a latency", f"0 to {MAX_NS} ns", lambda number: 0 <= number <= MAX_NS
    )


def read_within(value: Any, what: str, limits: str, is_within: Callable[[float], bool]) -> Any:
    """Return a number or a tuple of numbers that lie within limits."""
    for number in value if isinstance(value, list | tuple) else [value]:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not is_within(number):
            raise ValueError(f"{show_value(number)} is not {what}; give {limits}")
    return read_list(value)


Rates = Annotated[Rate | tuple[Rate, ...] | None, BeforeValidator(_read_rates)]
"""The rate of all links, or of those of each level; None for as fast as the fastest lane."""
Latencies = Annotated[Nanoseconds | tuple[Nanoseconds, ...], BeforeValidator(_read_latencies)]
"""The latency of all links, or of those of each level."""


class TopologyModel(SpecModel, ABC):
    """Fields of all topologies: links of some levels, one network per lane or for all lanes.

    Parameters
    ----------
    bandwidth : rate, list of rates, or None
        Of all links in each direction, or of those of each level, from the hosts up; None
        for as fast as the fastest lane.
    latency_ns : float or list of float
        What each link adds to a message's latency.
    lanes : "planes" or "shared"
        Whether every lane has a network of its own, or all lanes share one beyond the
        hosts' own links.
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
        """Return how many levels of links have rates and latencies of their own."""

    @property
    def hosts_per_switch(self) -> int | None:
        """Return how many hosts each switch has, None where that differs."""
        return None

    @property
    def host_names(self) -> tuple[str, ...] | None:
        """Return the hosts' names, None where they have numbers only."""
        return None

    def level_rates(self, lane: float) -> tuple[float, ...]:
        """Return bytes per second of the links of every level, of lanes that have `lane`."""
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
