"""Bind a plan to a communicator and buffers: everything a start needs is decided here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.bind.agreement import DOING, Claim, agree, bad_timeout, is_timeout
from collplan.executors.mpi.bind.prepared import Prepared
from collplan.executors.mpi.engine.background import (
    Background,
    Progress,
    ProgressBy,
    Wish,
    is_placed,
    place_background,
    why_not_placed,
)
from collplan.executors.mpi.engine.engine_choice import (
    Applies,
    Choice,
    EngineName,
    choose_engine,
    load_by_turns,
)
from collplan.executors.mpi.engine.engines import (
    AnyEngine,
    CompiledBinding,
    NoEngine,
    PythonBinding,
)
from collplan.executors.mpi.engine.node_memory import NodeMemory
from collplan.executors.mpi.errors import BindError, StallError, still_running
from collplan.executors.mpi.host.cores import ranks_per_core
from collplan.executors.mpi.host.peers import Peers
from collplan.executors.mpi.program.program import shares_memory
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.executors.mpi.stall.watchdog import Watch
from collplan.planner.plan.plan import COLUMNS, Buffer

if TYPE_CHECKING:
    from collplan.executors.mpi.engine.recording import Recorder
    from collplan.planner.plan.plan import Plan

Array = npt.NDArray[Any]


def bind(
    plan: Plan,
    comm: MPI.Intracomm,
    sendbuf: Array | None = None,
    recvbuf: Array | None = None,
    *,
    operation: Applies | None = None,
    engine: EngineName | None = None,
    recorder: Recorder | None = None,
    timeout_s: float | None = None,
    progress: Progress = "auto",
    cores: Sequence[int] | None = None,
) -> BoundPlan:
    """Bind a plan to a communicator and to this rank's buffers.

    Collective over `comm`: if one rank cannot bind, all raise.

    Parameters
    ----------
    plan : Plan
        A plan for as many ranks as `comm` has: the whole plan, or this rank's
        program; the same on all ranks.
    comm : MPI.Intracomm
        An intracommunicator; the plan gets a duplicate, so its messages never
        meet others'.
    sendbuf, recvbuf : ndarray or None
        C-contiguous, with at least the elements the plan says, of one dtype
        whose size is the plan's. They must not overlap. None where the plan
        uses none. Without any,
        `BoundPlan.allocate` or `BoundPlan.rebind` must provide them before a
        start.
    operation : object with ``apply(left, right, out)``, optional
        The reduction; taken from the plan's spec by default.
    engine : {"compiled", "python"}, optional
        What runs the tasks; by default the compiled engine, and Python where
        that cannot. Results are the same.
    recorder : Recorder, optional
        Where to note when this rank's tasks start and end, which costs time.
    timeout_s : float, optional
        How long to wait for other ranks here, and later in a start, a wait or
        tests without any task's end. Then every rank that waits says on
        standard error what for, and the job is aborted. By default for ever.
    progress : {"auto", "caller", "thread"}
        Who runs background tasks that the plan puts on communication cores: a
        thread on the processors of those cores, where that can be, or the
        caller's. "thread" does not do without.
    cores : sequence of int, optional
        The processor of each core of this rank's node; several cores may have
        the same. By default those that the node's ranks may use, in ascending
        order, if there are enough.

    Returns
    -------
    BoundPlan
        To be started any number of times, then freed.

    Raises
    ------
    BindError
        If communicator, buffers, operation, engine, progress or cores do not fit
        the plan, here or on another rank.
    UnsupportedPlanError
        If ranks wait for each other but share no memory.
    StallError
        If a rank did not come in time: the job has been told to end.
    Exception
        Whatever else goes wrong on this rank; the others raise a `BindError` that names it.
    """
    if comm.Is_inter():
        raise BindError(
            "comm is an intercommunicator, plans run among the ranks of one group; "
            "pass an intracommunicator, such as comm.Merge() returns"
        )
    wish = Wish(progress, cores)
    limit_s = timeout_s if is_timeout(timeout_s) else None
    # What fails on one rank, for whatever reason, all ranks learn: none waits for another.
    try:
        if limit_s != timeout_s:
            raise bad_timeout(timeout_s)
        prepared = Prepared(plan, comm, sendbuf, recvbuf, operation)
        wish.check(plan, comm.rank)
        choice = choose_engine(
            engine, prepared.program, prepared.dtype, prepared.operation, recorder
        )
        shape, whole = _digests(plan)
        claim = Claim(
            error=None,
            shape=shape,
            whole=whole,
            dtype=None if prepared.arrays is None else prepared.dtype_name,
            operation=prepared.operation_name,
            is_loaded=choice.is_loaded,
            shares_memory=shares_memory(plan),
            is_watched=limit_s is not None,
            has_background=progress == "thread" or is_placed(plan, prepared.program, comm.rank),
        )
    except Exception as error:
        claim = Claim.of_error(error, is_watched=limit_s is not None)
    agreed = agree(plan, comm, claim, limit_s)
    own = _duplicate(comm, agreed.limit_s)
    call = RollCall(own, agreed.limit_s, DOING)
    node: NodeMemory | None = None
    bound: BoundPlan | None = None

    def finish() -> BoundPlan:
        nonlocal bound
        bound = BoundPlan(plan, own, prepared, choice, background, node, call, recorder)
        if prepared.arrays is not None:
            bound._use(prepared.arrays)
        return bound

    try:
        if not agreed.is_loaded:
            load_by_turns(own, choice, call)
        background: Background | str = why_not_placed(plan, own.rank)
        if agreed.has_background:
            background = place_background(plan, own.rank, prepared.program, choice, wish, call)
        if agreed.shares_memory:
            node = NodeMemory(plan, prepared.program, own, call)
        return call.together(finish)
    except StallError:
        raise
    except Exception:  # on all ranks
        if bound is not None:
            bound._binding.free()
        if node is not None:
            node.free(call)
        own.Free()
        raise


class BoundPlan:
    """A plan bound to a communicator and buffers; made by `bind`.

    Like a persistent collective: `start`, then `test` or `wait`; a call does
    both. Between `start` and completion the buffers belong to the plan. As a
    context manager it frees itself.

    Attributes
    ----------
    engine : {"compiled", "python"}
        What runs the tasks.
    why_python : str or None
        Why the compiled engine does not; None if it does.
    progress : {"thread", "caller"}
        Who runs background tasks: a thread on communication cores, or whoever calls.
    why_caller : str or None
        Why no thread does; None if one does.
    lacks_thread : bool
        Whether the plan has communication cores for this rank, and no thread uses them.
    """

    def __init__(
        self,
        plan: Plan,
        comm: MPI.Intracomm,
        prepared: Prepared,
        choice: Choice,
        background: Background | str,
        node: NodeMemory | None,
        call: RollCall,
        recorder: Recorder | None = None,
    ) -> None:
        self.engine: EngineName = choice.name
        self.why_python = choice.why_python
        self.why_caller = background if isinstance(background, str) else None
        self.progress: ProgressBy = "thread" if self.why_caller is None else "caller"
        self.lacks_thread = self.progress == "caller" and is_placed(
            plan, prepared.program, comm.rank
        )
        sharing = ranks_per_core(comm)
        self._comm, self._node = comm, node
        self._buffers = prepared.buffers
        self._timeout_s = call.timeout_s
        program = prepared.program
        watch = None
        if call.timeout_s is not None:
            watch = Watch(comm, plan, program, call.timeout_s, Peers(comm, call.wait))
        self._binding: CompiledBinding | PythonBinding
        if choice.name == "compiled":
            self._binding = CompiledBinding(
                plan,
                program,
                self._comm,
                sharing,
                choice.load(),
                watch,
                self._node,
                None if isinstance(background, str) else background,
            )
        else:
            operation = prepared.operation
            self._binding = PythonBinding(
                plan, program, self._comm, sharing, operation, recorder, watch, self._node
            )
        self._engine: AnyEngine = NoEngine(
            "the bound plan has no buffers; call allocate() or rebind()"
        )

    def start(self) -> None:
        """Start the collective; the buffers belong to it until it completes."""
        self._engine.start()

    def test(self) -> bool:
        """Advance the collective; return whether it has completed."""
        return self._engine.test()

    def wait(self) -> None:
        """Return when the collective has completed on this rank."""
        self._engine.wait()

    def __call__(self) -> None:
        """Start the collective and wait for it."""
        self._engine.run()

    def rebind(self, sendbuf: Array | None = None, recvbuf: Array | None = None) -> None:
        """Use other buffers of this rank from the next start on; not collective.

        Parameters
        ----------
        sendbuf, recvbuf : ndarray or None
            As for `bind`, of the dtype bound before.

        Raises
        ------
        BindError
            If they do not fit the plan, or it is running or freed.
        """
        self._require_idle("given other buffers")
        self._use(self._buffers.check(sendbuf, recvbuf))

    def rebind_addresses(self, sent_at: int, received_at: int) -> None:
        """Use memory at other addresses from the next start on; not collective.

        Where nothing but addresses changes, it takes a fraction of what `rebind` does.
        Nothing keeps the memory alive, and nothing sees whether it is large enough.

        Parameters
        ----------
        sent_at, received_at : int
            Where as many of the plan's elements lie, aligned, as this rank's program uses
            of its send and receive buffer; any number for a buffer that it uses nothing of.

        Raises
        ------
        BindError
            If the plan is running or freed.
        """
        if self._engine.move(sent_at, received_at):
            return
        self._require_idle("given other buffers")
        self._use(self._buffers.at(sent_at, received_at))

    @property
    def is_expected(self) -> bool:
        """Return whether another rank has started what this one has not.

        As far as messages to this rank, and memory that it shares, tell; of a plan that is
        running nothing is known.
        """
        if self._engine.is_running:
            return False
        node = self._node
        is_past = node is not None and node.any_is_past(self._binding.epoch)
        return is_past or self._comm.Iprobe()

    def allocate(self) -> tuple[Array, Array]:
        """Return a send and a receive buffer of the plan's size, and use them from now on.

        They begin on pages of their own and hold no values yet. Where the plan uses
        no such buffer on this rank, it is empty.

        Where ranks share memory, a buffer lies where the plan would copy it to for
        others to read, if it can, on a cache line of its own, and that copy is saved.
        From then on a start ends on this rank when all ranks of its node have completed
        it, and the call itself waits until they have completed the last one. The arrays
        outlive the plan, and a start with other buffers overwrites them.

        Raises
        ------
        BindError
            If the plan is running or freed.
        """
        self._require_idle("given other buffers")
        sendbuf, recvbuf = self._buffers.allocate(self._node)
        if self._node is not None and max(self._node.mirrors) >= 0:
            # The caller writes there before the next start: nobody may read there still.
            self._node.wait_for_others(self._binding.epoch, self._comm, self._timeout_s)
            self._binding.end_together()
        self._use(self._buffers.check(sendbuf, recvbuf))
        return sendbuf, recvbuf

    def free(self) -> None:
        """Free requests, datatypes and the communicator; collective, and harmless twice."""
        if self._comm == MPI.COMM_NULL:
            return
        self._require_idle("freed")
        call = RollCall(self._comm, self._timeout_s, "free the plan")
        call.before_blocking()
        self._engine = NoEngine("the bound plan was freed: it cannot be started; bind it again")
        self._binding.free()
        if self._node is not None:
            self._node.free(call)
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

    def _use(self, arrays: list[Array]) -> None:
        """Take buffers that were checked, and the node's."""
        dtype = arrays[0].dtype
        shared = np.empty(0, dtype) if self._node is None else self._node.buffer(dtype)
        self._engine = self._binding.use([*arrays, shared])

    def _require_idle(self, verb: str) -> None:
        if self._comm == MPI.COMM_NULL:
            raise BindError(f"the bound plan was freed: it cannot be {verb}; bind it again")
        if self._engine.is_running:
            raise still_running(verb)


