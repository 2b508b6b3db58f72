"""Waits of a rank by polling, with sleeps between polls, and the time waited."""

from __future__ import annotations

import os
import time
from typing import Final

LONGEST_STEP_S: Final = 1.0
"""Longest time in seconds that is counted between two looks at the clock.

A longer time means that the process was stopped or did not wait.
"""
EAGER_POLLS: Final = 200
"""Number of polls before a waiting rank sleeps between polls."""
SHORTEST_SLEEP_S: Final = 20e-6
SLEEP_S: Final = 500e-6
"""Default limit of the sleep between polls, in seconds."""
IDLE_SLEEP_S: Final = 50e-6
"""Sleep of an idle engine between polls in seconds, per rank on a shared core."""
LONGEST_IDLE_SLEEP_S: Final = 400e-6
"""Longest sleep of an idle engine between polls, in seconds."""
_SLEEP_SHARE: Final = 1 / 8
"""Ratio of the sleep between polls to the time that a rank has waited."""


class Wait:
    """A wait of this process for other processes.

    Parameters
    ----------
    longest_sleep_s : float
        Limit in seconds of the sleeps between polls, which grow with the time waited.
    longest_step_s : float
        Longest time in seconds that is counted between two looks at the clock.

    Attributes
    ----------
    waited_s : float
        Time waited in seconds, without times in which the process was stopped.
    """

    def __init__(
        self, longest_sleep_s: float = SLEEP_S, longest_step_s: float = LONGEST_STEP_S
    ) -> None:
        self._longest_sleep_s, self._longest_step_s = longest_sleep_s, longest_step_s
        self._n_polls = 0
        self.begin()

    def begin(self) -> float:
        """Start to count the time waited; return the clock time in seconds."""
        self.waited_s, self._seen_s = 0.0, time.monotonic()
        return self._seen_s

    def look(self) -> float:
        """Count the time since the last look; return the clock time in seconds."""
        now = time.monotonic()
        self.waited_s += min(now - self._seen_s, self._longest_step_s)
        self._seen_s = now
        return now

    def pause(self) -> float:
        """Yield the core or sleep between two polls; return the clock time afterwards."""
        self._n_polls += 1
        if self._n_polls < EAGER_POLLS:
            os.sched_yield()
        else:
            sleep_s = SHORTEST_SLEEP_S + self.waited_s * _SLEEP_SHARE
            time.sleep(min(self._longest_sleep_s, sleep_s))
        return self.look()


def sleep_between_polls(ranks_per_core: float) -> float:
    """Return the sleep of an idle rank between polls in seconds; 0 if no ranks share cores."""
    return min(LONGEST_IDLE_SLEEP_S, ranks_per_core * IDLE_SLEEP_S) if ranks_per_core > 1 else 0.0
