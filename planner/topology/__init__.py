"""Links of topologies, and routes over them."""

from __future__ import annotations

from collplan.planner.topology.fabric import Fabric, fabric_of

__all__ = ["Fabric", "fabric_of"]
