"""Topologies of the network: fat trees, dragonflies, tori, and graphs of switches."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from collplan.specs.syntax.base import SpecModel
from collplan.specs.topology.base import MAX_HOSTS, TopologyModel
from collplan.specs.topology.dragonfly import Dragonfly
from collplan.specs.topology.fat_tree import FatTree
from collplan.specs.topology.graph import Graph
from collplan.specs.topology.torus import Torus

__all__ = [
    "MAX_HOSTS",
    "TOPOLOGIES",
    "Dragonfly",
    "FatTree",
    "Graph",
    "Topology",
    "TopologyModel",
    "Torus",
]

TOPOLOGIES: Final[dict[str, type[SpecModel]]] = {
    "fat_tree": FatTree,
    "dragonfly": Dragonfly,
    "torus": Torus,
    "graph": Graph,
}
Topology = Annotated[FatTree | Dragonfly | Torus | Graph, Field(discriminator="kind")]
"""A topology of one of these kinds."""
