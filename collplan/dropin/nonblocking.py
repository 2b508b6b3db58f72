"""Non-blocking collectives by plans, which each rank chooses, makes and starts by itself.

A non-blocking call must not wait for other ranks. Therefore all collective steps take place when
the communicator is created, and decisions depend only on calls that all ranks make in the same
order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from time import perf_counter
from typing import Any, ClassVar, Final

from mpi4py import MPI

from collplan.api.rank_counts import RankCounts
from collplan.dropin.arguments import Arguments, Kind
from collplan.dropin.blocking import BlockingPlans
from collplan.dropin.calls import CollectiveCall, VectorCall
from collplan.dropin.config import Config
from collplan.dropin.decisions import native_decision
from collplan.dropin.nonblocking_setup import NonBlockingSetup
from collplan.dropin.observation import Observation
from collplan.dropin.plan_cache import PlanCache
from collplan.dropin.routes import Route
from collplan.dropin.shared_plans import Made, SharedPlans, load_program
from collplan.dropin.staging import Staged, stage
from collplan.dropin.started_decisions import (
    NOT_PREPARED,
    decide_either,
    decide_shared,
    why_too_small,
)
from collplan.dropin.vector_arguments import VectorArguments
from collplan.executors.mpi.binding.agreement import DOING
from collplan.executors.mpi.binding.instances import (
    LocalProgram,
    ProgramInstance,
    SharedProgram,
    SharedStart,
)
from collplan.executors.mpi.engine.in_flight import Board, Flight, board
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.loop.reductions import is_compiled
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.planner.collective.operations import get_operation
from collplan.planner.compiler.compile import compile_plan, prove_spec
from collplan.programs.compiling_together import compile_together
from collplan.programs.progress_places import policy_of
from collplan.programs.splitting import (
    KINDS,
    program_of,
    split_for,
    split_levels,
    why_split,
    with_cores,
)
from collplan.specs import COLLECTIVES, CollplanError, PlanSpec
from collplan.specs.request import MESSAGES
from collplan.tune.sweep import NodePlacement
from collplan.tune.table import Decision

NOT_KNOWN: Final = "non-blocking: ranks would have to meet to know each other's counts"


def _advancing(name: str, advance: Callable[[Board, Flight], object]) -> Callable[..., Any]:
    """Return a method of requests that advances the plan, then calls mpi4py's method `name`."""
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
    """A generalized request of MPI for a started plan; its methods advance the plan.

    Attributes
    ----------
    flight : Flight or None
        Execution of the started program.
    observation : Observation or None
        Observation that records the time from the start of the call to the first wait.
    started_s : float
        Clock time of the start in seconds.
    """

    flight: Flight | None = None
    observation: Observation | None = None
    started_s: float = 0.0
    Wait, wait = _advancing("Wait", Board.wait), _advancing("wait", Board.wait)
    Test, test = _advancing("Test", Board.test), _advancing("test", Board.test)


@dataclass(slots=True, eq=False)
class Started:
    """A started program whose request MPI has not freed yet, and all objects that it uses.

    Parameters
    ----------
    number : int
        Number of the start on this communicator, counted from 0.
    copy : ProgramInstance or SharedStart
        Copy of the program's state.
    staged : Staged or None
        Copies of the caller's buffers, if the program uses any.
    given : object
        Arguments of the call, which keep the buffers alive.
    """

    number: int
    copy: ProgramInstance | SharedStart
    staged: Staged | None
    given: Any

    def release(self) -> None:
        """Release the buffers of the caller, and copies of them, after the program has ended."""
        if self.staged is not None and self.staged.datatype is not None:
            self.staged.datatype.Free()
        self.staged = self.given = None


