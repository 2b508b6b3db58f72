"""Topologies as links, and routes over them by rule."""

from __future__ import annotations

from collplan.planner.topology.fabric import Fabric, fabric_of

__all__ = ["Fabric", "fabric_of"]
