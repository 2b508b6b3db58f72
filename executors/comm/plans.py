"""The plans of one communicator: chosen by the table, made on first use, kept, and let go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from executors.comm.elements import unit_of
from executors.comm.messages import array_at
from executors.comm.statistics import Row, Statistics
from executors.mpi.binding import BoundPlan, bind
from executors.mpi.patterns import node_of_ranks
from executors.mpi.world import first_alone
from planner import compile_plan
from planner.operations import get_operation
from planner.plan import Buffer, Plan
from specs import COLLECTIVES, CollplanError, Operation, numpy_dtype
from specs.operation import LOGICAL
from specs.tuning import NATIVE, NATIVE_LABEL, Decision, Placement, TuningTable

Array = npt.NDArray[Any]

MAX_PLANS: Final = 32
"""Plans a communicator keeps; each has a communicator of MPI's, which are few."""
MAX_ENTRIES: Final = 4096
"""How many decisions are remembered before all that led to native calls are forgotten."""


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
    dtype : dtype, optional
        Of the plan's elements.
    n_sent, n_received : int
        Elements this rank's program uses of its buffers.
    """

    __slots__ = (
        "bound", "dtype", "is_native", "keys", "n_received", "n_sent", "number", "received_at",
        "request", "row", "sent_at",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        row: Row,
        bound: BoundPlan | None = None,
        dtype: np.dtype[Any] | None = None,
        n_sent: int = 0,
        n_received: int = 0,
    ) -> None:
        self.request, self.row, self.bound = request, row, bound
        self.is_native = bound is None
        self.dtype = np.dtype(np.uint8) if dtype is None else dtype
        self.n_sent, self.n_received = n_sent, n_received
        self.sent_at = self.received_at = 0
        self.number = -1
        self.keys: set[tuple[Any, ...]] = set()

    def use(self, sent_at: int, received_at: int) -> bool:
        """Bind the memory at two addresses; return whether a plan can use it as it is."""
        itemsize = self.dtype.itemsize
        if sent_at % itemsize or received_at % itemsize:
            return False
        assert self.bound is not None
        self.sent_at = self.received_at = -1
        sendbuf = array_at(sent_at, self.n_sent, self.dtype) if self.n_sent else None
        recvbuf = array_at(received_at, self.n_received, self.dtype) if self.n_received else None
        if self.n_sent or self.n_received:
            self.bound.rebind(sendbuf, recvbuf)
        self.sent_at, self.received_at = sent_at, received_at
        return True


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
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        table: TuningTable | None,
        operations: Mapping[int, str],
        statistics: Statistics,
        max_plans: int = MAX_PLANS,
    ) -> None:
        self.comm, self.table, self.operations = comm, table, operations
        self.statistics, self.max_plans = statistics, max_plans
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.ready: dict[tuple[Any, ...], Entry] = {}
        """Entries by what one rank's arguments look like; of this rank alone."""
        self.kept: OrderedDict[int, Entry] = OrderedDict()
        """Entries with plans by their numbers, the longest unused first."""
        self._decided: dict[Request, Entry] = {}
        self._n_bound = 0
        self._private: MPI.Intracomm | None = None
        self._placement: Placement | None = None
        sweeps = () if table is None else table.sweeps
        self._kinds = {sweep.collective for sweep in sweeps if sweep.complete}

    def entry(self, request: Request) -> Entry:
        """Return what to run; collective where a plan has to be made."""
        found = self._decided.get(request)
        if found is None:
            found = self._decided[request] = self._decide(request)
        return found

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
        if self._private is not None:
            self._private.Free()
            self._private = None

    def _decide(self, request: Request) -> Entry:
        reason = self._why_native(request)
        if reason is not None:
            return self._keep_native(request, Decision(NATIVE, NATIVE_LABEL, reason))
        assert self.table is not None, "without a table there is a reason for native"
        commutes = None if request.op is None else _commutes(request.op)
        decision = self.table.decide(
            request.kind, request.n_bytes, self.size, self.placement, commutes
        )
        if decision.choice.native:
            return self._keep_native(request, decision)
        return self._bind(request, decision)

    def _why_native(self, request: Request) -> str | None:
        if self.table is None:
            return "no table"
        if request.kind not in self._kinds:
            return f"no sweep of {request.kind}"
        if request.n_bytes == 0 and request.kind != "barrier":
            return "nothing to move"
        if COLLECTIVES[request.kind].has_op:
            return _why_not_reduced(request)
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
        plan, bound, problem = None, None, ""
        try:
            plan = self._compile(request, decision)
        except (CollplanError, MemoryError) as error:
            problem = str(error) or "the plan does not fit into memory"
        if self._all(plan is not None) and plan is not None:
            if len(self.kept) >= self.max_plans:
                self._drop_oldest()
            try:
                bound = bind(plan, self.private)
            except CollplanError as error:  # on all ranks, then
                problem = str(error)
        if bound is None or plan is None:
            why = f"{decision.label} cannot run here: {problem or 'not on another rank'}"
            return self._keep_native(request, Decision(NATIVE, NATIVE_LABEL, why))
        row = self._row(request, decision, planned=True)
        sizes = plan.buffer_sizes[self.rank]
        dtype = _dtype_of(request)
        sent, received = int(sizes[Buffer.SEND]), int(sizes[Buffer.RECV])
        entry = Entry(request, row, bound, dtype, sent, received)
        entry.number, self._n_bound = self._n_bound, self._n_bound + 1
        self.kept[entry.number] = entry
        return entry

    def _compile(self, request: Request, decision: Decision) -> Plan:
        assert self.table is not None
        machine = self.table.machine(self.placement)
        spec = decision.choice.plan_spec(machine, _collective(request))
        # Loops that are compiled to machine code on first use: one rank does, others read.
        if not self._n_bound:
            return first_alone(self.private, lambda: compile_plan(spec, rank=self.rank))
        return compile_plan(spec, rank=self.rank)

    def _all(self, is_good: bool) -> bool:
        worst = np.array([is_good], dtype=np.int32)
        self.private.Allreduce(MPI.IN_PLACE, worst, MPI.MIN)
        return bool(worst[0])

    def _drop_oldest(self) -> None:
        _, entry = self.kept.popitem(last=False)
        for key in entry.keys:
            self.ready.pop(key, None)
        del self._decided[entry.request]
        assert entry.bound is not None
        entry.bound.free()

    def _keep_native(self, request: Request, decision: Decision) -> Entry:
        if len(self._decided) >= MAX_ENTRIES:
            self._decided = {entry.request: entry for entry in self.kept.values()}
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


