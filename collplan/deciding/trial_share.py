"""Share of time that trials of plans may take, as users give it."""

from __future__ import annotations

from math import inf
from typing import Any, Final

from collplan.specs.errors import CollplanError, show_value

SHARE: Final = 0.1
"""Default time limit of trials, as a fraction of the time of native calls of the same signature."""
TRIALS: Final = "COLLPLAN_TRIALS"
"""Environment variable that replaces `SHARE`; 0 for no trials."""


def parse_share(given: Any, name: str) -> float:
    """Return a share of time for trials as a number.

    Parameters
    ----------
    given : object
        Number, or its text.
    name : str
        Parameter or environment variable that gives it, for the message.

    Raises
    ------
    CollplanError
        If the share is not a finite number of at least 0.
    """
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < inf:
        raise CollplanError(
            f"{name} is {show_value(given)}; give the share of time that they may take, such as "
            f"{SHARE}, or 0 for none"
        )
    return number
