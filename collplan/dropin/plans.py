"""The plans of one communicator: chosen by the table, made on first use, kept, and let go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.agreement import Meetings
from collplan.dropin.as_specs import collective_of, commutes, dtype_of, why_not_reduced
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.loading import as_loaded
from collplan.dropin.routes import ALIGNMENT, Route
from collplan.dropin.signatures import KINDS
from collplan.dropin.statistics import Row, Statistics
from collplan.executors.mpi.binding.agreement import DOING
from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.measure.lanes import node_of_ranks
from collplan.planner import compile_plan
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs import COLLECTIVES
from collplan.tune.table import NATIVE, NATIVE_LABEL, Decision, Placement, TuningTable

Array = npt.NDArray[Any]

MAX_PLANS: Final = 32
"""Plans a communicator keeps; each has a communicator of MPI's, which are few."""
NATIVE_CALLS: Final = 2
"""Equal calls that run natively before a plan is made, which few calls would not pay for."""
MAX_ENTRIES: Final = 4096
"""How many decisions are remembered before all that led to native calls are forgotten."""


@dataclass(slots=True)
class Waiting:
    """A request that runs natively until its plan is worth making.

    Parameters
    ----------
    decision : Decision
        To make a plan.
    n_left : int
        Calls until then.
    """

    decision: Decision
    n_left: int


