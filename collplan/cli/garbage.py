"""Python's search for unreachable cycles of objects, which commands do rarely.

Imports create tens of thousands of objects that live as long as the process. Python's default is to
look through them again and again while they are created, which takes about an eighth of the
processor time of a short command.
"""

from __future__ import annotations

import gc
from typing import Final

_RARE: Final = 50_000
"""Number of new objects after which a command searches the youngest ones."""


def collect_rarely() -> None:
    """Search after many new objects only, as suits a command."""
    gc.set_threshold(_RARE, *gc.get_threshold()[1:])
