"""Waits of a rank by polls: how it sleeps between them, and how long it has waited awake."""

from __future__ import annotations

import os
import time
from typing import Final

LONGEST_STEP_S: Final = 1.0
"""Longest time that counts between two looks: a process may be stopped, or compute."""
EAGER_POLLS: Final = 200
"""Polls in a row before a rank that waits for others sleeps between polls."""
SHORTEST_SLEEP_S: Final = 20e-6
SLEEP_S: Final = 500e-6
"""Longest sleep between polls, by default."""
IDLE_SLEEP_S: Final = 50e-6
"""Sleep of an idle engine between polls in seconds, per rank on a shared core."""
LONGEST_IDLE_SLEEP_S: Final = 400e-6
"""Longest sleep of an idle engine between polls, in seconds."""
_SLEEP_SHARE: Final = 1 / 8
"""Sleep between polls as a share of the time that a rank has waited."""


class Wait:
    """One wait of this process for others.

    Parameters
    ----------
    longest_sleep_s : float
        Limit of the sleeps between polls, which grow with the time waited.
    longest_step_s : float
        Longest time that counts between two looks at the clock.

    Attributes
    ----------
    waited_s : float
        Time waited, without times in which the process was stopped.
    """

    def __init__(
        self, longest_sleep_s: float = SLEEP_S, longest_step_s: float = LONGEST_STEP_S
    ) -> None:
        self._longest_sleep_s, self._longest_step_s = longest_sleep_s, longest_step_s
        self._n_polls = 0
        self.begin()

    def begin(self) -> float:
        """Count the time waited from now on, which is returned."""
        self.waited_s, self._seen_s = 0.0, time.monotonic()
        return self._seen_s

    def look(self) -> float:
        """Count the time since the last look; return the time of this one."""
        now = time.monotonic()
        self.waited_s += min(now - self._seen_s, self._longest_step_s)
        self._seen_s = now
        return now

    def pause(self) -> float:
        """Leave the core to others between two polls; return the time after that."""
        self._n_polls += 1
        if self._n_polls < EAGER_POLLS:
            os.sched_yield()
        else:
            sleep_s = SHORTEST_SLEEP_S + self.waited_s * _SLEEP_SHARE
            time.sleep(min(self._longest_sleep_s, sleep_s))
        return self.look()


def sleep_between_polls(ranks_per_core: float) -> float:
    """Return how long an idle rank sleeps between polls, in s: not at all on a core of its own."""
    return min(LONGEST_IDLE_SLEEP_S, ranks_per_core * IDLE_SLEEP_S) if ranks_per_core > 1 else 0.0
