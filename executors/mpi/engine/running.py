"""The started plans of this thread: who waits for one of them pushes the others on, too.

Ranks may wait for several plans in different orders. A rank that advanced only the one it
waits for would keep others from completing the one that they wait for.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Advancing(Protocol):
    """An engine whose plan was started and has not completed."""

    @property
    def is_running(self) -> bool:
        """Return whether a start has not completed yet."""

    @property
    def n_left(self) -> int:
        """Return how many tasks the start has left."""

    @property
    def is_in_background(self) -> bool:
        """Return whether a thread has the start, which nobody else can advance."""

    def advance(self) -> bool:
        """Go on without blocking and without a watch; return whether everything is done."""


class _Running(threading.local):
    """Started engines; plans of another thread are that thread's to advance."""

    def __init__(self) -> None:
        self.engines: list[Advancing] = []


this_thread = _Running()
"""What this thread has started and not seen completed."""


def note_start(engine: Advancing) -> None:
    """Let others' waits advance an engine from now on, if it has anything left to do."""
    if engine.is_running:
        this_thread.engines.append(engine)


def note_end(engine: Advancing) -> None:
    """Forget an engine that has completed or failed."""
    if engine in this_thread.engines:
        this_thread.engines.remove(engine)


def advance_others(engine: Advancing) -> int:
    """Advance all started engines but the one that is waited for; forget the completed.

    Returns
    -------
    int
        How many tasks they have left.
    """
    n_left = 0
    for other in this_thread.engines.copy():
        if other is not engine:
            if other.advance():
                note_end(other)
            n_left += other.n_left
    return n_left
