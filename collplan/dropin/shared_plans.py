"""Plans through shared memory for non-blocking calls: asked for there, made when ranks meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collplan.dropin.blocking import BlockingPlans
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.plan_cache import Used
from collplan.dropin.routes import ALIGNMENT, aligned_memory
from collplan.executors.mpi.binding.instances import SharedProgram
from collplan.tune.table import Decision

MOST: Final = 8
"""Most plans through shared memory for the non-blocking calls of a communicator."""


@dataclass(frozen=True, slots=True)
class Made:
    """A program that ranks have made, or failed to.

    Parameters
    ----------
    decision : Decision
        What it was made by.
    program : SharedProgram or None
    used : tuple of int
        How this rank's program uses its buffers.
    """

    decision: Decision
    program: SharedProgram | None = None
    used: Used = (1, 0, 0, 0)


class SharedPlans:
    """Plans through shared memory that non-blocking calls of a communicator have asked for.

    All ranks have asked for the same when they come to a blocking call, as they make calls in
    the same order. They make the plans there.

    Parameters
    ----------
    blocking : BlockingPlans
        Of the same communicator.
    make_one : callable
        Makes the plan of a call; collective.
    """

    def __init__(
        self, blocking: BlockingPlans, make_one: Callable[[CollectiveCall, Decision], Made]
    ) -> None:
        self._blocking, self._make_one = blocking, make_one
        self._asked: dict[CollectiveCall, Decision] = {}
        self.made: dict[CollectiveCall, Made] = {}

    def may_ask(self, call: CollectiveCall) -> bool:
        """Return whether a plan for a call can still be asked for."""
        return call not in self.made and len(self._asked) + len(self.made) < MOST

    def ask(self, call: CollectiveCall, decision: Decision) -> None:
        """Ask for a plan, which the next blocking call makes if there are not too many."""
        if not self.may_ask(call):
            return
        self._asked[call] = decision
        self._blocking.errand = self.make
        # The next call of each kind is looked at again, by all ranks.
        self._blocking.ready.clear()

    def make(self) -> None:
        """Make what was asked for; collective."""
        self._blocking.errand = None
        asked, self._asked = self._asked, {}
        for call, decision in asked.items():
            self.made[call] = self._make_one(call, decision)

    def free(self) -> None:
        """Free all plans, of which no start is in flight; collective."""
        self._asked.clear()
        self._blocking.errand = None
        while self.made:
            _, made = self.made.popitem()
            if made.program is not None:
                made.program.free()


def load_program(program: SharedProgram, used: Used) -> None:
    """Make the engine of a program, which a rank may have no memory for."""
    _, sent, received, _ = used
    _memory, sent_at = aligned_memory(sent + received + ALIGNMENT)
    program.load(sent_at, sent_at + sent + -sent % ALIGNMENT)
