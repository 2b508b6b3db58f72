"""Bound plans for blocking calls, which all ranks make together, and trials of predicted plans."""

from __future__ import annotations

from time import perf_counter
from typing import Any, ClassVar, Final

import numpy as np
from mpi4py import MPI

from collplan.api.rank_counts import counts_of_all
from collplan.dropin.agreement import Meetings, combine
from collplan.dropin.arguments import Arguments, Kind
from collplan.dropin.calls import CollectiveCall, VectorCall
from collplan.dropin.config import Config
from collplan.dropin.decisions import if_paid, is_tried, native_decision, needs_plan_of
from collplan.dropin.plan_cache import PlanCache, Used
from collplan.dropin.routes import Route, buffer_memory
from collplan.dropin.staging import stage
from collplan.dropin.statistics import FASTER, Row
from collplan.dropin.trials import FIRST_COST_S, NATIVE, NO_PREDICTION, TRIED, why_not_faster
from collplan.dropin.tried_routes import TriedRoutes, Waiting, greatest
from collplan.dropin.vector_agreement import CHANGING, agree_on_counts
from collplan.dropin.vector_arguments import VectorArguments
from collplan.executors.mpi.binding.agreement import DOING
from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.executors.mpi.together import leave_cores
from collplan.tune.sweep import Choice
from collplan.tune.table import Decision

NO_COMMUNICATOR: Final = "plans cannot have a communicator"
MOST_COMMS: Final = 64
"""Largest number of communicators of a rank that have plans at a time; MPI's number is limited."""


