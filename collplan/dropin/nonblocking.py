"""Non-blocking collectives by plans: decided, made and started without asking other ranks.

MPI promises that such a call does not wait for others. So all that takes others was made when
the communicator was, and what is run depends on what all ranks have asked for so far.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from mpi4py import MPI

from collplan.dropin.as_specs import collective_of, commutes, dtype_of
from collplan.dropin.call_keys import find_key
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.loading import as_loaded
from collplan.dropin.nonblocking_staging import Staged, stage
from collplan.dropin.plans import MAX_ENTRIES
from collplan.dropin.routes import ProgramRoute
from collplan.dropin.signatures import KINDS, Arguments, Kind, read_arguments, read_broadcast
from collplan.executors.mpi.binding.instances import Copy, LocalProgram
from collplan.executors.mpi.engine.in_flight import Flight, board
from collplan.executors.mpi.loop.reductions import is_compiled
from collplan.planner import compile_plan
from collplan.planner.collective.operations import get_operation
from collplan.planner.plan.plan import Buffer
from collplan.specs import CollplanError
from collplan.specs.request import MESSAGES
from collplan.tune.table import NATIVE, NATIVE_LABEL, Decision

if TYPE_CHECKING:
    from collplan.dropin.nonblocking_setup import Ground
    from collplan.dropin.plans import Plans
    from collplan.dropin.statistics import Row

LEAST_BYTES: Final = 1 << 20
"""From which size on plans are started without blocking, where nobody says another."""
LEAST_GAIN_S: Final = 150e-6
"""What a plan has to gain a call, by the table, to be started so: more than that costs. On two
ranks of Open MPI, waiting for an allreduce of 1 MiB took 133 µs more than the blocking plan."""


class PlannedRequest(MPI.Request):
    """A request of MPI's for a plan; who waits for it here advances the plan himself."""

    flight: Flight | None = None

    def Wait(self, status: MPI.Status | None = None) -> Any:
        """Wait until the collective has completed."""
        if self and self.flight is not None:
            board().wait(self.flight)
        return super().Wait(status)

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Return whether the collective has completed."""
        if self and self.flight is not None:
            board().test(self.flight)
        return super().Test(status)

    def wait(self, status: MPI.Status | None = None) -> Any:
        """Wait until the collective has completed."""
        if self and self.flight is not None:
            board().wait(self.flight)
        return super().wait(status)

    def test(self, status: MPI.Status | None = None) -> Any:
        """Return whether the collective has completed."""
        if self and self.flight is not None:
            board().test(self.flight)
        return super().test(status)


@dataclass(slots=True, eq=False)
class Started:
    """A start that MPI has not let go of, and what must live as long."""

    number: int
    program: LocalProgram
    copy: Copy
    flight: Flight
    staged: Staged | None
    given: Any

    def let_go(self) -> None:
        """Forget the caller's memory, which the program needs no more."""
        if self.staged is not None and self.staged.datatype is not None:
            self.staged.datatype.Free()
        self.staged = self.given = None


