"""Rounding of durations to whole numbers."""

from __future__ import annotations

from typing import Final

NEARLY_ONE: Final = 1 - 1e-12
"""Factor before ``ceil``, so that rounding errors of a product do not count as one more."""
