"""Messages inside a node as copies through memory its ranks share."""

from __future__ import annotations

from collplan.planner.sharing.program import Program, canonical_order
from collplan.planner.sharing.rewrite import share_messages

__all__ = ["Program", "canonical_order", "share_messages"]
