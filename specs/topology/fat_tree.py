"""Fat trees: every switch is linked to all of its parents."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from collplan.specs.syntax.numbers import REAL, Natural, Positive
from collplan.specs.topology.base import MAX_LINKS, TopologyModel, read_within

MAX_RATIO: Final = 1e6
_SAME: Final = 1e-9
"""Relative difference up to which two rates or two numbers of ports count as equal."""


def _read_ratios(value: Any) -> Any:
    if value is None:
        return None
    return read_within(value, "a ratio", "more than 0", lambda number: 0 < number <= MAX_RATIO)


Ratio = Annotated[float, Field(gt=0, le=MAX_RATIO), REAL]


class FatTree(TopologyModel):
    """A tree of switches with several roots: every child is linked to all of its parents.

    The switches of level 1 have hosts as children. A switch of level i has ``down[i - 1]``
    children and ``up[i]`` parents, as in Zahavi's parallel ports generalized fat trees.

    Parameters
    ----------
    down : tuple of int
        Number of children of a switch, per level, from level 1 up.
    up : tuple of int or None
        Number of parents of a host, which is 1, and then of a switch, per level below the
        top. None for the numbers that follow from `oversubscription`.
    oversubscription : float, tuple of float or None
        Total rate of the links down from a switch, divided by that of its links up: one
        number for level 1, or one per level below the top. If `up` is also given, the rates
        of the links up follow from both.
    routing : "d_mod_k" or "ecmp"
        Choice of the parent on the way up: by the number of the destination (``d_mod_k``), or
        by a hash of source and destination (``ecmp``).
    seed : int
        Seed of that hash.

    Examples
    --------
    >>> tree = FatTree(down=[4, 4], oversubscription=2)
    >>> tree.n_hosts, tree.parents
    (16, (1, 2))
    """

    kind: Literal["fat_tree"] = "fat_tree"
    down: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=8)]
    up: Annotated[tuple[Positive, ...], Field(max_length=8)] | None = None
    oversubscription: Annotated[Ratio | tuple[Ratio, ...] | None, BeforeValidator(_read_ratios)] = (
        None
    )
    routing: Literal["d_mod_k", "ecmp"] = "d_mod_k"
    seed: Natural = 0

    @property
    def n_hosts(self) -> int:
        """Return the number of hosts."""
        return math.prod(self.down)

    @property
    def n_levels(self) -> int:
        """Return the number of levels of links."""
        return len(self.down)

    @property
    def hosts_per_switch(self) -> tuple[int, ...]:
        """Return the number of hosts below a switch, per level below the top, which reaches all."""
        return tuple(accumulate(self.down[:-1] or self.down, mul))

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """Number of parents of a host, and of a switch, per level below the top."""
        return self.up if self.up is not None else tuple(map(round, self._ports()))

    @property
    def _ratios(self) -> tuple[float, ...]:
        """Oversubscription of the switches, per level below the top."""
        given = self.oversubscription
        if isinstance(given, tuple):
            return given
        first = 1.0 if given is None else given
        return (first, *(1.0,) * (self.n_levels - 2))[: self.n_levels - 1]

    def _ports(self) -> tuple[float, ...]:
        """Return the numbers of links up that follow from oversubscription, without rounding."""
        rates = super().level_rates(1.0)
        return (
            1.0,
            *(
                self.down[level] * rates[level] / (ratio * rates[level + 1])
                for level, ratio in enumerate(self._ratios)
            ),
        )

    def level_rates(self, lane: float) -> tuple[float, ...]:
        """Return the rate of the links of every level in bytes per second.

        Parameters
        ----------
        lane : float
            Rate of the lane in bytes per second, which links have if no bandwidth is given.
        """
        rates = list(super().level_rates(lane))
        if self.up is None or self.oversubscription is None or isinstance(self.bandwidth, tuple):
            return tuple(rates)
        for level, ratio in enumerate(self._ratios):
            rates[level + 1] = self.down[level] * rates[level] / (ratio * self.up[level + 1])
        return tuple(rates)

    def _problems(self) -> Iterator[str]:
        shapes: list[tuple[str, tuple[float, ...] | None, int]] = [("up", self.up, self.n_levels)]
        if isinstance(self.oversubscription, tuple):
            shapes.append(("oversubscription", self.oversubscription, self.n_levels - 1))
        for name, given, n in shapes:
            if given is not None and len(given) != n:
                yield f"{name} lists {len(given)} levels, down has {self.n_levels}; give {n}"
                return
        yield from super()._problems()
        if isinstance(self.bandwidth, tuple) and len(self.bandwidth) != self.n_levels:
            return
        if self.up is not None and self.up[0] != 1:
            yield f"up begins with {self.up[0]}; a host has 1 link per lane, give [1, ...]"
            return
        yield from self._misfits()
        n_links = 2 * sum(
            math.prod(self.down[level:]) * math.prod(self.parents[: level + 1])
            for level in range(self.n_levels)
        )
        if n_links > MAX_LINKS:
            yield f"has {n_links} links; give {MAX_LINKS} or fewer, with fewer ports"

    def _misfits(self) -> Iterator[str]:
        """Yield a message per level at which ports, rates, and oversubscription contradict."""
        if self.up is not None and (
            self.oversubscription is None or not isinstance(self.bandwidth, tuple)
        ):
            return
        for level, ports in enumerate(self._ports()):
            if self.up is None and (ports < 1 - _SAME or abs(ports - round(ports)) > _SAME * ports):
                yield (
                    f"oversubscription {self._ratios[level - 1]:g} of {self.down[level - 1]} "
                    f"links down leaves {ports:g} links up from a switch of level {level}; give "
                    f"up as well, and the rate of links follows"
                )
            elif self.up is not None and abs(ports - self.up[level]) > _SAME * ports:
                yield (
                    f"up has {self.up[level]} links from a switch of level {level}, "
                    f"oversubscription and bandwidth give {ports:g}; leave one of them out"
                )
