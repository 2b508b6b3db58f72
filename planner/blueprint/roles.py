"""Roles: where the components of a plan run, as its phases are labelled."""

from __future__ import annotations


def role_of(label: str) -> str:
    """Return the role of a phase by what it is called, as ``node`` of ``node bcast/linear``."""
    role, _, rest = label.partition(" ")
    return role if rest else ""


def is_inside(name: str, role: str) -> bool:
    """Return whether a role is another or inside it, as ``node.row`` in ``node``."""
    return name == role or name.startswith(f"{role}.")
