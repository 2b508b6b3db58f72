"""Caches of the plans of a communicator; a tuning table chooses plans, made on demand."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Final

from mpi4py import MPI

from collplan.dropin.agreement import DifferentCalls, run_different
from collplan.dropin.arguments import (
    KINDS,
    Arguments,
    Kind,
    may_coincide,
    read_arguments,
)
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.config import Config
from collplan.dropin.decisions import (
    calls_before,
    calls_before_trial,
    decide,
    native_decision,
    own_block_at,
    spec_of,
    why_later,
    why_not_tried,
)
from collplan.dropin.routes import Route
from collplan.dropin.statistics import Row
from collplan.dropin.tried_routes import Waiting
from collplan.dropin.vector_agreement import Backoff
from collplan.dropin.vector_arguments import VectorArguments, read_vector_arguments
from collplan.executors.mpi.together import own_communicator
from collplan.measure.lanes import node_of_ranks
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs import PlanSpec
from collplan.tune.sweep import NATIVE_LABEL, NodePlacement
from collplan.tune.table import PLANNED, Decision, TuningTable

Found = tuple[Route, int | None, int | None, Arguments | None]
"""Route of a call, addresses of its send and receive buffers, and its arguments or None.

The addresses are None if the plan cannot use the buffers directly.
"""

Used = tuple[int, int, int, int]
"""Use of buffers by a rank's program, in bytes.

