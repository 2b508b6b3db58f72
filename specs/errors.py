"""The one base of all errors users can cause."""

from __future__ import annotations


class CollplanError(Exception):
    """Something the user can mend; its text is one line: subject, problem, way out."""


class SpecError(CollplanError):
    """A spec that does not describe a plan: the field, what is wrong, the way out."""
