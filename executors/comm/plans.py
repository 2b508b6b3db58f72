"""The plans of one communicator: chosen by the table, made on first use, kept, and let go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from ctypes import memmove
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.comm.collectives import collective_of, commutes, dtype_of, why_not_reduced
from collplan.executors.comm.keys import IN_PLACE_AT
from collplan.executors.comm.kinds import KINDS
from collplan.executors.comm.loading import as_loaded
from collplan.executors.comm.meetings import Meetings
from collplan.executors.comm.statistics import Row, Statistics
from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.binding.meeting import DOING
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.measuring.patterns import node_of_ranks
from collplan.executors.mpi.watching.roll_call import RollCall
from collplan.planner import compile_plan
from collplan.planner.plan import Buffer, Plan
from collplan.specs import COLLECTIVES
from collplan.specs.tuning import NATIVE, NATIVE_LABEL, Decision, Placement, TuningTable

Array = npt.NDArray[Any]

MAX_PLANS: Final = 32
"""Plans a communicator keeps; each has a communicator of MPI's, which are few."""
NATIVE_CALLS: Final = 2
"""Equal calls that run natively before a plan is made, which few calls would not pay for."""
MAX_ENTRIES: Final = 4096
"""How many decisions are remembered before all that led to native calls are forgotten."""

_NOWHERE: Final = -2
_ALIGNED: Final = 64


@dataclass(frozen=True, slots=True)
class Request:
    """A collective as all ranks see it, whatever their buffers look like.

    Parameters
    ----------
    kind : str
    n_bytes : int
        Of MPI's count.
    root : int
        0 where there is none.
    op : str or None
        The operation's name in specs; None where there is none or no plan has it.
    element : str or None
        What is reduced.
    """

    kind: str
    n_bytes: int
    root: int = 0
    op: str | None = None
    element: str | None = None


class Entry:
    """What is known of a request: native, or a plan that is bound.

    Parameters
    ----------
    row : Row
        Where calls are counted.
    bound : BoundPlan, optional
        None for native.
    itemsize : int
        Bytes of the plan's elements.
    sent_bytes, received_bytes : int
        What this rank's program uses of its buffers.
    skip : int
        Bytes before this rank's input where it lies in the receive buffer.
    """

    __slots__ = (
        "_stage", "_stage_at", "bound", "is_native", "is_settled", "itemsize", "keys", "number",
        "received_at", "received_bytes", "request", "row", "sent_at", "sent_bytes", "skip",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        row: Row,
        bound: BoundPlan | None = None,
        itemsize: int = 1,
        sent_bytes: int = 0,
        received_bytes: int = 0,
        skip: int = 0,
    ) -> None:
        self.request, self.row, self.bound = request, row, bound
        self.is_native = bound is None
        self.is_settled = True
        """Whether all equal requests will run the same, as long as it is kept."""
        self.itemsize, self.skip = itemsize, skip
        self.sent_bytes, self.received_bytes = sent_bytes, received_bytes
        self.sent_at = self.received_at = _NOWHERE
        self.number = -1
        self.keys: set[tuple[Any, ...]] = set()
        self._stage: Array | None = None
        self._stage_at = 0

    def use(self, sent_at: int, received_at: int) -> bool:
        """Bind the memory at two addresses; return whether a plan can use it as it is.

        `IN_PLACE_AT` stands for memory of the entry's own, into which input in the receive
        buffer is copied.
        """
        if sent_at == IN_PLACE_AT or received_at == IN_PLACE_AT:
            stage_at = self._stage_at or self._make_stage()
            if received_at == IN_PLACE_AT:
                received_at = stage_at
            else:
                memmove(stage_at, received_at + self.skip, self.sent_bytes)
                sent_at = stage_at
        elif -self.sent_bytes < sent_at - received_at < self.received_bytes:
            return False  # they overlap
        itemsize = self.itemsize
        if sent_at % itemsize or received_at % itemsize:
            return False
        if sent_at != self.sent_at or received_at != self.received_at:
            # Should that fail, the next call tries again.
            self.sent_at = self.received_at = _NOWHERE
            self.bound.rebind_addresses(sent_at, received_at)  # type: ignore[union-attr]
            self.sent_at, self.received_at = sent_at, received_at
        return True

    def _make_stage(self) -> int:
        """Return where memory is that lives as long as the entry, aligned for any element."""
        n_bytes = max(self.sent_bytes, self.received_bytes)
        self._stage = np.empty(n_bytes + _ALIGNED, np.uint8)
        first = MPI.Get_address(self._stage)
        self._stage_at = first + -first % _ALIGNED
        return self._stage_at


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
        self.ready: dict[tuple[Any, ...], Entry] = {}
        """Entries by what one rank's arguments look like; of this rank alone."""
        self.kept: OrderedDict[int, Entry] = OrderedDict()
        """Entries with plans by their numbers, the longest unused first."""
        self._decided: dict[Request, Entry] = {}
        self._waiting: dict[Request, Waiting] = {}
        self._meetings: Meetings | None = None
        self._why_no_plans: str | None = None
        self._n_bound = 0
        self._private: MPI.Intracomm | None = None
        self._placement: Placement | None = None
        sweeps = () if table is None else table.sweeps
        self._kinds = {sweep.collective for sweep in sweeps if sweep.complete}

    def entry(self, request: Request) -> Entry:
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

    def _meet(self, request: Request) -> None:
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

    def remember(self, key: tuple[Any, ...], entry: Entry) -> None:
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

    def _decide(self, request: Request) -> Entry:
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

    def _why_native(self, request: Request) -> str | None:
        if self.table is None:
            return "no table"
        if self._why_no_plans is not None:
            return self._why_no_plans
        if request.kind not in self._kinds:
            return f"no sweep of {request.kind}"
        if request.n_bytes == 0 and request.kind != "barrier":
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

    def _bind(self, request: Request, decision: Decision) -> Entry:
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
        self, request: Request, decision: Decision, plan: Plan, bound: BoundPlan
    ) -> Entry:
        row = self._row(request, decision, planned=True)
        itemsize = dtype_of(request).itemsize
        sent, received = (
            int(plan.buffer_sizes[self.rank, which]) * itemsize
            for which in (Buffer.SEND, Buffer.RECV)
        )
        skip = self.rank * sent if KINDS[request.kind].sends_own_block else 0
        # The engine is built with the first buffers, which may fail, too: here all ranks see it.
        memory = np.empty(sent + received + 2 * _ALIGNED, np.uint8)
        first = MPI.Get_address(memory)
        sent_at = first + -first % _ALIGNED
        bound.rebind_addresses(sent_at, sent_at + sent + -sent % _ALIGNED)
        return Entry(request, row, bound, itemsize, sent, received, skip)

    def _compile(self, request: Request, decision: Decision) -> Plan:
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

    def _unsettled(self, request: Request, decision: Decision) -> Entry:
        """Return a native entry for some calls."""
        entry = Entry(request, self._row(request, decision, planned=False))
        entry.is_settled = False
        return entry

    def _keep_native(self, request: Request, decision: Decision) -> Entry:
        if len(self._decided) >= MAX_ENTRIES:
            self._decided = {entry.request: entry for entry in self.kept.values()}
            self._waiting.clear()
        return Entry(request, self._row(request, decision, planned=False))

    def _row(self, request: Request, decision: Decision, *, planned: bool) -> Row:
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
