"""Topologies of specs that are SimGrid's platforms beside the fluid cases."""

from __future__ import annotations

from typing import Any, Final

REFERENCE_TOPOLOGIES: Final[dict[str, dict[str, Any]]] = {
    "star16": {"kind": "fat_tree", "down": [16]},
    "star32": {"kind": "fat_tree", "down": [32]},
    "fattree_2to1": {"kind": "fat_tree", "down": [4, 4], "oversubscription": 2},
    "fattree_4to1": {"kind": "fat_tree", "down": [4, 4], "oversubscription": 4},
    "fattree_3level": {"kind": "fat_tree", "down": [2, 2, 4], "up": [1, 2, 2]},
    "tapered_16": {
        "kind": "fat_tree",
        "down": [4, 4],
        "up": [1, 1],
        "oversubscription": 2,
        "bandwidth": "12.5GB",
        "latency_ns": [250, 400],
    },
    "torus_4x4": {"kind": "torus", "dimensions": [4, 4]},
    "torus_3x5": {"kind": "torus", "dimensions": [3, 5]},
    "ring_4": {"kind": "torus", "dimensions": [4]},
    "dragonfly_16": {"kind": "dragonfly", "groups": 4, "routers": 4, "hosts": 1},
    "dragonfly_24": {"kind": "dragonfly", "groups": 3, "routers": 4, "hosts": 2},
}
"""By the platform's name; links have 250 ns where nothing else is stated."""


def reference_topology(name: str) -> dict[str, Any]:
    """Return the topology that is a platform of the cases."""
    return {"latency_ns": 250, **REFERENCE_TOPOLOGIES[name]}
