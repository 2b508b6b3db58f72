"""The plans of one communicator: chosen by the table, made on first use, kept, and let go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import Any, ClassVar, Final

from mpi4py import MPI

from collplan.compiling_together import compile_together, own_communicator
from collplan.dropin.agreement import Different, Meetings, run_different
from collplan.dropin.arguments import KINDS, Arguments, Kind, read_arguments
from collplan.dropin.calls import CollectiveCall, VectorCall
from collplan.dropin.config import Config
from collplan.dropin.loading import as_loaded
from collplan.dropin.routes import ALIGNMENT, Route, aligned_memory
from collplan.dropin.staging import stage
from collplan.dropin.statistics import Row
from collplan.dropin.trials import FIRST_COST_S, Contestant, Trial, Waiting, greatest
from collplan.dropin.vector_agreement import CHANGING, Backoff, agree_on_counts
from collplan.dropin.vector_arguments import VectorArguments, read_vector_arguments
from collplan.executors.mpi.binding.agreement import DOING
from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.measure.lanes import node_of_ranks
from collplan.planner.plan.plan import Buffer, Plan
from collplan.rank_counts import counts_of_all
from collplan.specs import COLLECTIVES, PlanSpec
from collplan.tune.predictions import predict
from collplan.tune.sweep import NATIVE, NATIVE_LABEL, Choice, Placement
from collplan.tune.table import Decision, TuningTable

Found = tuple[Route, int | None, int | None, Arguments | None]
"""A call's route; where its buffers are, None if a plan cannot use them as they are; and what
was read of its arguments, if that was necessary."""

Used = tuple[int, int, int, int]
"""Bytes of a plan's elements; those that a rank's program sends from and receives in; and
those before its input where that lies in the receive buffer."""

MAX_ENTRIES: Final = 4096
"""Number of decisions at which the cache drops those for native calls."""
LEAST_VECTOR_GAIN_S: Final = 150e-6
"""Least gain per call, by the table, that pays for agreeing on counts that differ per rank."""

TRIED: Final = "tried here beside others"
FASTER: Final = "was faster when tried here"
NO_COMMUNICATOR: Final = "plans cannot have a communicator"


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
        sweeps = () if table is None else table.sweeps
        self._kinds = {
            sweep.collective
            for sweep in sweeps
            if sweep.complete and not (self.is_blocking and sweep.computation_s is not None)
        }

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
        why = f"a plan takes time to make: {decision.label} from call {n_calls + 1} on"
        route = self._native_route(call, native_decision(why, native_s))
        route.wanted, route.n_left = decision, n_calls
        return route

    def why_native(self, call: CollectiveCall) -> str | None:
        """Return why a call runs natively whatever the table says; None if it need not."""
        if self.table is None:
            return "no table"
        if reason := self.why_no_sweep(call.kind):
            return reason
        if call.n_bytes == 0 and COLLECTIVES[call.kind].has_data:
            return "nothing to move"
        return call.why_not_reduced() if COLLECTIVES[call.kind].has_op else None

    def why_no_sweep(self, kind: str) -> str | None:
        """Return why no plan serves a kind; None if a sweep of its regular kind does.

        Sweeps of vector kinds are of their own counts alone, which calls hardly ever have.
        """
        if self.table is None:
            return "no table"
        regular = COLLECTIVES[kind].regular or kind
        return None if regular in self._kinds else f"no sweep of {regular}"

    def decide(self, call: CollectiveCall) -> Decision:
        """Return what the table says of a call; the same on all ranks."""
        assert self.table is not None, "without a table there is a reason for native"
        kind = COLLECTIVES[call.kind].regular or call.kind
        found = self.table.decide(
            kind,
            call.n_bytes,
            self.size,
            self.placement,
            call.commutes,
            overlaps=not self.is_blocking,
        )
        return found if kind == call.kind else replace(found, why=f"{kind} {found.why}")

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
        sizes, itemsize, skip = plan.buffer_sizes[self.rank], plan.itemsize, 0
        if KINDS[call.kind].sends_own_block:
            skip = int(spec.collective.block_layout(self.size)[1][self.rank])
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


class BlockingPlans(PlanCache):
    """Bound plans of a communicator; ranks meet to make them.

    Parameters
    ----------
    comm : MPI.Intracomm
        Native; the ranks.
    config : Config
        Table, operations, limits, and where calls are counted.
    """

    def __init__(self, comm: MPI.Intracomm, config: Config) -> None:
        super().__init__(comm, config.table, config)
        self._meetings: Meetings | None = None
        self._why_no_plans: str | None = None
        self._trial_cost_s = FIRST_COST_S
        self.errand: Callable[[], None] | None = None
        """A task for all ranks together in the next call that is looked at."""

    def _meet(self, call: CollectiveCall) -> None:
        """See that all ranks have come with the same; collective where plans are made."""
        if self._why_no_plans is not None or call.kind not in self._kinds:
            return
        if isinstance(call, VectorCall):  # ranks have met about its counts
            return
        if self._meetings is None:
            try:
                self._meetings = Meetings(self.private)
            except MPI.Exception as error:  # on all ranks: MPI's communicators are few
                self._why_no_plans = f"{NO_COMMUNICATOR}: {one_line(error)}"
                return
        self._meetings.all_bring(call, self.kept.values())

    def run(self, route: Route, _sent_at: int, _received_at: int, _given: Any) -> None:
        """Run a route's plan on the memory that it uses."""
        assert route.bound is not None
        route.bound()

    def run_staged(self, route: Route, arguments: Arguments, _given: Any) -> None:
        """Run a route's plan with copies of the buffers that it cannot use in place.

        Raises
        ------
        MPI.Exception
            Of class ``ERR_TRUNCATE``, if less is to be received than is sent: when this rank
            has taken part, so that others need not wait for it.
        """
        staged = stage(route, arguments, self.rank)
        is_usable = route.use(*staged.addresses)
        assert is_usable, "copies are aligned, and other memory was looked at"
        assert route.bound is not None
        route.bound()
        if staged.finish is not None:
            staged.finish()

    def find_vector(
        self, kind: Kind, sendbuf: Any, recvbuf: Any, recvcounts: Any, op: MPI.Op | None, root: int
    ) -> tuple[Route | str, VectorArguments | None]:
        """Return how a call runs whose counts differ per rank; collective, see `PlanCache`.

        No rank sees the counts of all, nor whether those of another are the ones of a call
        before. So all ranks meet, unless they have found in vain for some time.
        """
        backoff = self._backoffs[kind.name]
        reason = self._why_no_plans or self.why_no_sweep(kind.name) or backoff.why_not_now()
        if reason is not None:
            return reason, None
        try:
            comm = self.private
        except MPI.Exception as error:  # on all ranks: MPI's communicators are few
            self._why_no_plans = f"{NO_COMMUNICATOR}: {one_line(error)}"
            return self._why_no_plans, None
        name = None if op is None else self.config.operations.get(op.handle)
        arguments: VectorArguments | None = None
        with suppress(Exception):  # mpi4py is to say what is wrong
            arguments = read_vector_arguments(
                kind, sendbuf, recvbuf, recvcounts, root, self.rank, self.size
            )
        call = agree_on_counts(comm, arguments, kind.name, root, name)
        if isinstance(call, str):
            backoff.note_in_vain(call)
            return call, None
        is_new = call not in self._decided
        route = self._route(call)
        if is_new and route.wanted is not None and backoff.has_met:
            row = self._row(call, native_decision(CHANGING, route.wanted.native_s), planned=False)
            route = Route(call, row, native=route.native)
        backoff.note(route, is_new=is_new)
        return route, arguments

    def decide(self, call: CollectiveCall) -> Decision:
        """Return what the table says of a call, and whether that pays for agreeing on counts."""
        decision = super().decide(call)
        gain_s = decision.gain_s
        is_paid = gain_s is None or gain_s > LEAST_VECTOR_GAIN_S
        if isinstance(call, VectorCall) and not decision.choice.native and not is_paid:
            why = f"{decision.label} gains less than agreeing on counts costs"
            return native_decision(why, decision.native_s)
        return decision

    def free(self) -> None:
        """Free all plans; collective."""
        super().free()
        if self._meetings is not None:
            self._meetings.end()
            self._meetings = None
        if self._private is not None:
            self._private.Free()
            self._private = None

    def why_native(self, call: CollectiveCall) -> str | None:
        """Return why a call runs natively whatever the table says; None if it need not."""
        return self._why_no_plans or super().why_native(call)

    def is_tried(self, call: CollectiveCall) -> bool:
        """Return whether plans that the model predicts are tried in such calls."""
        return self.config.trials > 0 and self.size > 1 and not isinstance(call, VectorCall)

    def _route(self, call: CollectiveCall) -> Route:
        """Return what equal calls run now; collective where ranks meet about a trial."""
        if self.errand is not None:
            self.errand()
        route = super()._route(call)
        pending = route.pending
        if isinstance(pending, Waiting) and not pending.n_left:
            seconds = greatest(self.private, pending.seconds)
            if self._trial_cost_s > self.config.trials * seconds:
                pending.go_on()
            else:
                route = self._decided[call] = self._try(call, seconds)
                pending = route.pending
        if isinstance(pending, Trial):
            route = pending.next_route(self.private) or self._end(pending)
        return route

    def _try(self, call: CollectiveCall, seconds: float) -> Route:
        """Return the native route of a trial, or one to stay if no plan can run; collective.

        Parameters
        ----------
        call : CollectiveCall
        seconds : float
            What native calls have taken so far; the same on all ranks.
        """
        begin = perf_counter()
        choices, error = self._predict(call)
        plans: list[Contestant] = []
        for choice in choices:
            decision = Decision(choice, choice.label, TRIED)
            route = self._make_route(call, decision)
            if route.native is None:
                plans.append(self._contestant(route, decision))
            else:
                error = route.row.why
        if not plans:
            return self._native_route(call, native_decision(f"no plan to try: {error}"))
        decision = native_decision(TRIED)
        native = self._contestant(self._native_route(call, decision), decision)
        rivals = [one.route for one in plans]
        for one in (native, *plans):
            one.route.rivals = rivals
        native.route.pending = Trial(native, plans, self.config.trials * seconds)
        self._trial_cost_s = greatest(self.private, perf_counter() - begin)
        return native.route

    def _contestant(self, route: Route, decision: Decision) -> Contestant:
        """Return a route of a trial, with a row for its calls alone."""
        call, name = route.call, self.name_of(route.call.kind)
        statistics, is_planned = self.config.statistics, route.native is None
        route.row = statistics.own_row(
            name, decision.label, decision.why, self.size, call.n_bytes, planned=is_planned
        )
        return Contestant(route, decision)

    def _predict(self, call: CollectiveCall) -> tuple[list[Choice], str]:
        """Return the plans to try, as rank 0 predicts them, or why there are none; collective."""
        found: list[Choice] = []
        error = "the model predicts none"
        if self.rank == 0:
            assert self.table is not None
            try:
                with as_loaded():
                    found = predict(self.table, self.placement, call.collective(), call.n_bytes)
            except Exception as raised:  # no rank may wait for this one
                error = one_line(raised)
        found, error = self.private.bcast((found[: self.config.max_plans], error))
        return found, error

    def _end(self, trial: Trial) -> Route:
        """Keep the plan of a trial that is faster than native, if there is one; collective."""
        self._trial_cost_s += trial.excess_s
        native, winner = trial.native, trial.fastest()
        call, rivals, native_s = native.route.call, native.route.rivals, native.median_s
        for route in rivals:
            if winner is None or route is not winner.route:
                self._drop(route)
        if winner is None:
            labels = ", ".join(route.row.ran for route in rivals)
            decision = native_decision(f"tried here, not faster: {labels}", native_s)
            route = self._native_route(call, decision)
        else:
            route, chosen_s = winner.route, winner.median_s
            decision = replace(winner.decision, native_s=native_s, chosen_s=chosen_s, why=FASTER)
            route.row, route.rivals = self._row(call, decision, planned=True), []
        self._decided[call] = route
        return route

    def _make_route(self, call: CollectiveCall, decision: Decision) -> Route:
        """Return a route with a bound plan, or a native one if any rank fails for any reason."""
        roll_call = RollCall(self.private, None, DOING)
        bound: BoundPlan | None = None
        try:
            with as_loaded():
                spec = self._spec(call, decision)
                plan = compile_together(spec, self.private, [])
                self._make_room()
                bound = made = bind(plan, self.private)
                row = self._row(call, decision, planned=True)
                used = self._used_bytes(call, spec, plan)
                route = roll_call.together(lambda: _bound_route(call, row, made, used))
        except Exception as error:  # on all ranks
            if bound is not None:
                bound.free()
            return self._failed_route(call, decision, one_line(error))
        return self._keep(route)

    def _collective_of(self, call: CollectiveCall) -> Any:
        """Return the collective of a call; collective where its counts differ per rank."""
        if not isinstance(call, VectorCall):
            return call.collective()
        ranks = self.private.allgather(call.counts)
        table = RollCall(self.private, None, DOING).together(lambda: counts_of_all(ranks, "bytes"))
        return call.collective_of(table)


def _bound_route(call: CollectiveCall, row: Row, bound: BoundPlan, used: Used) -> Route:
    # The engine is built with the first buffers, which may fail, too: here all ranks see it.
    _, sent, received, _ = used
    _memory, sent_at = aligned_memory(sent + received + ALIGNMENT)
    bound.rebind_addresses(sent_at, sent_at + sent + -sent % ALIGNMENT)
    return Route(call, row, bound, None, *used)


def native_decision(why: str, native_s: float | None = None) -> Decision:
    """Return the decision to run natively, for a reason in words."""
    return Decision(NATIVE, NATIVE_LABEL, why, native_s, native_s)
