"""Non-blocking collectives by plans: decided, made and started without asking other ranks.

MPI promises that such a call does not wait for others. So all that takes others is made when
the communicator is, and what is run depends on what all ranks have asked for so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from time import perf_counter
from typing import Any, ClassVar, Final

from mpi4py import MPI

from collplan.compiling_together import compile_together
from collplan.dropin.arguments import Arguments, Kind
from collplan.dropin.blocking import BlockingPlans
from collplan.dropin.calls import CollectiveCall, VectorCall
from collplan.dropin.config import Config
from collplan.dropin.decisions import native_decision
from collplan.dropin.loading import as_loaded
from collplan.dropin.nonblocking_setup import NonBlockingSetup
from collplan.dropin.observation import Observation
from collplan.dropin.plan_cache import PlanCache
from collplan.dropin.routes import Route
from collplan.dropin.shared_plans import Made, SharedPlans, load_program
from collplan.dropin.staging import Staged, stage
from collplan.dropin.vector_agreement import UNREADABLE
from collplan.dropin.vector_arguments import VectorArguments, read_vector_arguments
from collplan.executors.mpi.binding.agreement import DOING
from collplan.executors.mpi.binding.instances import (
    Copy,
    LocalProgram,
    SharedProgram,
    SharedStart,
)
from collplan.executors.mpi.engine.in_flight import Board, Flight, board
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.loop.reductions import is_compiled
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.planner import compile_plan
from collplan.planner.collective.operations import get_operation
from collplan.progress_places import policy_of
from collplan.rank_counts import RankCounts
from collplan.specs import COLLECTIVES, CollplanError, PlanSpec
from collplan.specs.request import MESSAGES
from collplan.splitting import KINDS, program_of, split_for, split_levels, with_cores
from collplan.tune.sweep import Placement
from collplan.tune.table import Decision

LEAST_BYTES: Final = 1 << 20
"""From which size on plans are started without blocking, where nobody says another."""
LEAST_GAIN_S: Final = 150e-6
"""Least gain per call, by the table, that pays for starting a plan without blocking. On two
ranks of Open MPI, waiting for an allreduce of 1 MiB took 133 µs more than the blocking plan."""
NOT_KNOWN: Final = "non-blocking: ranks would have to meet to know each other's counts"
NOT_MADE: Final = "non-blocking: the communicator was made by a call that waits for nobody"
NOT_PREPARED: Final = "shares memory, which the next blocking call or prepare() makes"


def _advancing(name: str, advance: Callable[[Board, Flight], object]) -> Callable[..., Any]:
    """Return a method of requests that advances the plan before it does what MPI's does."""
    native = getattr(MPI.Request, name)
    waits = advance is Board.wait

    @wraps(native)
    def method(self: PlannedRequest, status: MPI.Status | None = None) -> Any:
        if self and self.flight is not None:
            if waits and self.observation is not None:
                self.observation.note(perf_counter() - self.started_s)
                self.observation = None
            advance(board(), self.flight)
        return native(self, status)

    return method


class PlannedRequest(MPI.Request):
    """A request of MPI's for a plan; who waits for it here advances the plan himself."""

    flight: Flight | None = None
    observation: Observation | None = None
    """The notes of times from starts to first waits."""
    started_s: float = 0.0
    Wait, wait = _advancing("Wait", Board.wait), _advancing("wait", Board.wait)
    Test, test = _advancing("Test", Board.test), _advancing("test", Board.test)


@dataclass(slots=True, eq=False)
class Started:
    """A start that MPI has not let go of, and what must live as long."""

    number: int
    copy: Copy | SharedStart
    staged: Staged | None
    given: Any

    def let_go(self) -> None:
        """Forget the caller's memory, which the program needs no more."""
        if self.staged is not None and self.staged.datatype is not None:
            self.staged.datatype.Free()
        self.staged = self.given = None


