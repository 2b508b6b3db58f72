"""The one base of all errors users can cause."""

from __future__ import annotations


class CollplanError(Exception):
    """A mistake that the user can mend; one line for each: subject, problem, way out."""


class SpecError(CollplanError):
    """A spec that does not describe a plan; a line for each mistake."""
