"""Shared-memory plans for non-blocking calls, made during the next blocking call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collplan.dropin.blocking import BlockingPlans
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.plan_cache import Used
from collplan.dropin.routes import buffer_memory
from collplan.executors.mpi.binding.instances import SharedProgram
from collplan.tune.table import Decision

MOST: Final = 8
"""Limit of shared-memory plans for the non-blocking calls of a communicator."""


@dataclass(frozen=True, slots=True)
class Made:
    """A shared-memory program that all ranks have made together.

    Parameters
    ----------
    decision : Decision
        Decision that chose the plan.
    program : SharedProgram or None
        Program of this rank; None if any rank failed to make it.
    used : tuple of int
        Use of buffers by the program in bytes, see `Used`.
    """

    decision: Decision
    program: SharedProgram | None = None
    used: Used = (1, 0, 0, 0)


class SharedPlans:
    """Shared-memory plans that non-blocking calls of a communicator have requested.

    All ranks make calls in the same order. When they make the next blocking call, they have
    therefore requested the same plans, and make these plans in that call.

    Parameters
    ----------
    blocking : BlockingPlans
        Blocking plans of the same communicator.
    make_one : callable
        Collective function that makes the plan of a call.

    Attributes
    ----------
    requested : dict of CollectiveCall to Decision
        Decisions for plans that are requested and not made yet.
    made : dict of CollectiveCall to Made
        Results by call, including failures.
    """

    def __init__(
        self, blocking: BlockingPlans, make_one: Callable[[CollectiveCall, Decision], Made]
    ) -> None:
        self._blocking, self._make_one = blocking, make_one
        self.requested: dict[CollectiveCall, Decision] = {}
        self.made: dict[CollectiveCall, Made] = {}

    def may_request(self, call: CollectiveCall) -> bool:
        """Return whether a plan for a call can still be requested."""
        return call not in self.made and len(self.requested) + len(self.made) < MOST

    def request(self, call: CollectiveCall, decision: Decision) -> None:
        """Request that the next blocking call makes a plan, unless `may_request` is False."""
        if not self.may_request(call):
            return
        self.requested[call] = decision
        self._blocking.pending_task = self.make
        # Without routes in `ready`, the next blocking call looks its route up, and thus runs the
        # pending task, on all ranks.
        self._blocking.ready.clear()

    def make(self) -> None:
        """Make all requested plans; collective."""
        self._blocking.pending_task = None
        requested, self.requested = self.requested, {}
        for call, decision in requested.items():
            self.made[call] = self._make_one(call, decision)

    def free(self) -> None:
        """Free all plans; collective. No program may be running."""
        self.requested.clear()
        self._blocking.pending_task = None
        while self.made:
            _, made = self.made.popitem()
            if made.program is not None:
                made.program.free()


def load_program(program: SharedProgram, used: Used) -> None:
    """Build the engine of a program; raise an error if this rank has too little memory."""
    _, sent_bytes, received_bytes, _ = used
    _memory, *addresses = buffer_memory(sent_bytes, received_bytes)
    program.load(*addresses)
