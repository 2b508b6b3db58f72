"""Levels of a machine: the places that decompositions take as their nodes."""

from __future__ import annotations

from typing import Final, Literal

Level = Literal["node", "numa", "switch", "group", "rack"]
"""A level by name: those of the network exist where it has a topology with such places."""

NETWORK_LEVELS: Final[tuple[Level, ...]] = ("group", "rack", "switch")
"""Levels of the network, the coarsest first."""


def noun_of(level: Level) -> str:
    """Return what messages call a level."""
    return "NUMA domain" if level == "numa" else level