class BlockingPlans(PlanCache):
    """Bound plans of a communicator for blocking calls.

    Parameters
    ----------
    comm : MPI.Intracomm
        Native communicator of the ranks.
    config : Config
        Tuning table, operations, limits and statistics.

    Attributes
    ----------
    n_private : int
        Number of communicators of this rank whose plans have a communicator.
    """

    n_private: ClassVar[int] = 0

    def __init__(self, comm: MPI.Intracomm, config: Config) -> None:
        super().__init__(comm, config.table, config)
        self._meetings: Meetings | None = None
        self._why_no_plans: str | None = None
        self._trial_cost_s = FIRST_COST_S

    def _meet(self, call: CollectiveCall) -> None:
        """Check that all ranks make the same call; collective if the kind has plans."""
        if self._why_no_plans is not None or call.kind in self.natives:
            return
        if isinstance(call, VectorCall):  # ranks have already agreed on its counts
            return
        if call.op and call.element and call.why_not_reduced():
            return  # MPI rejects the call on each rank by itself
        if self._has_private():
            assert self._meetings is not None
            self._meetings.check(call, self.kept.values())

    def _has_private(self) -> bool:
        """Return whether plans have a communicator; collective on first use."""
        if self._meetings is None and self._why_no_plans is None:
            room = np.array([BlockingPlans.n_private < MOST_COMMS])
            combine(self.comm, room, MPI.LAND)
            if not room[0]:
                self._why_no_plans = f"{NO_COMMUNICATOR}: a rank has {MOST_COMMS} with plans"
                return False
            try:
                self._meetings = Meetings(self.private)
                _ = self.placement  # creates another communicator for a moment
            except MPI.Exception as error:  # on all ranks, when MPI has no communicators left
                self._why_no_plans = f"{NO_COMMUNICATOR}: {one_line(error)}"
            else:
                BlockingPlans.n_private += 1
        return self._why_no_plans is None

    def run(self, route: Route, _sent_at: int, _received_at: int, _given: Any) -> None:
        """Run the plan of a route on the buffers to which the plan is bound."""
        assert route.bound is not None
        route.bound()

    def run_staged(self, route: Route, arguments: Arguments, _given: Any) -> None:
        """Run the plan of a route with copies of buffers that it cannot use directly.

        Raises
        ------
        MPI.Exception
            If the receive buffer is too small; its class is ``ERR_TRUNCATE``. The plan has
            run before, so that no other rank waits for this one.
        """
        staged = stage(route, arguments, self.rank)
        is_usable = route.use(*staged.addresses)
        assert is_usable, "copies are aligned, and other buffers were checked"
        assert route.bound is not None
        route.bound()
        if staged.finish is not None:
            staged.finish()

    def find_vector(
        self, kind: Kind, sendbuf: Any, recvbuf: Any, recvcounts: Any, op: MPI.Op | None, root: int
    ) -> tuple[Route | str, VectorArguments | None]:
        """Return the route of a call whose counts differ per rank; collective.

        No rank knows whether the counts of other ranks have changed since an earlier call.
        All ranks therefore meet in each such call, unless recent meetings led to native calls,
        see `Backoff`. A call that MPI rejects on this rank alone is not such a call. Parameters and
        results are those of `PlanCache.find_vector`.
        """
        if self._why_no_plans is not None:
            return self._why_no_plans, None
        arguments = self.read_vector(kind, sendbuf, recvbuf, recvcounts, op, root)
        if arguments is None:
            return self.uncounted(kind), None
        name = None if op is None else self.config.operations.get(op.handle)
        call = VectorCall(kind.name, 0, root, name, arguments.element)
        if name and arguments.element and (reason := call.why_not_reduced()):
            return reason, None  # MPI rejects the call on each rank by itself
        backoff = self._backoffs[kind.name]
        needs_plan = self.table is not None and needs_plan_of(self.table, call)
        reason = backoff.why_not_now()
        if reason is not None and not needs_plan:
            return reason, None
        if not self._has_private():
            return str(self._why_no_plans), None
        agreed = agree_on_counts(self.private, arguments, kind.name, root, name)
        if isinstance(agreed, str):
            backoff.note_in_vain(agreed)
            return agreed, None
        call = agreed
        is_new = call not in self._decided
        route = self._route(call)
        if is_new and route.wanted is not None and backoff.has_met:
            row = self._row(call, native_decision(CHANGING, route.wanted.native_s), planned=False)
            route = Route(call, row, native=route.native)
        backoff.note(route, is_new=is_new)
        return route, arguments

    def decide(self, call: CollectiveCall) -> Decision:
        """Return the decision for a call; native if agreeing on counts costs more than the gain."""
        return if_paid(call, super().decide(call))

    def free(self) -> None:
        """Free all plans; collective."""
        super().free()
        if self._meetings is not None:
            self._meetings.end()
            self._meetings = None
            BlockingPlans.n_private -= self._why_no_plans is None
        if self._private is not None:
            self._private.Free()
            self._private = None

    def why_native(self, call: CollectiveCall) -> str | None:
        """Return the reason why no plan can run a call; None if one can."""
        return self._why_no_plans or super().why_native(call)

    def is_tried(self, call: CollectiveCall, decision: Decision) -> bool:
        """Return whether a trial may run plans that the cost model predicts for a call."""
        return is_tried(call, decision, self.size, self.config.trials)

    def _route(self, call: CollectiveCall) -> Route:
        """Return the current route of a call; collective if the call is part of a trial."""
        if self.pending_task is not None:
            self.pending_task()
        route = super()._route(call)
        pending = route.pending
        if isinstance(pending, Waiting) and not pending.n_left:
            seconds = greatest(self.private, pending.seconds)
            if pending.pays(seconds, self._trial_cost_s, self.config.trials):
                with self.config.statistics.making():
                    route = self._decided[call] = self._try(call, seconds)
                pending = route.pending
        if isinstance(pending, TriedRoutes):
            route = pending.next_route(self.private) or self._end(pending)
        return route

    def _try(self, call: CollectiveCall, seconds: float) -> Route:
        """Start a trial, and return its native route; collective.

        If no plan can run, return a permanent native route without a trial.

        Parameters
        ----------
        call : CollectiveCall
        seconds : float
            Total time of the native calls so far in seconds; the same on all ranks.
        """
        begin = perf_counter()
        try:
            if not self.config.has_plans:
                plan_making().load_all(self.private)
            choices, error = self._predict(call)
        except Exception as raised:  # on all ranks
            choices, error = [], one_line(raised)
        plans: list[Route] = []
        for choice in choices:
            route = self._make_route(call, Decision(choice, choice.label, TRIED))
            if route.native is None:
                plans.append(self._contestant(route))
            else:
                error = route.row.why
        if not plans:
            return self._native_route(call, native_decision(f"no plan to try: {error}"))
        native = self._contestant(self._native_route(call, native_decision(TRIED)))
        for one in (native, *plans):
            one.rivals = plans
        native.pending = TriedRoutes(native, plans, self.config.trials * seconds)
        self._trial_cost_s = greatest(self.private, perf_counter() - begin)
        return native

    def _contestant(self, route: Route) -> Route:
        """Return a route that counts its calls in a separate row, for a trial."""
        call, row, statistics = route.call, route.row, self.config.statistics
        route.row = statistics.own_row(
            self.name_of(call.kind), row.ran, TRIED, self.size, call.n_bytes, planned=row.planned
        )
        return route

    def _predict(self, call: CollectiveCall) -> tuple[list[Choice], str]:
        """Return the plans that rank 0 predicts for a trial; collective.

        Returns
        -------
        choices : list of Choice
            Plans to try, the same on all ranks.
        error : str
            Reason why there are none.
        """
        choices: list[Choice] = []
        error = NO_PREDICTION
        if self.rank == 0:
            assert self.table is not None
            try:
                predict, collective = plan_making().predict, call.collective()
                choices = predict(self.table, self.placement, collective, call.n_bytes)
            except Exception as raised:  # not raised, as other ranks wait for the broadcast
                error = one_line(raised)
        leave_cores(self.private)
        choices, error = self.private.bcast((choices[: self.config.max_plans], error))
        return choices, error

    def _end(self, tried: TriedRoutes) -> Route:
        """End a trial: keep its winner and free the other plans; collective."""
        trial, (native, *plans) = tried.trial, tried.routes
        self._trial_cost_s += trial.excess_s
        call, best, native_s = native.call, trial.fastest(), trial.median_s(NATIVE)
        for number, route in enumerate(plans, NATIVE + 1):
            if number != best:
                self._drop(route)
        labels = [route.row.ran for route in plans]
        if best == NATIVE:
            route = self._native_route(call, native_decision(why_not_faster(labels), native_s))
        else:
            route = tried.routes[best]
            row = self.config.statistics.row(
                self.name_of(call.kind),
                route.row.ran,
                FASTER,
                self.size,
                call.n_bytes,
                planned=True,
                native_s=native_s,
                chosen_s=trial.median_s(best),
            )
            route.row, route.rivals = row, []
        self._decided[call] = route
        return route

    def _make_route(self, call: CollectiveCall, decision: Decision) -> Route:
        """Return a route with a bound plan; a native route if any rank fails; collective."""
        roll_call = RollCall(self.private, None, DOING)
        bound: BoundPlan | None = None
        try:
            spec = self._spec(call, decision)
            plan = plan_making().compile_together(spec, self.private, [])
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
        """Return the collective of a call; collective if its counts differ per rank."""
        if not isinstance(call, VectorCall):
            return call.collective()
        ranks = self.private.allgather(call.counts)
        table = RollCall(self.private, None, DOING).together(lambda: counts_of_all(ranks, "bytes"))
        return call.collective_of(table)


def _bound_route(call: CollectiveCall, row: Row, bound: BoundPlan, used: Used) -> Route:
    # The first binding builds the engine. If that fails, it must fail here, where the caller
    # lets all ranks fail together.
    _, sent_bytes, received_bytes, _ = used
    _memory, *addresses = buffer_memory(sent_bytes, received_bytes)
    bound.rebind_addresses(*addresses)
    return Route(call, row, bound, None, *used)


def plan_making() -> Any:
    """Return the module whose functions make plans, which is imported when plans may be made."""
    from collplan.dropin import making

    return making