def _commutes(op: str) -> bool:
    return get_operation(op).commutative


def _why_not_reduced(request: Request) -> str | None:
    """Return why no plan can reduce so; None if one can."""
    if request.op is None:
        return "the operation is not one that plans know"
    if request.element is None:
        return "the datatype is not one that plans reduce"
    if request.element == "bool" and request.op not in LOGICAL:
        return f"{request.op} is not defined on bool"
    try:
        _operation(request.op).check_datatype(request.element)
    except ValueError as error:
        return str(error)
    return None


def _operation(op: str) -> Operation:
    return Operation(name=op, commutative=_commutes(op))


def _dtype_of(request: Request) -> np.dtype[Any]:
    if request.kind == "barrier":
        return np.dtype(np.uint8)
    return unit_of(request.n_bytes) if request.element is None else numpy_dtype(request.element)


def _collective(request: Request) -> Any:
    """Return the collective to plan: never in place, which ranks may differ in."""
    model: Any = COLLECTIVES[request.kind]
    if request.kind == "barrier":
        return model()
    dtype = _dtype_of(request)
    fields: dict[str, Any] = {
        "count": request.n_bytes // dtype.itemsize,
        "datatype": request.element or dtype.name,
    }
    if model.is_rooted:
        fields["root"] = request.root
    if request.op is not None:
        fields["op"] = _operation(request.op)
    return model(**fields)
