"""Tori and grids: hosts that are linked to their neighbors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from collplan.specs.errors import show_value
from collplan.specs.syntax.numbers import Flag, Natural, Positive
from collplan.specs.topology.base import MAX_LINKS, TopologyModel, read_list


def _read_wrap(value: Any) -> Any:
    for entry in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(entry, bool):
            raise ValueError(f"{show_value(entry)} is not true or false; give one of them")
    return read_list(value)


class Torus(TopologyModel):
    """Hosts in a grid of dimensions, each linked to its neighbors in both directions.

    Host numbers increase fastest along the first dimension. Routes follow the dimensions in
    the same order, each in the shorter direction.

    Parameters
    ----------
    dimensions : tuple of int
        Number of hosts along each dimension.
    wrap : bool or tuple of bool
        Whether the ends of a dimension are linked: one value for all, or one per dimension.
    group_dimensions : int
        Number of leading dimensions within a group: hosts whose coordinates differ only in
        these dimensions belong to the same group.
    bandwidth, latency_ns
        Rate, and latency in ns, of every link: one for all dimensions, or one per dimension.

    Examples
    --------
    >>> Torus(dimensions=[2, 3, 2, 4], group_dimensions=3).n_hosts
    48
    """

    kind: Literal["torus"] = "torus"
    dimensions: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=8)]
    wrap: Annotated[Flag | tuple[Flag, ...], BeforeValidator(_read_wrap)] = True
    group_dimensions: Natural = 0

    @property
    def n_hosts(self) -> int:
        """Return the number of hosts."""
        return math.prod(self.dimensions)

    @property
    def n_levels(self) -> int:
        """Return the number of dimensions."""
        return len(self.dimensions)

    @property
    def is_ring(self) -> tuple[bool, ...]:
        """Return whether the ends are linked, per dimension; False for two hosts or fewer."""
        wraps = self.wrap if isinstance(self.wrap, tuple) else (self.wrap,) * self.n_levels
        return tuple(wrap and size > 2 for wrap, size in zip(wraps, self.dimensions, strict=True))

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if isinstance(self.wrap, tuple) and len(self.wrap) != self.n_levels:
            yield (
                f"wrap lists {len(self.wrap)} dimensions, the torus has {self.n_levels}; give "
                f"true or false for all, or for each"
            )
        if self.group_dimensions > self.n_levels:
            yield (
                f"group_dimensions is {self.group_dimensions}, the torus has {self.n_levels} "
                f"dimensions; give {self.n_levels} or fewer"
            )
        if 2 * self.n_hosts * self.n_levels > MAX_LINKS:
            yield f"has more than {MAX_LINKS} links; give fewer hosts or dimensions"