class NonBlocking:
    """Non-blocking collectives of one communicator.

    Parameters
    ----------
    plans : Plans
        The communicator's, whose rules hold here, too.
    ground : Ground
        Where messages go, and what was found out together beforehand.
    least_bytes : int or None
        From which size on plans are used, whatever they gain; None for those that gain more
        than it costs.
    """

    def __init__(self, plans: Plans, ground: Ground, least_bytes: int | None) -> None:
        self._plans, self._ground, self._least_bytes = plans, ground, least_bytes
        self._ways: dict[CollectiveCall, ProgramRoute] = {}
        self._made: OrderedDict[CollectiveCall, ProgramRoute] = OrderedDict()
        self._waiting: dict[CollectiveCall, int] = {}
        self._ready: dict[Any, ProgramRoute] = {}
        self._in_flight: deque[Started] = deque()
        self._n_started = 0
        self._n_before_reaping = 1

    def start(self, kind: Kind, native: Any, given: tuple[Any, ...]) -> MPI.Request:
        """Start a collective; return a request of MPI's.

        Parameters
        ----------
        kind : Kind
        native : callable
            mpi4py's method, bound to the communicator.
        given : tuple
            Its arguments: buffers, operation and root, as far as the collective has them.
        """
        begin = perf_counter()
        way, arguments, places = self._find(kind, given)
        request: MPI.Request
        if way is None:
            request = native(*given)  # refuses, and says why
            return request
        if way.program is None:
            request = native(*given)
        else:
            self._made.move_to_end(way.request)
            staged = None
            if places is None or not _is_usable(way, *places):
                if arguments is None:
                    arguments = self._read(kind, given)
                staged = stage(way, arguments, self._plans.rank)
                places = MPI.Get_address(staged.source), MPI.Get_address(staged.target)
            request = self._launch(way.program, *places, staged, given)
        way.row.calls += 1
        way.row.seconds += perf_counter() - begin
        return request

    def finish(self) -> None:
        """Wait for all that is in flight, and free all programs."""
        while self._in_flight:
            started = self._in_flight.popleft()
            board().wait(started.flight)
            started.let_go()
            started.copy.free()
        for way in self._made.values():
            if way.program is not None:
                way.program.close()
        self._ways.clear()
        self._made.clear()
        self._waiting.clear()
        self._ready.clear()

    def _find(
        self, kind: Kind, given: tuple[Any, ...]
    ) -> tuple[ProgramRoute | None, Arguments | None, tuple[int, int] | None]:
        """Return how a call runs, None if mpi4py is to refuse it, and what was read of it."""
        parts = split(kind, given)
        found = find_key(kind, *parts, self._plans.rank)
        if found is not None:
            way = self._ready.get(found[0])
            if way is not None:
                return way, None, found[1:]
        try:
            arguments = self._read(kind, given)
            op, root = parts[2:]
            name = None if op is None else self._plans.operations.get(op.handle)
            n_bytes, element = arguments.n_bytes, arguments.element_name
            request = CollectiveCall(kind.name, n_bytes, root, name, element)
        except Exception:
            return None, None, None
        way = self._way(request)
        is_plain = way.program is None or arguments.is_plain(way.itemsize)
        if way.is_settled and found is not None and is_plain:
            if len(self._ready) >= MAX_ENTRIES:
                self._ready.clear()
            self._ready[found[0]] = way
        return way, arguments, None

    def _read(self, kind: Kind, given: tuple[Any, ...]) -> Arguments:
        sendbuf, recvbuf, _, root = split(kind, given)
        plans = self._plans
        if not 0 <= root < plans.size:
            raise ValueError("there is no such root")
        if kind.traits.has_one_buffer:
            return read_broadcast(recvbuf, plans.rank == root)
        return read_arguments(kind, sendbuf, recvbuf, plans.size, plans.rank == root)

    def _way(self, request: CollectiveCall) -> ProgramRoute:
        found = self._ways.get(request)
        if found is not None and found.is_settled:
            return found
        if found is None:
            decision = self._decide(request)
            if decision.choice.native:
                return self._keep(request, ProgramRoute(self._row(request, decision), request))
            self._waiting[request] = self._plans.native_calls
            why = f"a plan takes time to make: {decision.label} from call "
            why += f"{self._plans.native_calls + 1} on"
            waits = Decision(NATIVE, NATIVE_LABEL, why, decision.native_s, decision.native_s)
            found = ProgramRoute(self._row(request, waits), request, is_settled=False)
            self._ways[request] = found
        if self._waiting[request]:
            self._waiting[request] -= 1
            return found
        del self._waiting[request]
        return self._keep(request, self._make(request, self._decide(request)))

    def _keep(self, request: CollectiveCall, way: ProgramRoute) -> ProgramRoute:
        if len(self._ways) >= MAX_ENTRIES:
            self._ways = dict(self._made)
            self._waiting.clear()
            self._ready.clear()
        self._ways[request] = way
        return way

    def _decide(self, request: CollectiveCall) -> Decision:
        """Return what all ranks decide alike."""
        plans, table = self._plans, self._ground.table
        reason = plans._why_native(request) or _why_not_compiled(request)
        if reason is None:
            n_blocks = plans.size if _has_blocks(request.kind) else 1
            least = LEAST_BYTES if self._least_bytes is None else self._least_bytes
            if request.n_bytes * n_blocks < least:
                reason = f"non-blocking: below {least} bytes a plan gains too little"
        if reason is not None:
            return Decision(NATIVE, NATIVE_LABEL, reason)
        is_commuting = None if request.op is None else commutes(request.op)
        decision = table.decide(
            request.kind, request.n_bytes, plans.size, self._ground.placement, is_commuting
        )
        if not decision.choice.native and decision.choice.transport != MESSAGES:
            why = f"{decision.label}: non-blocking, its windows cannot be made without waiting"
            return Decision(NATIVE, NATIVE_LABEL, why)
        if not decision.choice.native and self._least_bytes is None and not _pays(decision):
            why = f"non-blocking: {decision.label} gains less than starting it so costs"
            return Decision(NATIVE, NATIVE_LABEL, why)
        return decision

    def _make(self, request: CollectiveCall, decision: Decision) -> ProgramRoute:
        """Make a program; where the spec allows no plan, it does so on no rank."""
        plans, ground = self._plans, self._ground
        try:
            machine = ground.table.machine(ground.placement)
            spec = decision.choice.plan_spec(machine, collective_of(request))
            with as_loaded():
                plan = compile_plan(spec, rank=plans.rank)
        except CollplanError as error:
            why = f"{decision.label} cannot run here: {error}"
            return ProgramRoute(self._row(request, Decision(NATIVE, NATIVE_LABEL, why)), request)
        # What fails from here on, such as for want of memory, does so as in MPI: on this rank.
        with as_loaded():
            program = LocalProgram(plan, ground.comm)
        if len(self._made) >= plans.max_plans:
            self._drop_oldest()
        sizes = plan.buffer_sizes[plans.rank]
        itemsize = dtype_of(request).itemsize
        sent, received = (int(sizes[which]) * itemsize for which in (Buffer.SEND, Buffer.RECV))
        way = ProgramRoute(self._row(request, decision), request, program, itemsize, sent, received)
        self._made[request] = way
        return way

    def _drop_oldest(self) -> None:
        request, way = self._made.popitem(last=False)
        del self._ways[request]
        self._ready = {key: kept for key, kept in self._ready.items() if kept is not way}
        assert way.program is not None
        way.program.close()

    def _launch(
        self,
        program: LocalProgram,
        sent_at: int,
        received_at: int,
        staged: Staged | None,
        given: tuple[Any, ...],
    ) -> MPI.Request:
        self._reap()
        n_spaces = self._ground.n_tag_spaces
        for started in self._in_flight:
            if started.number > self._n_started - n_spaces:
                break
            board().wait(started.flight)
        copy = program.take()
        space = self._n_started % n_spaces
        finish = None if staged is None else staged.finish
        request = PlannedRequest(copy.start(sent_at, received_at, space, finish))
        flight = request.flight = copy.flight
        number, self._n_started = self._n_started, self._n_started + 1
        self._in_flight.append(Started(number, program, copy, flight, staged, given))
        return request

    def _reap(self) -> None:
        """Take back copies that MPI has let go of, now and then."""
        if len(self._in_flight) < self._n_before_reaping:
            return
        left: deque[Started] = deque()
        for started in self._in_flight:
            if started.flight.is_done:
                started.let_go()
            if started.flight.is_freed:
                started.program.give_back(started.copy)
            else:
                left.append(started)
        self._in_flight = left
        self._n_before_reaping = 2 * len(left) + 1

    def _row(self, request: CollectiveCall, decision: Decision) -> Row:
        return self._plans.statistics.row(
            f"I{request.kind}",
            decision.label,
            decision.why,
            self._plans.size,
            request.n_bytes,
            planned=not decision.choice.native,
            native_s=decision.native_s,
            chosen_s=decision.chosen_s,
        )


