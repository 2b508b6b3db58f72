"""Levels of a machine, whose places decompositions take as their nodes."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

LevelName = Literal["node", "numa", "switch", "group"]
"""Level by name: nodes, NUMA domains, or, in a topology, hosts of a switch or of a group."""


def _read_level(value: Any) -> Any:
    return "switch" if value == "rack" else value


Level = Annotated[LevelName, BeforeValidator(_read_level)]
"""Level as written in specs, in which ``rack`` is another name of ``switch``."""

NETWORK_LEVELS: Final[tuple[LevelName, ...]] = ("group", "switch")
"""Levels of the network, from the coarsest to the finest."""


def noun_of(level: LevelName) -> str:
    """Return the noun for a place of a level in messages.

    Examples
    --------
    >>> noun_of("numa"), noun_of("switch")
    ('NUMA domain', 'switch')
    """
    return "NUMA domain" if level == "numa" else level
