"""What can go wrong before a command runs on an emulated cluster."""

from __future__ import annotations

from collplan.specs.errors import CollplanError


class EmulationError(CollplanError):
    """A cluster that cannot be: badly described, or not possible on this machine."""
