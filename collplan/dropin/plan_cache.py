"""The plans of one communicator: chosen by the table, made on first use, kept, and let go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from dataclasses import replace
from typing import Any, ClassVar, Final

from mpi4py import MPI

from collplan.compiling_together import own_communicator
from collplan.dropin.agreement import Different, run_different
from collplan.dropin.arguments import KINDS, Arguments, Kind, read_arguments
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.config import Config
from collplan.dropin.decisions import (
    decide,
    native_decision,
    own_block_at,
    swept_kinds,
    why_later,
    why_no_sweep,
)
from collplan.dropin.routes import Route
from collplan.dropin.statistics import Row
from collplan.dropin.trials import Waiting
from collplan.dropin.vector_agreement import Backoff
from collplan.dropin.vector_arguments import VectorArguments
from collplan.measure.lanes import node_of_ranks
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs import PlanSpec
from collplan.tune.sweep import NATIVE_LABEL, Placement
from collplan.tune.table import Decision, TuningTable

Found = tuple[Route, int | None, int | None, Arguments | None]
"""A call's route; where its buffers are, None if a plan cannot use them as they are; and what
was read of its arguments, if that was necessary."""

Used = tuple[int, int, int, int]
"""Bytes of a plan's elements; those that a rank's program sends from and receives in; and
those before its input where that lies in the receive buffer."""

MAX_ENTRIES: Final = 4096
"""Number of decisions at which the cache drops those for native calls."""


class PlanCache(ABC):
    """Decisions and plans of a communicator, for calls that wait or for calls that do not.

    What is decided depends on calls alone, which are equal on all ranks and come in the
    same order. So all make and free the same plans in the same calls.

    Parameters
    ----------
    comm : MPI.Intracomm
        Native; the ranks.
    table : TuningTable or None
        What to run; None for all native.
    config : Config
        Operations, limits, and where calls are counted.
    """

    is_blocking: ClassVar[bool] = True

    def __init__(self, comm: MPI.Intracomm, table: TuningTable | None, config: Config) -> None:
        self.comm, self.table, self.config = comm, table, config
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.ready: dict[Any, Route] = {}
        """Routes by what one rank's arguments look like; of this rank alone."""
        self.kept: OrderedDict[int, Route] = OrderedDict()
        """Routes with plans by their numbers, the longest unused first."""
        self.latest: Route | None = None
        """The last of them."""
        self._private: MPI.Intracomm | None = None
        self._placement: Placement | None = None
        self._decided: dict[CollectiveCall, Route] = {}
        self._backoffs: dict[str, Backoff] = defaultdict(Backoff)
        self._kinds = swept_kinds(table, is_blocking=self.is_blocking)

    def find(
        self, key: Any, kind: Kind, sendbuf: Any, recvbuf: Any, op: MPI.Op | None, root: int
    ) -> Found:
        """Return how a call runs; collective where all ranks have to decide or make something.

        Parameters
        ----------
        key : object
            By which `ready` is to find equal calls of this rank, if they can be found.
        kind, sendbuf, recvbuf, op, root : object
            The call's, None for what the collective has not.

        Raises
        ------
        MPI.Exception, CollplanError
            If others are in another call, as far as this rank can see.
        """
        native = kind.natives[self.is_blocking]
        try:
            arguments = self.read(kind, sendbuf, recvbuf, root)
            name = None if op is None else self.config.operations.get(op.handle)
            call = arguments.call(root, name)
        except Exception:  # mpi4py is to say what is wrong
            return self._uncounted(kind, native)
        try:
            route = self._route(call)
        except Different as different:
            calls = different.calls
            return self._uncounted(
                kind, lambda comm, *given: run_different(comm, native, given, self.rank, calls)
            )
        if route.native is None and not arguments.is_plain(route.itemsize):
            return route, None, None, arguments
        if key is not None and not route.is_passing:
            if len(self.ready) >= MAX_ENTRIES:
                self.ready.clear()
            self.ready[key] = route
            route.keys.add(key)
        return route, *arguments.addresses, arguments

    @abstractmethod
    def find_vector(
        self, kind: Kind, sendbuf: Any, recvbuf: Any, recvcounts: Any, op: MPI.Op | None, root: int
    ) -> tuple[Route | str, VectorArguments | None]:
        """Return how a call runs whose counts differ per rank, and what was read of it.

        Returns
        -------
        Route or str
            The reason in words where a call is native whatever its counts are.
        """

    def run_vector(self, route: Route, arguments: VectorArguments, given: Any) -> Any:
        """Run or start a route's plan with buffers that were read."""
        if route is not self.latest:
            self.kept.move_to_end(route.number)
            self.latest = route
        if arguments.is_plain(route.itemsize) and route.use(*arguments.addresses):
            return self.run(route, *arguments.addresses, given)
        with arguments.described():
            return self.run_staged(route, arguments, given)

    @abstractmethod
    def run(self, route: Route, sent_at: int, received_at: int, given: Any) -> Any:
        """Run or start a route's plan on memory at two addresses, which it can use."""

    @abstractmethod
    def run_staged(self, route: Route, arguments: Arguments, given: Any) -> Any:
        """Run or start a route's plan with copies of the buffers that it cannot use in place."""

    def _uncounted(self, kind: Kind, native: Any) -> Found:
        """Return the route of a single call that statistics leave out."""
        row = Row(kind.name, NATIVE_LABEL, "", self.size)
        return Route(CollectiveCall(kind.name, 0), row, native=native), 0, 0, None

    def read(self, kind: Kind, sendbuf: Any, recvbuf: Any, root: int) -> Arguments:
        """Return what this rank's arguments are; raise anything where mpi4py would."""
        return read_arguments(kind, sendbuf, recvbuf, root, self.rank, self.size)

    def free(self) -> None:
        """Free all plans; of those that are bound, collective."""
        while self.kept:
            self._drop_oldest()
        self.ready.clear()

    def _route(self, call: CollectiveCall) -> Route:
        """Return what equal calls run now."""
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
        route = self._decided[call] = self._make_route(call, route.wanted)
        return route

    def _decide_route(self, call: CollectiveCall) -> Route:
        reason = self.why_native(call)
        decision = self.decide(call) if reason is None else native_decision(reason)
        if not decision.is_known and self.is_tried(call):
            return self._waiting_route(call, decision)
        if decision.choice.native:
            return self._native_route(call, decision)
        n_calls, native_s = self.config.native_calls, decision.native_s
        why = why_later(decision, n_calls)
        route = self._native_route(call, native_decision(why, native_s))
        route.wanted, route.n_left = decision, n_calls
        return route

    def why_native(self, call: CollectiveCall) -> str | None:
        """Return why a call runs natively whatever the table says; None if it need not."""
        return self.why_no_sweep(call.kind) or call.why_unplanned()

    def why_no_sweep(self, kind: str) -> str | None:
        """Return why no plan serves a kind; None if a sweep of its regular kind does.

        Sweeps of vector kinds are of their own counts alone, which calls hardly ever have.
        """
        if self.table is None:
            return "no table"
        return why_no_sweep(self._kinds, kind)

    def decide(self, call: CollectiveCall) -> Decision:
        """Return what the table says of a call; the same on all ranks."""
        assert self.table is not None, "without a table there is a reason for native"
        return decide(self.table, call, self.placement, overlaps=not self.is_blocking)

    # A cached_property would make the instance's dictionary, and every attribute slower.
    @property
    def private(self) -> MPI.Intracomm:
        """Return a communicator of the same ranks that only plans use; collective at first."""
        if self._private is None:
            self._private = own_communicator(self.comm)
        return self._private

    @property
    def placement(self) -> Placement:
        """Return where the ranks are; collective on first use."""
        if self._placement is None:
            self._placement = Placement.of_nodes(node_of_ranks(self.private))
        return self._placement

    def is_tried(self, _call: CollectiveCall) -> bool:
        """Return whether plans that the model predicts are tried in such calls."""
        return False

    def _waiting_route(self, call: CollectiveCall, decision: Decision) -> Route:
        """Return a native route until a trial of plans may pay."""
        why = f"{decision.why}; a trial of plans has not paid so far"
        route = self._native_route(call, replace(decision, why=why))
        n_calls = max(1, self.config.native_calls)
        route.pending = route.native = Waiting(route.native, n_calls, self.ready, route.keys)
        return route

    def _meet(self, call: CollectiveCall) -> None:  # noqa: B027 - most need not
        """See that all ranks have come with the same call, where they may wait for each other."""

    @abstractmethod
    def _make_route(self, call: CollectiveCall, decision: Decision) -> Route:
        """Return a route with a plan; a native one on all ranks if it cannot be had."""

    def _spec(self, call: CollectiveCall, decision: Decision) -> PlanSpec:
        assert self.table is not None
        collective = self._collective_of(call)
        return decision.choice.plan_spec(self.table.machine(self.placement), collective)

    @abstractmethod
    def _collective_of(self, call: CollectiveCall) -> Any:
        """Return the collective of a call; of one whose counts differ per rank, perhaps together.

        Raises
        ------
        CollplanError
            On all ranks, if the counts of a call differ from rank to rank.
        """

    def _used_bytes(self, call: CollectiveCall, spec: PlanSpec, plan: Plan) -> Used:
        """Return how this rank's program uses its buffers."""
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
        oldest = next(iter(self.kept.values()))
        del self._decided[oldest.call]
        for route in oldest.rivals or [oldest]:
            self._drop(route)

    def _drop(self, route: Route) -> None:
        """Free a plan, which no call runs any more."""
        del self.kept[route.number]
        for key in route.keys:
            self.ready.pop(key, None)
        route.free()

    def _native_route(self, call: CollectiveCall, decision: Decision) -> Route:
        row = self._row(call, decision, planned=False)
        return Route(call, row, native=KINDS[call.kind].natives[self.is_blocking])

    def _failed_route(self, call: CollectiveCall, decision: Decision, error: str) -> Route:
        return self._native_route(
            call, native_decision(f"{decision.label} cannot run here: {error}")
        )

    def name_of(self, kind: str) -> str:
        """Return what statistics call such calls of a kind."""
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