def split(kind: Kind, given: tuple[Any, ...]) -> tuple[Any, Any, MPI.Op | None, int]:
    """Return send and receive buffer, operation and root, of what a method was given."""
    if not kind.traits.has_data:
        return None, None, None, 0
    if kind.traits.has_one_buffer:
        return None, given[0], None, given[1]
    op = given[2] if kind.reduces else None
    root = given[-1] if kind.traits.is_rooted else 0
    return given[0], given[1], op, root


def _pays(decision: Decision) -> bool:
    if decision.native_s is None or decision.chosen_s is None:
        return False
    return decision.native_s - decision.chosen_s > LEAST_GAIN_S


def _why_not_compiled(request: CollectiveCall) -> str | None:
    """Return why no thread can run the reduction, whatever part of it is this rank's."""
    if request.op is None or is_compiled(get_operation(request.op), dtype_of(request)):
        return None
    return f"non-blocking: {request.op} on {request.element} has no compiled form"


def _has_blocks(name: str) -> bool:
    kind = KINDS[name]
    return kind.sends_blocks or kind.receives_blocks


def _is_usable(way: ProgramRoute, sent_at: int, received_at: int) -> bool:
    """Return whether a program can use the memory at two addresses as it is."""
    itemsize = way.itemsize
    if sent_at < 0 or received_at < 0 or sent_at % itemsize or received_at % itemsize:
        return False
    return not -way.sent_bytes < sent_at - received_at < way.received_bytes
