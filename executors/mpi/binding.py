"""Bind a plan to a communicator and buffers: everything a start needs is decided here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from executors.mpi.cores import ranks_per_core
from executors.mpi.datatypes import MessageTypes
from executors.mpi.engine import Engine
from executors.mpi.errors import BindError
from executors.mpi.program import Program, rank_program
from executors.mpi.recording import Recorder, RecordingEngine
from executors.mpi.views import extent_views, local_action
from planner.operations import get_operation
from planner.plan import COLUMNS, Buffer, Op
from specs import CollplanError, numpy_dtype

if TYPE_CHECKING:
    from executors.mpi.views import Action
    from planner.plan import Plan

Array = npt.NDArray[Any]


class Applies(Protocol):
    """An associative operation on arrays, such as `planner.operations` has."""

    def apply(self, left: Array, right: Array, out: Array) -> None:
        """Write ``left op right`` into `out`."""


def bind(
    plan: Plan,
    comm: MPI.Intracomm,
    sendbuf: Array | None = None,
    recvbuf: Array | None = None,
    *,
    operation: Applies | None = None,
    recorder: Recorder | None = None,
) -> BoundPlan:
    """Bind a plan to a communicator and to this rank's buffers.

    Collective over `comm`: if one rank cannot bind, all raise.

    Parameters
    ----------
    plan : Plan
        A plan for as many ranks as `comm` has: the whole plan, or this rank's
        program; the same on all ranks.
    comm : MPI.Intracomm
        The communicator; the plan gets a duplicate, so its messages never
        meet others'.
    sendbuf, recvbuf : ndarray or None
        C-contiguous, with at least the elements the plan says, of one dtype
        whose size is the plan's. None where the plan uses none.
    operation : object with ``apply(left, right, out)``, optional
        The reduction; taken from the plan's spec by default.
    recorder : Recorder, optional
        Where to note when this rank's tasks start and end, which costs time.

    Returns
    -------
    BoundPlan
        To be started any number of times, then freed.

    Raises
    ------
    BindError
        If communicator, buffers or operation do not fit the plan, here or on
        another rank.
    UnsupportedPlanError
        If the plan uses shared buffers.
    """
    error: CollplanError | None = None
    prepared: tuple[Program, list[Array], Applies | None] | None = None
    try:
        prepared = _prepare(plan, comm, sendbuf, recvbuf, operation)
    except CollplanError as caught:
        error = caught
    _agree(plan, comm, error)
    assert prepared is not None
    return BoundPlan(plan, comm, *prepared, recorder)


class BoundPlan:
    """A plan bound to a communicator and buffers; made by `bind`.

    Like a persistent collective: `start`, then `test` or `wait`; a call does
    both. Between `start` and completion the buffers belong to the plan. As a
    context manager it frees itself.
    """

    def __init__(
        self,
        plan: Plan,
        comm: MPI.Intracomm,
        program: Program,
        buffers: list[Array],
        operation: Applies | None,
        recorder: Recorder | None = None,
    ) -> None:
        sharing = ranks_per_core(comm)
        self._comm = comm.Dup()
        self._types = MessageTypes(plan.itemsize)
        self._requests: list[MPI.Prequest | None] = []
        actions: list[Action | None] = []
        apply = operation.apply if operation is not None else None
        for task in range(program.n_tasks):
            if program.op[task] <= Op.RECV:
                self._requests.append(self._request(plan, program, task, buffers))
                actions.append(None)
            else:
                self._requests.append(None)
                actions.append(local_action(program, task, buffers, plan.patterns, apply))
        if recorder is None:
            self._engine = Engine(program, self._requests, actions, sharing)
        else:
            self._engine = RecordingEngine(program, self._requests, actions, sharing, recorder)

    def start(self) -> None:
        """Start the collective; the buffers belong to it until it completes."""
        self._require_idle("started")
        self._engine.start()

    def test(self) -> bool:
        """Advance the collective; return whether it has completed."""
        return self._engine.test()

    def wait(self) -> None:
        """Return when the collective has completed on this rank."""
        self._engine.wait()

    def __call__(self) -> None:
        """Start the collective and wait for it."""
        self.start()
        self._engine.wait()

    def free(self) -> None:
        """Free requests, datatypes and the communicator; collective, and harmless twice."""
        if self._comm == MPI.COMM_NULL:
            return
        self._require_idle("freed")
        for request in self._requests:
            if request is not None:
                request.Free()
        self._requests.clear()
        self._types.free()
        self._comm.Free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an error other ranks may be anywhere: freeing is collective and could hang.
        if error is None:
            self.free()

    def _require_idle(self, verb: str) -> None:
        if self._comm == MPI.COMM_NULL:
            raise BindError(f"the bound plan was freed: it cannot be {verb}; bind it again")
        if self._engine.is_running:
            raise BindError(
                f"the bound plan is still running: it cannot be {verb}; wait for it first"
            )

    def _request(
        self, plan: Plan, program: Program, task: int, buffers: list[Array]
    ) -> MPI.Prequest:
        is_send = program.op[task] == Op.SEND
        extents = program.reads if is_send else program.writes
        message = self._types.message(extent_views(buffers, plan.patterns, extents, task))
        init = self._comm.Send_init if is_send else self._comm.Recv_init
        return init(message, int(program.peer[task]), int(program.tag[task]))


def _prepare(
    plan: Plan,
    comm: MPI.Intracomm,
    sendbuf: Array | None,
    recvbuf: Array | None,
    operation: Applies | None,
) -> tuple[Program, list[Array], Applies | None]:
    """Check everything this rank can check alone; return what it runs on."""
    if comm.size != plan.n_ranks:
        raise BindError(
            f"the plan is for {plan.n_ranks} ranks, the communicator has {comm.size}; "
            f"start {plan.n_ranks} ranks or compile for {comm.size}"
        )
    if plan.only_rank not in (None, comm.rank):
        raise BindError(
            f"the plan holds the program of rank {plan.only_rank}, this is rank {comm.rank}; "
            f"compile with rank={comm.rank}"
        )
    sizes = plan.buffer_sizes[comm.rank]
    sent = _checked("sendbuf", sendbuf, int(sizes[Buffer.SEND]), plan.itemsize)
    received = _checked("recvbuf", recvbuf, int(sizes[Buffer.RECV]), plan.itemsize)
    if received is not None and not received.flags.writeable:
        raise BindError("recvbuf is read-only; pass a writable array")
    dtype = _common_dtype(plan, sent, received)
    program = rank_program(plan, comm.rank)
    _check_tags(program, comm)
    scratch = _scratch(int(sizes[Buffer.SCRATCH]), dtype)
    nothing = np.empty(0, dtype)
    buffers = [nothing if sent is None else sent, nothing if received is None else received]
    return program, [*buffers, scratch], _resolve_operation(plan, program, operation)


def _scratch(n_elements: int, dtype: np.dtype[Any]) -> Array:
    try:
        return np.empty(n_elements, dtype)
    except MemoryError:
        raise BindError(
            f"the plan's scratch of {n_elements * dtype.itemsize} bytes does not fit into memory; "
            "use a smaller count or another algorithm"
        ) from None


def _checked(name: str, array: object, n_elements: int, itemsize: int) -> Array | None:
    """Return a buffer as a flat array, or None if the plan does not use it."""
    if n_elements == 0:
        return None
    if array is None or array is MPI.IN_PLACE:
        raise BindError(f"{name} is missing: the plan uses {n_elements} elements of it; pass one")
    if not isinstance(array, np.ndarray):
        raise BindError(f"{name} is a {type(array).__name__}, must be a numpy array")
    if array.dtype.hasobject or array.itemsize != itemsize:
        raise BindError(
            f"{name} has dtype {array.dtype} of {array.itemsize} bytes an element, the plan's "
            f"elements have {itemsize}; use the datatype the plan was compiled for"
        )
    if not array.flags.c_contiguous:
        raise BindError(f"{name} is not C-contiguous; pass numpy.ascontiguousarray of it")
    if array.size < n_elements:
        raise BindError(
            f"{name} has {array.size} elements, the plan needs {n_elements} on this rank; "
            "pass a larger array or compile for a smaller count"
        )
    return array.reshape(-1)


def _common_dtype(plan: Plan, sent: Array | None, received: Array | None) -> np.dtype[Any]:
    """Return the dtype of scratch: the buffers' or, where there are none, the spec's."""
    known = [array.dtype for array in (sent, received) if array is not None]
    datatype = getattr(plan.spec.collective, "datatype", None) if plan.spec else None
    if len(known) == 2 and known[0] != known[1]:
        raise BindError(
            f"sendbuf has dtype {known[0]}, recvbuf {known[1]}; a collective has one datatype"
        )
    if known and datatype is not None and known[0] != numpy_dtype(datatype):
        name = "sendbuf" if sent is not None else "recvbuf"
        raise BindError(
            f"{name} has dtype {known[0]}, the plan was compiled for {datatype}; "
            "convert the array or compile for its datatype"
        )
    if known:
        return known[0]
    return np.dtype(f"V{plan.itemsize}") if datatype is None else numpy_dtype(datatype)


def _check_tags(program: Program, comm: MPI.Intracomm) -> None:
    largest = int(program.tag.max(initial=0))
    limit = comm.Get_attr(MPI.TAG_UB)
    if limit is not None and largest > limit:
        raise BindError(
            f"the plan uses tag {largest}, this MPI allows up to {limit}; "
            "compile with fewer or larger segments"
        )


def _resolve_operation(plan: Plan, program: Program, operation: Applies | None) -> Applies | None:
    if operation is not None or not np.any(program.op == Op.REDUCE):
        return operation
    op = getattr(plan.spec.collective, "op", None) if plan.spec else None
    if op is None:
        raise BindError("the plan reduces but names no operation; pass operation=")
    return get_operation(op.name)


def _agree(plan: Plan, comm: MPI.Intracomm, error: CollplanError | None) -> None:
    """Raise on all ranks if one has an error or another plan."""
    shape, whole = _digests(plan)
    mine = np.array(
        [
            comm.size if error is None else comm.rank,
            *(shape, ~shape, whole, ~whole, np.uint64(plan.only_rank is None)),
        ],
        dtype=np.uint64,
    )
    lowest = np.empty_like(mine)
    comm.Allreduce(mine, lowest, MPI.MIN)
    culprit = int(lowest[0])
    if culprit < comm.size:
        text = comm.bcast(str(error), root=culprit)
        raise error or BindError(f"rank {culprit} cannot bind the plan: {text}")
    # The minimum of the complement is the complement of the maximum.
    if lowest[1] != ~lowest[2] or (lowest[5] and lowest[3] != ~lowest[4]):
        raise BindError(
            f"rank {comm.rank} binds a plan of digest {int(shape):016x}, other ranks another; "
            "compile the same spec on all ranks"
        )


def _digests(plan: Plan) -> tuple[np.uint64, np.uint64]:
    """Return digests of what any two ranks' programs share, and of the whole plan."""
    # A rank's own program need not know the scratch of others.
    callers = plan.buffer_sizes[:, : Buffer.SCRATCH]
    shared = [np.array([plan.itemsize, plan.n_ranks]), callers, plan.rank_node]
    text = plan.spec.to_json() if plan.spec is not None else ""
    shape = _digest(shared, text)
    if plan.only_rank is not None:
        return shape, np.uint64(0)
    columns = [getattr(plan, name) for name in COLUMNS] + [plan.patterns, plan.buffer_sizes]
    for part in (plan.reads, plan.writes, plan.deps):
        columns += [getattr(part, field.name) for field in fields(part)]
    return shape, _digest(columns, text)


def _digest(arrays: Sequence[Array], text: str) -> np.uint64:
    digest = hashlib.blake2b(text.encode(), digest_size=8)
    for array in arrays:
        # A constant column is stored once; its length and value say all.
        stored = array[:1] if array.strides == (0,) else array
        digest.update(f"{array.shape}{array.dtype.str}{len(stored)}".encode())
        digest.update(np.ascontiguousarray(stored).data)
    return np.uint64(int.from_bytes(digest.digest(), "little"))