class Plans:
    """Decisions and bound plans of a communicator.

    What is decided depends on requests alone, which are equal on all ranks and come in the
    same order. So all make, bind and free the same plans in the same calls.

    Parameters
    ----------
    comm : MPI.Intracomm
        Native; the ranks.
    table : TuningTable or None
        What to run; None for all native.
    operations : mapping of int to str
        Operations of plans by the handles of MPI's.
    statistics : Statistics
        Where calls are counted.
    max_plans : int
        How many plans are kept at most.
    native_calls : int
        How many equal requests run natively before a plan is made for them.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        table: TuningTable | None,
        operations: Mapping[int, str],
        statistics: Statistics,
        max_plans: int = MAX_PLANS,
        native_calls: int = NATIVE_CALLS,
    ) -> None:
        self.comm, self.table, self.operations = comm, table, operations
        self.statistics, self.max_plans = statistics, max_plans
        self.native_calls = native_calls
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.ready: dict[tuple[Any, ...], Route] = {}
        """Entries by what one rank's arguments look like; of this rank alone."""
        self.kept: OrderedDict[int, Route] = OrderedDict()
        """Entries with plans by their numbers, the longest unused first."""
        self._decided: dict[CollectiveCall, Route] = {}
        self._waiting: dict[CollectiveCall, Waiting] = {}
        self._meetings: Meetings | None = None
        self._why_no_plans: str | None = None
        self._n_bound = 0
        self._private: MPI.Intracomm | None = None
        self._placement: Placement | None = None
        sweeps = () if table is None else table.sweeps
        self._kinds = {sweep.collective for sweep in sweeps if sweep.complete}

    def entry(self, request: CollectiveCall) -> Route:
        """Return what to run; collective at first, and where a plan has to be made.

        Raises
        ------
        Different
            If all ranks came, and ask for different things.
        MPI.Exception, CollplanError
            If others are in another call, as far as this rank can see.
        """
        found = self._decided.get(request)
        if found is None:
            self._meet(request)
            found = self._decided[request] = self._decide(request)
        waiting = self._waiting.get(request)
        if waiting is None:
            return found
        if waiting.n_left:
            waiting.n_left -= 1
            return found
        del self._waiting[request]
        found = self._decided[request] = self._bind(request, waiting.decision)
        return found

    def _meet(self, request: CollectiveCall) -> None:
        """See that all ranks have come with the same; collective where plans are made."""
        if request.kind not in self._kinds:
            return
        if self._meetings is None:
            try:
                self._meetings = Meetings(self.private)
            except MPI.Exception as error:  # on all ranks: MPI's communicators are few
                self._kinds = set()
                self._why_no_plans = f"plans cannot have a communicator: {one_line(error)}"
                return
        self._meetings.all_bring(request, self.kept.values())

    def remember(self, key: tuple[Any, ...], entry: Route) -> None:
        """Let `ready` find an entry by this rank's arguments."""
        if len(self.ready) >= MAX_ENTRIES:
            self.ready.clear()
        self.ready[key] = entry
        entry.keys.add(key)

    def free(self) -> None:
        """Free all plans; collective."""
        while self.kept:
            self._drop_oldest()
        self.ready.clear()
        if self._meetings is not None:
            self._meetings.end()
            self._meetings = None
        if self._private is not None:
            self._private.Free()
            self._private = None

    def _decide(self, request: CollectiveCall) -> Route:
        reason = self._why_native(request)
        if reason is not None:
            return self._keep_native(request, Decision(NATIVE, NATIVE_LABEL, reason))
        assert self.table is not None, "without a table there is a reason for native"
        is_commuting = None if request.op is None else commutes(request.op)
        decision = self.table.decide(
            request.kind, request.n_bytes, self.size, self.placement, is_commuting
        )
        if decision.choice.native:
            return self._keep_native(request, decision)
        if self.native_calls == 0:
            return self._bind(request, decision)
        self._waiting[request] = Waiting(decision, self.native_calls)
        why = f"a plan takes time to make: {decision.label} from call {self.native_calls + 1} on"
        native_s = decision.native_s
        return self._unsettled(request, Decision(NATIVE, NATIVE_LABEL, why, native_s, native_s))

    def _why_native(self, request: CollectiveCall) -> str | None:
        if self.table is None:
            return "no table"
        if self._why_no_plans is not None:
            return self._why_no_plans
        if request.kind not in self._kinds:
            return f"no sweep of {request.kind}"
        if request.n_bytes == 0 and COLLECTIVES[request.kind].has_data:
            return "nothing to move"
        if COLLECTIVES[request.kind].has_op:
            return why_not_reduced(request)
        return None

    @property
    def placement(self) -> Placement:
        """Return where the ranks are; collective on first use."""
        if self._placement is None:
            self._placement = Placement.of_nodes(node_of_ranks(self.private))
        return self._placement

    @property
    def private(self) -> MPI.Intracomm:
        """Return a communicator of the same ranks that only plans use; collective at first.

        A duplicate would have the user's attributes copied, which calls the user's code.
        """
        if self._private is None:
            group = self.comm.Get_group()
            self._private = cast("MPI.Intracomm", self.comm.Create(group))
            group.Free()
        return self._private

    def _bind(self, request: CollectiveCall, decision: Decision) -> Route:
        """Return an entry with a plan; a native one where any rank fails at it, whyever."""
        call = RollCall(self.private, None, DOING)
        bound: BoundPlan | None = None
        try:
            with as_loaded():
                plan = call.together(lambda: self._compile(request, decision))
                if len(self.kept) >= self.max_plans:
                    self._drop_oldest()
                bound = made = bind(plan, self.private)
                entry = call.together(lambda: self._entry_of(request, decision, plan, made))
        except Exception as error:  # on all ranks
            if bound is not None:
                bound.free()
            why = f"{decision.label} cannot run here: {one_line(error)}"
            return self._keep_native(request, Decision(NATIVE, NATIVE_LABEL, why))
        entry.number, self._n_bound = self._n_bound, self._n_bound + 1
        self.kept[entry.number] = entry
        return entry

    def _entry_of(
        self, request: CollectiveCall, decision: Decision, plan: Plan, bound: BoundPlan
    ) -> Route:
        row = self._row(request, decision, planned=True)
        itemsize = dtype_of(request).itemsize
        sent, received = (
            int(plan.buffer_sizes[self.rank, which]) * itemsize
            for which in (Buffer.SEND, Buffer.RECV)
        )
        skip = self.rank * sent if KINDS[request.kind].sends_own_block else 0
        # The engine is built with the first buffers, which may fail, too: here all ranks see it.
        memory = np.empty(sent + received + 2 * ALIGNMENT, np.uint8)
        first = MPI.Get_address(memory)
        sent_at = first + -first % ALIGNMENT
        bound.rebind_addresses(sent_at, sent_at + sent + -sent % ALIGNMENT)
        return Route(request, row, bound, itemsize, sent, received, skip)

    def _compile(self, request: CollectiveCall, decision: Decision) -> Plan:
        assert self.table is not None
        machine = self.table.machine(self.placement)
        spec = decision.choice.plan_spec(machine, collective_of(request))
        return compile_plan(spec, rank=self.rank)

    def _drop_oldest(self) -> None:
        _, entry = self.kept.popitem(last=False)
        for key in entry.keys:
            self.ready.pop(key, None)
        del self._decided[entry.request]
        assert entry.bound is not None
        entry.bound.free()

    def _unsettled(self, request: CollectiveCall, decision: Decision) -> Route:
        """Return a native entry for some calls."""
        entry = Route(request, self._row(request, decision, planned=False))
        entry.is_settled = False
        return entry

    def _keep_native(self, request: CollectiveCall, decision: Decision) -> Route:
        if len(self._decided) >= MAX_ENTRIES:
            self._decided = {entry.request: entry for entry in self.kept.values()}
            self._waiting.clear()
        return Route(request, self._row(request, decision, planned=False))

    def _row(self, request: CollectiveCall, decision: Decision, *, planned: bool) -> Row:
        return self.statistics.row(
            request.kind,
            decision.label,
            decision.why,
            self.size,
            request.n_bytes,
            planned=planned,
            native_s=decision.native_s,
            chosen_s=decision.chosen_s,
        )