def _duplicate(comm: MPI.Intracomm, limit_s: float | None) -> MPI.Intracomm:
    """Return a communicator for a plan's own messages, which knows how ranks share cores."""
    call = RollCall(comm, limit_s, DOING, listens=False)
    call.before_blocking()
    ranks_per_core(comm)
    # Not Dup: where ranks share cores, it keeps those that others need.
    own, request = comm.Idup()
    call.wait(request)
    # Errors become exceptions, whatever the communicator at hand does with its own.
    own.Set_errhandler(MPI.ERRORS_RETURN)
    return own


def _digests(plan: Plan) -> tuple[int, int | None]:
    """Return digests of what any two ranks' programs share, and of the whole plan if it is one."""
    # A rank's own program need not know the scratch of others.
    callers = plan.buffer_sizes[:, : Buffer.SCRATCH]
    shared = [np.array([plan.itemsize, plan.n_ranks]), callers, plan.rank_node]
    text = plan.spec.to_json() if plan.spec is not None else ""
    shape = _digest(shared, text)
    if plan.only_rank is not None:
        return shape, None
    columns = [getattr(plan, name) for name in COLUMNS] + [plan.patterns, plan.buffer_sizes]
    columns += [plan.shared_sizes, plan.mirrors]
    for part in (plan.reads, plan.writes, plan.deps):
        columns += [getattr(part, field.name) for field in fields(part)]
    return shape, _digest(columns, text)


def _digest(arrays: Sequence[Array], text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8)
    for array in arrays:
        # A constant column is stored once; its length and value say all.
        stored = array[:1] if array.strides == (0,) else array
        digest.update(f"{array.shape}{array.dtype.str}{len(stored)}".encode())
        digest.update(np.ascontiguousarray(stored).data)
    return int.from_bytes(digest.digest(), "little")
