"""Plans through shared memory for non-blocking calls: asked for there, made when ranks meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collplan.compiling_together import compile_together
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.loading import as_loaded
from collplan.dropin.plan_cache import BlockingPlans, Used
from collplan.dropin.routes import ALIGNMENT, aligned_memory
from collplan.executors.mpi.binding.agreement import DOING
from collplan.executors.mpi.binding.instances import SharedProgram
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.tune.table import Decision

MOST: Final = 8
"""Most plans through shared memory for the non-blocking calls of a communicator."""


@dataclass(frozen=True, slots=True)
class Made:
    """A program that ranks have made, or why they have none.

    Parameters
    ----------
    decision : Decision
        What it was made by.
    program : SharedProgram or None
    used : tuple of int
        How this rank's program uses its buffers.
    error : str
        In one line, where there is no program.
    """

    decision: Decision
    program: SharedProgram | None = None
    used: Used = (1, 0, 0, 0)
    error: str = ""


class SharedPlans:
    """Plans through shared memory that non-blocking calls of a communicator have asked for.

    All ranks have asked for the same when they come to a blocking call, as they make calls in
    the same order. They make the plans there.

    Parameters
    ----------
    blocking : BlockingPlans
        Of the same communicator.
    on_made : callable
        Told of a call whose plan was made, or could not be.
    """

    def __init__(
        self, blocking: BlockingPlans, on_made: Callable[[CollectiveCall, Made], None]
    ) -> None:
        self._blocking, self._on_made = blocking, on_made
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
            made = self.made[call] = self._make(call, decision)
            self._on_made(call, made)

    def free(self) -> None:
        """Free all plans, of which no start is in flight; collective."""
        self._asked.clear()
        self._blocking.errand = None
        while self.made:
            _, made = self.made.popitem()
            if made.program is not None:
                made.program.free()

    def _make(self, call: CollectiveCall, decision: Decision) -> Made:
        blocking, program = self._blocking, None
        try:
            comm = blocking.private
            with as_loaded():
                spec = blocking.spec_of(call, decision)
                plan = compile_together(spec, comm, [])
                program = found = SharedProgram(plan, comm)
                used = blocking.used_bytes(call, spec, plan)
                RollCall(comm, None, DOING).together(lambda: _load(found, used))
        except Exception as error:  # on all ranks
            if program is not None:
                program.free()
            return Made(decision, error=one_line(error))
        return Made(decision, program, used)


def _load(program: SharedProgram, used: Used) -> None:
    _, sent, received, _ = used
    _memory, sent_at = aligned_memory(sent + received + ALIGNMENT)
    program.load(sent_at, sent_at + sent + -sent % ALIGNMENT)