The items are the size of the plan's elements, the sizes of the send and receive buffers, and the
offset of an MPI_IN_PLACE input in the receive buffer.
"""

MAX_ENTRIES: Final = 4096
"""Limit of cached decisions; when it is reached, decisions for native calls are dropped."""


REPLACED_CALLS: Final = 8
"""Factor of the native calls before a plan is made again, each time that others replace it."""


class PlanCache(ABC):
    """Decisions and plans of a communicator, for either blocking or non-blocking calls.

    Decisions depend only on the signatures of calls. All ranks make calls with equal signatures
    in the same order, and therefore make and free the same plans in the same calls.

    Parameters
    ----------
    comm : MPI.Intracomm
        Native communicator of the ranks.
    table : TuningTable or None
        Tuning table that chooses plans; None if all calls are native.
    config : Config
        Operations, limits and statistics.

    Attributes
    ----------
    ready : dict of object to Route
        Permanent routes by the keys of this rank's arguments.
    kept : OrderedDict of int to Route
        Routes with plans by number, with the least recently used route first.
    latest : Route or None
        Most recently used route with a plan.
    natives : dict of str to str
        Reasons by kind of collective why its calls are always native.
    pending_task : callable or None
        Collective function that the next call runs before it looks up its route.
    setup : NonBlockingSetup or None
        Setup of non-blocking plans.
    """

    is_blocking: ClassVar[bool] = True
    pending_task: Callable[[], None] | None = None
    setup: Any = None

    def __init__(self, comm: MPI.Intracomm, table: TuningTable | None, config: Config) -> None:
        self.comm, self.table, self.config = comm, table, config
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.ready: dict[Any, Route] = {}
        self.kept: OrderedDict[int, Route] = OrderedDict()
        self.latest: Route | None = None
        self._private: MPI.Intracomm | None = None
        self._placement: NodePlacement | None = None
        self._decided: dict[CollectiveCall, Route] = {}
        self._replaced: dict[CollectiveCall, int] = {}
        self._backoffs: dict[str, Backoff] = defaultdict(Backoff)
        self.natives = config.blocking_natives if self.is_blocking else config.nonblocking_natives

    def find(
        self, key: Any, kind: Kind, sendbuf: Any, recvbuf: Any, op: MPI.Op | None, root: int
    ) -> Found:
        """Return the route of a call; collective if ranks must agree on the call or make a plan.

        Parameters
        ----------
        key : object
            Key under which to store the route in `ready`; None if the arguments have no key.
        kind : Kind
            Kind of the collective.
        sendbuf, recvbuf, op, root : object
            Arguments of the call. Arguments that the collective does not have are None, and its
            root is 0.

        Returns
        -------
        route : Route
            Route of the call.
        sent_at, received_at : int or None
            Addresses of the buffers; None if the plan cannot use the buffers directly.
        arguments : Arguments or None
            Buffers of this rank; None if mpi4py has to report an error, or if ranks make
            different calls.

        Raises
        ------
        MPI.Exception, CollplanError
            If this rank detects that other ranks make a different call.
        """
        native = kind.natives[self.is_blocking]
        try:
            arguments = self.read(kind, sendbuf, recvbuf, root)
            name = None if op is None else self.config.operations.get(op.handle)
            call = arguments.call(root, name)
            if not may_coincide(kind, arguments, op, self.rank):
                return self.uncounted(kind), 0, 0, None
        except Exception:  # mpi4py raises its own error
            return self.uncounted(kind), 0, 0, None
        try:
            route = self._route(call)
        except DifferentCalls as different:
            calls = different.calls
            route = self.uncounted(kind)
            route.native = lambda comm, *given: run_different(comm, native, given, self.rank, calls)
            return route, 0, 0, None
        if route.native is None and not arguments.is_plain(route.itemsize):
            return route, None, None, arguments
        if key is not None and not route.is_temporary:
            if len(self.ready) >= MAX_ENTRIES:
                self.ready.clear()
            self.ready[key] = route
            route.keys.add(key)
        return route, *arguments.addresses, arguments

    @abstractmethod
    def find_vector(
        self, kind: Kind, sendbuf: Any, recvbuf: Any, recvcounts: Any, op: MPI.Op | None, root: int
    ) -> tuple[Route | str, VectorArguments | None]:
        """Return the route and the arguments of a call whose counts differ per rank.

        Parameters
        ----------
        kind : Kind
            Kind of the collective.
        sendbuf, recvbuf, recvcounts, op, root : object
            Arguments of the call. Arguments that the collective does not have are None, and its
            root is 0.

        Returns
        -------
        route : Route or str
            Route of the call, or the reason why it is native.
        arguments : VectorArguments or None
            Arguments; None if they were not read.
        """

    def note_use(self, route: Route) -> None:
        """Note that a route with a plan is the most recently used one."""
        self.kept.move_to_end(route.number)
        self.latest = route

    def run_vector(self, route: Route, arguments: VectorArguments, given: Any) -> Any:
        """Run or start the plan of a route with the buffers of a call."""
        if route is not self.latest:
            self.note_use(route)
        if arguments.is_plain(route.itemsize) and route.use(*arguments.addresses):
            return self.run(route, *arguments.addresses, given)
        with arguments.described():
            return self.run_staged(route, arguments, given)

    @abstractmethod
    def run(self, route: Route, sent_at: int, received_at: int, given: Any) -> Any:
        """Run or start the plan of a route on buffers that it can use directly.

        Parameters
        ----------
        route : Route
        sent_at, received_at : int
            Addresses of the send and receive buffers.
        given : tuple
            Arguments of the call, which must stay alive while a started plan runs.
        """

    @abstractmethod
    def run_staged(self, route: Route, arguments: Arguments, given: Any) -> Any:
        """Run or start the plan of a route with copies of buffers that it cannot use directly."""

    def prepare(self) -> None:  # noqa: B027 - only non-blocking calls request plans
        """Make the shared-memory plans that calls have requested; collective."""

    def uncounted(self, kind: Kind) -> Route:
        """Return a native route for a single call, which is not counted in the statistics."""
        row = Row(kind.name, NATIVE_LABEL, "", self.size)
        return Route(CollectiveCall(kind.name, 0), row, native=kind.natives[self.is_blocking])

    def read_vector(
        self,
        kind: Kind,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any,
        op: MPI.Op | None,
        root: int,
    ) -> VectorArguments | None:
        """Return the arguments of a call whose counts differ per rank; None if MPI rejects them."""
        try:
            arguments = read_vector_arguments(
                kind, sendbuf, recvbuf, recvcounts, root, self.rank, self.size
            )
            return arguments if may_coincide(kind, arguments, op, self.rank) else None
        except Exception:  # mpi4py raises its own error
            return None

    def read(self, kind: Kind, sendbuf: Any, recvbuf: Any, root: int) -> Arguments:
        """Return the buffers of this rank; see `read_arguments`."""
        return read_arguments(kind, sendbuf, recvbuf, root, self.rank, self.size)

    def free(self) -> None:
        """Free all plans; collective if the plans are bound."""
        while self.kept:
            self._drop_oldest()
        self._replaced.clear()
        self.ready.clear()

    def _route(self, call: CollectiveCall) -> Route:
        """Return the current route of a call."""
        route = self._decided.get(call)
        if route is None:
            self._meet(call)
            route = self._decide_route(call)
            if len(self._decided) >= MAX_ENTRIES:
                calls = {one.call for one in self.kept.values()} & self._decided.keys()
                self._decided = {one: self._decided[one] for one in calls}
                self.ready.clear()
            self._decided[call] = route
        if route.wanted is None:
            return route
        if route.n_left:
            route.n_left -= 1
            return route
        with self.config.statistics.making():
            route = self._decided[call] = self._make_route(call, route.wanted)
        return route

    def _decide_route(self, call: CollectiveCall) -> Route:
        """Return the route of a call that is new to the communicator."""
        reason = self.why_native(call)
        decision = self.decide(call) if reason is None else native_decision(reason)
        if self.is_tried(call, decision):
            return self._waiting_route(call, decision)
        if decision.choice.native:
            return self._native_route(call, decision)
        n_calls = calls_before(decision, self.config.native_calls)
        why = why_later(decision, n_calls)
        if call in self._replaced and not decision.needs_plan:
            n_calls = self._replaced[call] * max(1, n_calls)
            why = f"other plans replaced its plan: {decision.label} again after {n_calls} calls"
        route = self._native_route(call, native_decision(why, decision.native_s))
        route.wanted, route.n_left = decision, n_calls
        return route

    def why_native(self, call: CollectiveCall) -> str | None:
        """Return the reason why no plan can run a call; None if one can."""
        return self.natives.get(call.kind) or call.why_unplanned()

    def decide(self, call: CollectiveCall) -> Decision:
        """Return the decision of the table for a call, which is the same on all ranks."""
        assert self.table is not None, "without a table, `why_native` has a reason"
        return decide(self.table, call, self.placement, overlaps=not self.is_blocking)

    # `cached_property` would access the dictionary of the instance, which slows down access to all
    # attributes.
    @property
    def private(self) -> MPI.Intracomm:
        """Communicator of the same ranks that only plans use; collective on first use."""
        if self._private is None:
            self._private = own_communicator(self.comm)
        return self._private

    @property
    def placement(self) -> NodePlacement:
        """Placement of the ranks on nodes; collective on first use."""
        if self._placement is None:
            self._placement = NodePlacement.of_nodes(node_of_ranks(self.private))
        return self._placement

    def is_tried(self, _call: CollectiveCall, _decision: Decision) -> bool:
        """Return whether a trial may run plans that the cost model predicts for a call."""
        return False

    def _waiting_route(self, call: CollectiveCall, decision: Decision) -> Route:
        """Return a native route that is used until a trial of plans may pay."""
        route = self._native_route(call, replace(decision, why=why_not_tried(decision)))
        n_calls = calls_before_trial(self.config.native_calls)
        route.pending = route.native = Waiting(route.native, n_calls, self.ready, route.keys)
        return route

    def _meet(self, call: CollectiveCall) -> None:  # noqa: B027 - only blocking calls meet
        """Check that all ranks make the same call, if the call may wait for other ranks."""

    @abstractmethod
    def _make_route(self, call: CollectiveCall, decision: Decision) -> Route:
        """Return a route with a plan; a native route on all ranks if no plan can be made."""

    def _spec(self, call: CollectiveCall, decision: Decision) -> PlanSpec:
        assert self.table is not None
        collective = self._collective_of(call)
        return spec_of(decision, self.table.machine(self.placement), collective)

    @abstractmethod
    def _collective_of(self, call: CollectiveCall) -> Any:
        """Return the collective to plan; the method may be collective for vector calls.

        Raises
        ------
        CollplanError
            On all ranks, if two ranks pass contradictory counts.
        """

    def _used_bytes(self, call: CollectiveCall, spec: PlanSpec, plan: Plan) -> Used:
        """Return the use of buffers by this rank's program."""
        sizes, itemsize = plan.buffer_sizes[self.rank], plan.itemsize
        skip = own_block_at(spec, self.rank)
        sent, received = int(sizes[Buffer.SEND]), int(sizes[Buffer.RECV])
        return itemsize, sent * itemsize, received * itemsize, skip * itemsize

    def _keep(self, route: Route) -> Route:
        self.kept[route.number] = self.latest = route
        return route

    def _make_room(self) -> None:
        if len(self.kept) >= self.config.max_plans:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Free the least recently used plan.

        Its signature needs more calls before it gets a plan again, as making plans in turn would
        take longer than native calls.
        """
        oldest = next(iter(self.kept.values()))
        del self._decided[oldest.call]
        if len(self._replaced) >= MAX_ENTRIES:
            self._replaced.clear()
        self._replaced[oldest.call] = REPLACED_CALLS * self._replaced.get(oldest.call, 1)
        for route in oldest.rivals or [oldest]:
            self._drop(route)

    def _drop(self, route: Route) -> None:
        """Remove a route with a plan, and free the plan."""
        del self.kept[route.number]
        for key in route.keys:
            self.ready.pop(key, None)
        route.free()

    def _native_route(self, call: CollectiveCall, decision: Decision) -> Route:
        row = self._row(call, decision, planned=False)
        return Route(call, row, native=KINDS[call.kind].natives[self.is_blocking])

    def _failed_route(self, call: CollectiveCall, decision: Decision, error: str) -> Route:
        """Return the route of a call without a plan, on all ranks: another plan, or native.

        If results must be reproducible between runs, rank 0 says that they are not.
        """
        if decision.needs_plan and decision.choice != PLANNED:
            why = f"{decision.label} cannot run here: {error}"
            other = replace(decision, choice=PLANNED, label=PLANNED.label, why=why)
            return self._make_route(call, other)
        if decision.needs_plan and self.rank == 0:
            sys.stderr.write(
                f"collplan: {call.kind}: no plan can run here: {error}; calls are native, "
                f"and results are not reproducible between {decision.level}, as the table asks\n"
            )
        return self._native_route(
            call, native_decision(f"{decision.label} cannot run here: {error}")
        )

    def name_of(self, kind: str) -> str:
        """Return the name of calls of a kind in the statistics."""
        return kind if self.is_blocking else f"I{kind}"

    def _row(self, call: CollectiveCall, decision: Decision, *, planned: bool) -> Row:
        measured = {"native_s": decision.native_s, "chosen_s": decision.chosen_s}
        return self.config.statistics.row(
            self.name_of(call.kind),
            decision.label,
            decision.why,
            self.size,
            call.n_bytes,
            planned=planned,
            **measured,
        )
