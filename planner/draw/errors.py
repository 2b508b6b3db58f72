"""What can be wrong with a picture."""

from __future__ import annotations

from collplan.specs.errors import CollplanError


class DrawError(CollplanError):
    """A picture that cannot be drawn: its file's name, the view, or no renderer."""
