"""Levels of a machine: the places that decompositions take as their nodes."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

LevelName = Literal["node", "numa", "switch", "group"]
"""A level by name: NUMA domains, nodes, and in a topology the hosts of a switch, and of a group."""


def _read_level(value: Any) -> Any:
    return "switch" if value == "rack" else value


Level = Annotated[LevelName, BeforeValidator(_read_level)]
"""A level as specs write it, where ``rack`` stands for the hosts of a switch."""

NETWORK_LEVELS: Final[tuple[LevelName, ...]] = ("group", "switch")
"""Levels of the network, the coarsest first."""


def noun_of(level: LevelName) -> str:
    """Return what messages call a level.

    Examples
    --------
    >>> noun_of("numa"), noun_of("switch")
    ('NUMA domain', 'switch')
    """
    return "NUMA domain" if level == "numa" else level