class NonBlockingPlans(PlanCache):
    """Programs of a communicator, and those of them that are in flight.

    Parameters
    ----------
    comm : MPI.Intracomm
        Native; the ranks.
    config : Config
        Operations, limits, and where calls are counted.
    setup : NonBlockingSetup
        Where messages go, and what was found out together beforehand.
    blocking : BlockingPlans
        Of the same communicator; in their next call ranks make the memory that they share.
    """

    is_blocking: ClassVar[bool] = False

    def __init__(
        self,
        comm: MPI.Intracomm,
        config: Config,
        setup: NonBlockingSetup,
        blocking: BlockingPlans,
    ) -> None:
        super().__init__(comm, setup.table, config)
        # Made together beforehand: later, nobody may wait for others.
        self._private, self._placement = setup.comm, Placement.of_nodes(setup.rank_to_node)
        self.setup = setup
        self._in_flight: deque[Started] = deque()
        self._n_started = 0
        self._n_before_reaping = 1
        self._blocking = blocking
        self.shared = SharedPlans(blocking, self._share)
        self._observed: dict[CollectiveCall, Observation] = {}
        self._overlapping = {
            sweep.collective
            for sweep in setup.table.sweeps
            if sweep.complete and sweep.computation_s is not None
        }

    def run_staged(self, route: Route, arguments: Arguments, given: Any) -> MPI.Request:
        """Start a route's program with copies of the buffers that it cannot use in place."""
        staged = stage(route, arguments, self.rank, is_held=True)
        return self.run(route, *staged.addresses, given, staged)

    def free(self) -> None:
        """Wait for all that is in flight, and free all programs."""
        while self._in_flight:
            started = self._in_flight.popleft()
            board().wait(started.copy.flight)
            started.let_go()
            started.copy.free()
        # All ranks have started the same calls, and so the same agreements.
        for observation in self._observed.values():
            observation.end()
        self._observed.clear()
        super().free()
        self.shared.free()

    def why_native(self, call: CollectiveCall) -> str | None:
        """Return why a call runs natively whatever the table says; None if it need not."""
        if reason := super().why_native(call):
            return reason
        # No thread can run Python, whatever part of a reduction is this rank's.
        if call.op is not None and not is_compiled(get_operation(call.op), call.dtype):
            return f"non-blocking: {call.op} on {call.element} has no compiled form"
        kind = COLLECTIVES[call.kind].regular or call.kind
        return self._why_too_small(call, is_measured=kind in self._overlapping)

    def _why_too_small(self, call: CollectiveCall, *, is_measured: bool) -> str | None:
        """Return why starting a plan of this size does not pay, unless that was measured."""
        if is_measured and self.config.nonblocking_from is None:
            return None
        n_blocks = self.size if COLLECTIVES[call.kind].has_blocks else 1
        least = self.config.nonblocking_from
        least = LEAST_BYTES if least is None else least
        if call.n_bytes * n_blocks < least:
            return f"non-blocking: below {least} bytes a plan gains too little"
        return None

    def decide(self, call: CollectiveCall) -> Decision:
        """Return what the table says of a call, and whether that pays here."""
        decision = super().decide(call)
        is_measured = decision.computation_s is not None
        if reason := self._why_too_small(call, is_measured=is_measured):
            return native_decision(reason)
        if decision.choice.transport != MESSAGES:
            decision = native_decision(f"{decision.label}: non-blocking, no plan passes messages")
        elif not is_measured and not self._pays(decision):
            decision = native_decision(
                f"non-blocking: {decision.label} gains less than starting it so costs"
            )
        if decision.choice.native and not is_measured:
            return self._through_memory(call) or decision
        return decision

    def _pays(self, decision: Decision) -> bool:
        """Return whether a decision is native, or gains more than starting a plan so costs."""
        if decision.choice.native or self.config.nonblocking_from is not None:
            return True
        return decision.gain_s is not None and decision.gain_s > LEAST_GAIN_S

    def _through_memory(self, call: CollectiveCall) -> Decision | None:
        """Return the table's plan through shared memory, if it can be asked for and pays."""
        if isinstance(call, VectorCall) or not self.shared.may_ask(call):
            return None
        assert self.config.table is not None
        found = self.config.table.decide(
            call.kind, call.n_bytes, self.size, self.placement, call.commutes
        )
        is_shared = found.choice.transport != MESSAGES
        return found if is_shared and self._pays(found) else None

    def _decide_route(self, call: CollectiveCall) -> Route:
        made = self.shared.made.get(call)
        if made is None or made.program is None:
            return super()._decide_route(call)
        self._make_room()
        row = self._row(call, made.decision, planned=True)
        return self._keep(Route(call, row, None, made.program, *made.used))

    def _share(self, call: CollectiveCall, decision: Decision) -> Made:
        """Make a plan through shared memory, and have later calls run by it; collective."""
        program: SharedProgram | None = None
        try:
            comm = self._blocking.private
            with as_loaded():
                spec = self._spec(call, decision)
                plan = compile_together(spec, comm, [])
                program = made = SharedProgram(plan, comm)
                used = self._used_bytes(call, spec, plan)
                roll_call = RollCall(comm, None, DOING)
                roll_call.together(lambda: load_program(made, used))
        except Exception as error:  # on all ranks
            if program is not None:
                program.free()
            failed = self._failed_route(call, decision, one_line(error))
            self._replace(call, failed)
            return Made(decision)
        self._replace(call, None)
        return Made(decision, program, used)

    def _replace(self, call: CollectiveCall, by: Route | None) -> None:
        """Have calls take another route, None for one to decide; plans give way to plans only."""
        route = self._decided.get(call)
        if route is None or (by is not None and route.native is None):
            return
        for key in route.keys:
            self.ready.pop(key, None)
        if by is not None:
            self._decided[call] = by
            return
        del self._decided[call]
        if route.native is None:
            self._drop(route)

    def find_vector(
        self, kind: Kind, sendbuf: Any, recvbuf: Any, recvcounts: Any, op: MPI.Op | None, root: int
    ) -> tuple[Route | str, VectorArguments | None]:
        """Return how a call runs whose counts differ per rank, see `PlanCache`.

        Ranks do not meet, so only calls in which each knows the counts of all can be planned.
        """
        if reason := self.why_no_sweep(kind.name):
            return reason, None
        knows_all = not kind.traits.is_pairwise and not kind.traits.is_rooted
        if not knows_all or (kind.traits.has_op and recvcounts is None):
            return NOT_KNOWN, None
        name = None if op is None else self.config.operations.get(op.handle)
        try:
            arguments = read_vector_arguments(
                kind, sendbuf, recvbuf, recvcounts, root, self.rank, self.size
            )
        except Exception:  # mpi4py is to say what is wrong
            return UNREADABLE, None
        sizes = arguments.counts.counts
        assert sizes is not None
        known = RankCounts(kind.name, sizes)
        n_bytes = -(-int(sizes.sum()) // self.size)
        call = VectorCall(kind.name, n_bytes, root, name, arguments.element, known.digest(), known)
        return self._route(call), arguments

    def _spec(self, call: CollectiveCall, decision: Decision) -> PlanSpec:
        """Return the spec of a plan, on the cores that there are where its progress is placed."""
        spec = super()._spec(call, decision)
        n_spare = self.setup.places.n_spare
        return with_cores(spec, n_spare) if decision.computation_s is not None else spec

    def _collective_of(self, call: CollectiveCall) -> Any:
        """Return the collective of a call, of which each rank knows all."""
        if not isinstance(call, VectorCall):
            return call.collective()
        assert call.counts.counts is not None
        return call.collective_of(call.counts.counts)

    def _make_route(self, call: CollectiveCall, decision: Decision) -> Route:
        """Return a route with a program; where the spec allows no plan, it does so on no rank."""
        is_shared = decision.choice.transport != MESSAGES
        shared = decision if is_shared else self._through_memory(call)
        if shared is not None:
            self.shared.ask(call, shared)
        if is_shared:
            why = f"non-blocking: {decision.label} {NOT_PREPARED}"
            return self._native_route(call, native_decision(why, decision.native_s))
        begin = perf_counter()
        try:
            with as_loaded():
                spec = self._spec(call, decision)
                plan = compile_plan(spec, rank=self.rank)
        except CollplanError as error:
            return self._failed_route(call, decision, str(error))
        # Errors from here on, such as a lack of memory, are raised on this rank only, as in MPI.
        with as_loaded():
            program = program_of(plan, spec, self.private, decision.computation_s)
        self._make_room()
        row = self._row(call, decision, planned=True)
        row.seconds += perf_counter() - begin
        used = self._used_bytes(call, spec, plan)
        route = self._keep(Route(call, row, None, program, *used))
        route.place = self.setup.places.of(policy_of(spec))
        if call.kind in KINDS and self.setup.places.n_spare:
            known = self._observed.setdefault(call, Observation())
            self._split(route, known.agreed_s)
        return route

    def _split(self, route: Route, computation_s: float | None) -> None:
        """Split a route's tree beside what ranks compute, where the model says so."""
        if computation_s is None or not isinstance(route.program, LocalProgram):
            return
        plan, n_spare = route.program.plan, self.setup.places.n_spare
        spec = plan.spec
        assert spec is not None, "it was compiled from one"
        split = split_for(plan, spec, n_spare, computation_s)
        if split is None:
            return
        try:
            with as_loaded():
                plan = compile_plan(split, rank=self.rank)
                program = program_of(plan, split, self.private, computation_s)
        except CollplanError:  # passes that belong after the split; on all ranks
            return
        route.program.close()
        route.program = program
        row = route.row
        why = f"{row.why}, {split_levels(split)} levels on ranks' cores beside computation"
        route.row = self.config.statistics.row(
            row.collective,
            row.ran,
            why,
            row.ranks,
            route.call.n_bytes,
            planned=True,
            native_s=row.native_s,
            chosen_s=row.chosen_s,
        )

    def run(
        self, route: Route, sent_at: int, received_at: int, given: Any, staged: Staged | None = None
    ) -> MPI.Request:
        """Start a route's program on memory at two addresses; return a request of MPI's."""
        assert route.program is not None
        self._reap()
        n_spaces = self.setup.n_tag_spaces
        for started in self._in_flight:
            if started.number > self._n_started - n_spaces:
                break
            board().wait(started.copy.flight)
        observation = self._observed.get(route.call)
        if observation is not None and observation.count(self.private):
            self._split(route, observation.agreed_s)
        copy = route.program.take(sent_at, received_at)
        space = self._n_started % n_spaces
        board().stay_on(route.place)
        finish = None if staged is None else staged.finish
        request = PlannedRequest(copy.start(space, finish))
        request.flight = copy.flight
        if observation is not None and observation.agreed_s is None:
            request.observation, request.started_s = observation, perf_counter()
        number, self._n_started = self._n_started, self._n_started + 1
        self._in_flight.append(Started(number, copy, staged, given))
        return request

    def _reap(self) -> None:
        """Take back copies that MPI has let go of, now and then."""
        if len(self._in_flight) < self._n_before_reaping:
            return
        left: deque[Started] = deque()
        for started in self._in_flight:
            if started.copy.flight.is_done:
                started.let_go()
            if started.copy.flight.is_freed:
                started.copy.give_back()
            else:
                left.append(started)
        self._in_flight = left
        self._n_before_reaping = 2 * len(left) + 1