class NonBlockingPlans(PlanCache):
    """Programs of a communicator for non-blocking calls, and the programs that were started.

    Parameters
    ----------
    comm : MPI.Intracomm
        Native communicator of the ranks.
    config : Config
        Operations, limits and statistics.
    setup : NonBlockingSetup
        Setup that all ranks have made together.
    blocking : BlockingPlans
        Blocking plans of the same communicator. The next blocking call makes the shared-memory
        plans that non-blocking calls have requested.

    Attributes
    ----------
    shared : SharedPlans
        Shared-memory plans that calls have requested.
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
        # Creating these in a non-blocking call would wait for other ranks.
        self._private, self._placement = setup.comm, NodePlacement.of_nodes(setup.rank_to_node)
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
        """Start the program of a route with copies of buffers that it cannot use directly."""
        staged = stage(route, arguments, self.rank, is_held=True)
        return self.run(route, *staged.addresses, given, staged)

    def free(self) -> None:
        """Wait for all programs in flight, and free all programs."""
        while self._in_flight:
            started = self._in_flight.popleft()
            board().wait(started.copy.flight)
            started.release()
            started.copy.free()
        # All ranks have started the same calls, and therefore the same allreduces of observations.
        for observation in self._observed.values():
            observation.end()
        self._observed.clear()
        super().free()
        for call in self.shared.requested:
            self._decided.pop(call, None)  # later calls request the plan again
        self.shared.free()

    def prepare(self) -> None:
        """Make the shared-memory plans that calls have requested; collective."""
        self.shared.make()

    def why_native(self, call: CollectiveCall) -> str | None:
        """Return the reason why no plan can run a call; None if one can."""
        if reason := super().why_native(call):
            return reason
        # The progress thread cannot call Python, and any rank may take part in the reduction.
        if call.op is not None and not is_compiled(get_operation(call.op), call.dtype):
            return f"non-blocking: {call.op} on {call.element} has no compiled form"
        kind = COLLECTIVES[call.kind].regular or call.kind
        least, is_measured = self.config.nonblocking_from, kind in self._overlapping
        return why_too_small(call, self.size, least, is_measured=is_measured)

    def decide(self, call: CollectiveCall) -> Decision:
        """Return the decision for a call; native if a start costs more than the plan gains."""
        assert self.table is not None, "without a table, `why_native` has a reason"
        least = self.config.nonblocking_from
        return decide_either(self.table, call, self.placement, self._through_memory(call), least)

    def _through_memory(self, call: CollectiveCall) -> Decision | None:
        """Return the decision for a shared-memory plan.

        Return None if no such plan may be requested, or if it does not pay.
        """
        if not self.shared.may_request(call):
            return None
        assert self.config.table is not None
        table, least = self.config.table, self.config.nonblocking_from
        return decide_shared(table, call, self.placement, least)

    def _decide_route(self, call: CollectiveCall) -> Route:
        """Return the route of a new call, with a shared-memory plan if one has been made for it."""
        made = self.shared.made.get(call)
        if made is None or made.program is None:
            return super()._decide_route(call)
        self._make_room()
        row = self._row(call, made.decision, planned=True)
        return self._keep(Route(call, row, None, made.program, *made.used))

    def _share(self, call: CollectiveCall, decision: Decision) -> Made:
        """Make a shared-memory plan for later calls; collective.

        If any rank fails, later calls run natively, unless they already have a plan.
        """
        program: SharedProgram | None = None
        try:
            comm = self._blocking.private
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
        """Replace the route of a call.

        Parameters
        ----------
        call : CollectiveCall
        by : Route or None
            Native route, which does not replace a route with a plan; None to let the next call
            decide again.
        """
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
        """Return the route of a call whose counts differ per rank.

        Ranks cannot meet in a non-blocking call. Plans therefore only run calls in which each
        rank passes the counts of all ranks. Parameters and results are those of
        `PlanCache.find_vector`.
        """
        has_all_counts = not kind.traits.is_pairwise and not kind.traits.is_rooted
        if not has_all_counts or (kind.traits.has_op and recvcounts is None):
            return NOT_KNOWN, None
        name = None if op is None else self.config.operations.get(op.handle)
        arguments = self.read_vector(kind, sendbuf, recvbuf, recvcounts, op, root)
        if arguments is None:
            return self.uncounted(kind), None
        sizes = arguments.counts.counts
        assert sizes is not None
        known = RankCounts(kind.name, sizes)
        n_bytes = -(-int(sizes.sum()) // self.size)
        call = VectorCall(kind.name, n_bytes, root, name, arguments.element, known.digest(), known)
        return self._route(call), arguments

    def _spec(self, call: CollectiveCall, decision: Decision) -> PlanSpec:
        """Return the spec of a plan.

        If the decision is for calls that overlap computation, the machine of the spec includes
        the spare cores of nodes, on which the progress is placed.
        """
        spec = super()._spec(call, decision)
        n_spare = self.setup.places.n_spare
        return with_cores(spec, n_spare) if decision.computation_s is not None else spec

    def _collective_of(self, call: CollectiveCall) -> Any:
        """Return the collective to plan for a call; each rank knows the counts of all ranks."""
        if not isinstance(call, VectorCall):
            return call.collective()
        assert call.counts.counts is not None
        return call.collective_of(call.counts.counts)

    def _make_route(self, call: CollectiveCall, decision: Decision) -> Route:
        """Return a route with a program; a native route on all ranks if the spec has no plan."""
        is_shared = decision.choice.transport != MESSAGES
        shared = decision if is_shared else self._through_memory(call)
        if shared is not None:
            self.shared.request(call, shared)
        if is_shared:
            why = f"non-blocking: {decision.label} {NOT_PREPARED}"
            return self._native_route(call, native_decision(why, decision.native_s))
        try:
            spec = self._spec(call, decision)
            prove_spec(spec)
            plan = compile_plan(spec, rank=self.rank)
        except CollplanError as error:
            return self._failed_route(call, decision, str(error))
        # As in MPI, later errors, such as a lack of memory, are raised on this rank only.
        program = program_of(plan, spec, self.private, decision.computation_s)
        self._make_room()
        row = self._row(call, decision, planned=True)
        used = self._used_bytes(call, spec, plan)
        route = self._keep(Route(call, row, None, program, *used))
        route.place = self.setup.places.of(policy_of(spec))
        if call.kind in KINDS and self.setup.places.n_spare:
            known = self._observed.setdefault(call, Observation())
            self._split(route, known.agreed_s)
        return route

    def _split(self, route: Route, computation_s: float | None) -> None:
        """Split the tree of a plan between cores of ranks and communication cores.

        The plan remains unchanged if the cost model predicts no gain.

        Parameters
        ----------
        route : Route
        computation_s : float or None
            Computation time per rank during a call in seconds; None if it is unknown.
        """
        if computation_s is None or not isinstance(route.program, LocalProgram):
            return
        plan, n_spare = route.program.plan, self.setup.places.n_spare
        spec = plan.spec
        assert spec is not None, "the plan was compiled from a spec"
        split = split_for(plan, spec, n_spare, computation_s)
        if split is None:
            return
        try:
            prove_spec(split)
            plan = compile_plan(split, rank=self.rank)
            program = program_of(plan, split, self.private, computation_s)
        except CollplanError:  # on all ranks, if a pass of the spec cannot follow the split
            return
        route.program.close()
        route.program = program
        row = route.row
        why = why_split(row.why, split_levels(split))
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
        """Start the program of a route, and return its request.

        The other parameters are those of `PlanCache.run`.

        Parameters
        ----------
        staged : Staged, optional
            Copies of buffers to which the addresses belong, if any.
        """
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
        """Make copies of programs reusable if MPI has freed their requests.

        The method does this only when the number of copies has doubled since the last time, so
        that its cost per call is small.
        """
        if len(self._in_flight) < self._n_before_reaping:
            return
        left: deque[Started] = deque()
        for started in self._in_flight:
            if started.copy.flight.is_done:
                started.release()
            if started.copy.flight.is_freed:
                started.copy.give_back()
            else:
                left.append(started)
        self._in_flight = left
        self._n_before_reaping = 2 * len(left) + 1
