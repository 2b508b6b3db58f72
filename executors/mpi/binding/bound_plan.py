"""Binding of a plan to a communicator and buffers, which prepares starts of the plan."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Literal, Self

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.agreement import DOING, Agreement, agree
from collplan.executors.mpi.binding.background import place_background, why_not_placed
from collplan.executors.mpi.binding.prepared import Prepared, Progress, Wish, prepare
from collplan.executors.mpi.engine.computations import Functions
from collplan.executors.mpi.engine.engine import Engine
from collplan.executors.mpi.engine.loop_memory import LoopMemory, Recorder
from collplan.executors.mpi.engine.node_memory import NodeMemory
from collplan.executors.mpi.engine.progress_thread import Background
from collplan.executors.mpi.engine.reduction import load_by_turns
from collplan.executors.mpi.errors import BindError, failed_before, still_running
from collplan.executors.mpi.host.cores import Peers, ranks_per_core
from collplan.executors.mpi.program.calls import Calls
from collplan.executors.mpi.program.elements import Applies, elements_of
from collplan.executors.mpi.stall.timed_collectives import RollCall, freed_on_error
from collplan.executors.mpi.stall.watchdog import Watch
from collplan.planner.arrays import Array
from collplan.planner.plan.plan import Plan

ProgressBy = Literal["thread", "caller"]
_kept: list[object] = []
"""Memory that stays until the process ends."""


def bind(
    plan: Plan,
    comm: MPI.Intracomm,
    sendbuf: Array | None = None,
    recvbuf: Array | None = None,
    *,
    operation: Applies | None = None,
    recorder: Recorder | None = None,
    timeout_s: float | None = None,
    progress: Progress = "auto",
    cores: Sequence[int] | None = None,
    computations: Functions | None = None,
) -> BoundPlan:
    """Bind a plan to a communicator and to this rank's buffers; collective.

    Parameters
    ----------
    plan : Plan
        Plan for the ranks of `comm`: the plan of all ranks, or this rank's program.
    comm : MPI.Intracomm
        Communicator of the ranks. The plan uses a duplicate, so that its messages are separate
        from all other messages.
    sendbuf, recvbuf : ndarray or None
        C-contiguous arrays that do not overlap, of one dtype with the plan's element size; None if
        unused. If both are missing, `BoundPlan.allocate` or `BoundPlan.rebind` must provide them.
    operation : object with ``apply(left, right, out)``, optional
        The reduction. The default is the operation of the plan's spec.
    recorder : Recorder, optional
        Recorder of the times at which this rank's tasks start and end.
    timeout_s : float, optional
        Time limit for other ranks, here and in starts, waits and tests in which no task ends; by
        default none. Then, waiting ranks report what they wait for, and the job is aborted.
    progress : {"auto", "caller", "thread"}
        Runner of background tasks on communication cores: the caller, or a thread on their
        processors. "auto" uses a thread if possible.
    cores : sequence of int, optional
        Processor of each core of this rank's node. Several cores may have the same processor.
        The default is the processors that the node's ranks may use, in ascending order.
    computations : mapping of str to callable or int, optional
        Functions of a program's computations, see `Computations`. Others keep the core busy.

    Returns
    -------
    BoundPlan
        A plan that can be started any number of times, and must be freed.

    Raises
    ------
    BindError
        If an argument does not fit the plan, or if another rank raises an error.
    UnsupportedPlanError
        If tasks wait for tasks of other ranks without shared memory.
    StallError
        If a rank did not arrive in time. The job is then being aborted.
    """
    wish = Wish(progress, cores, operation, recorder, timeout_s, computations)
    claim, prepared = prepare(plan, comm, (sendbuf, recvbuf), wish)
    agreed = agree(plan, comm, claim)
    assert prepared is not None  # or all ranks have raised
    return BoundPlan(comm, prepared, agreed)


class _NoEngine:
    """Stand-in for the engine of a bound plan without buffers, or one that was freed.

    Parameters
    ----------
    reason : str
        Reason why nothing can be started, with the remedy.
    """

    is_running = False
    failure = None
    epoch = 0

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self) -> None:
        """Raise an error."""
        raise BindError(self._reason)

    run = start

    def repeat(self, n_runs: int) -> None:
        """Raise an error."""
        self.start()

    def test(self) -> bool:
        """Return True: nothing is running."""
        return True

    def wait(self) -> None:
        """Return: nothing is running."""

    def end_thread(self) -> bool:
        """Return True: there is no thread."""
        return True

    def free(self) -> None:
        """Return: there is nothing to free."""


class BoundPlan:
    """A plan that is bound to a communicator and buffers, as `bind` returns it.

    Use it like a persistent collective of MPI: call `start`, then `test` until it returns
    True, or `wait`. Calling the object starts and waits. Do not access the buffers between
    `start` and completion. At the end of a ``with`` block it is freed.

    Attributes
    ----------
    why_callback : str or None
        Reason why Python executes reductions; None if machine code does or there are none.
    progress : {"thread", "caller"}
        Runner of background tasks: a thread on communication cores, or the calling thread.
    why_caller : str or None
        Reason why no thread runs them; None if a thread does.
    lacks_thread : bool
        Whether the plan has communication cores for this rank, and no thread uses them.
    """

    def __init__(self, comm: MPI.Intracomm, prepared: Prepared, agreed: Agreement) -> None:
        self._buffers, self._timeout_s = prepared.buffers, agreed.limit_s
        self._comm = _duplicate(comm, agreed.limit_s)
        self._node: NodeMemory | None = None
        self._calls: Calls | None = None
        self._ends_together, self._has_background = False, agreed.has_background
        self._engine: Engine | _NoEngine = _NoEngine(
            "the bound plan has no buffers; call allocate() or rebind()"
        )
        call = RollCall(self._comm, agreed.limit_s, DOING)
        with freed_on_error(lambda: self._free(call)):
            self._acquire(prepared, agreed, call)
            call.together(lambda: self._assemble(prepared, call))

    def _acquire(self, prepared: Prepared, agreed: Agreement, call: RollCall) -> None:
        """Load machine code, place a thread, and create the node's memory; collective."""
        if not agreed.is_loaded:
            load_by_turns(self._comm, prepared.reduction, call)
        place: Background | str = why_not_placed(prepared)
        if agreed.has_background:
            place = place_background(prepared, call)
        if any(phase.is_native for phase in prepared.plan.phases):
            call.before_blocking()
            self._calls = call.together(partial(_make_calls, prepared, self._comm))
        if agreed.shares_memory:
            self._node = NodeMemory(prepared.plan, prepared.program, self._comm, call)
        self._background = None if isinstance(place, str) else place
        self.why_callback = prepared.reduction.why_callback
        self.why_caller = place if isinstance(place, str) else None
        self.progress: ProgressBy = "thread" if self.why_caller is None else "caller"
        self.lacks_thread = self.progress == "caller" and prepared.is_placed

    def _assemble(self, prepared: Prepared, call: RollCall) -> None:
        """Prepare the parts of an engine, and create it if there are buffers."""
        comm, program, watch = self._comm, prepared.program, None
        if call.timeout_s is not None:
            peers = Peers(comm, call.wait)
            watch = Watch(comm, prepared.plan, program, call.timeout_s, peers)
        recorder = prepared.wish.recorder
        make = partial(Engine, program, comm=comm, reduction=prepared.reduction, node=self._node)
        calls = None if self._calls is None else self._calls.table
        self._make = partial(
            make,
            background=self._background,
            recorder=recorder,
            watch=watch,
            calls=calls,
            computations=prepared.computations,
        )
        if prepared.arrays is not None:
            self._use(prepared.arrays)

    def start(self) -> None:
        """Start the collective, which uses the buffers until it completes."""
        self._engine.start()

    def test(self) -> bool:
        """Advance the collective; return whether it has completed."""
        return self._engine.test()

    def wait(self) -> None:
        """Wait until the collective has completed on this rank."""
        self._engine.wait()

    def __call__(self) -> None:
        """Start the collective and wait for it."""
        self._engine.run()

    def repeat(self, n_runs: int) -> None:
        """Start the collective and wait for it `n_runs` times, without Python between the runs.

        Programs in C run plans in this way. No other plan of this thread may be running.
        """
        self._engine.repeat(n_runs)

    def rebind(self, sendbuf: Array | None = None, recvbuf: Array | None = None) -> None:
        """Use other buffers on this rank, from the next start on; not collective.

        Parameters
        ----------
        sendbuf, recvbuf : ndarray or None
            Buffers as for `bind`, of the dtype that was bound before.

        Raises
        ------
        BindError
            If the buffers do not fit the plan, or if the plan is running or freed.
        """
        self._require_idle("given other buffers")
        self._use(self._buffers.check(sendbuf, recvbuf))

    @property
    def engine_memory(self) -> LoopMemory:
        """Return the memory of the compiled loop. The plan must have buffers."""
        assert isinstance(self._engine, Engine)
        return self._engine.memory

    def allocate(self) -> tuple[Array, Array]:
        """Allocate a send and a receive buffer of the plan's size, and use them.

        The buffers are aligned to pages and not initialized. A buffer that the plan does not use on
        this rank is empty.

        If ranks share memory, a plan may copy a buffer to shared memory for other ranks. If
        possible, the buffer is then allocated at this place, which saves the copy. In this case, a
        start completes on this rank when all ranks of its node have completed it, and this method
        waits until all of them have completed the last start. The arrays remain valid after the
        plan is freed. A start with other buffers overwrites them.

        Raises
        ------
        BindError
            If the plan is running or freed.
        """
        self._require_idle("given other buffers")
        sendbuf, recvbuf = self._buffers.allocate(self._node)
        if self._node is not None and max(self._node.mirrors) >= 0:
            # The caller writes there before the next start, so no rank may still read there.
            self._node.wait_for_others(self._engine.epoch, self._comm, self._timeout_s)
            self._ends_together = True
        self._use(self._buffers.check(sendbuf, recvbuf))
        return sendbuf, recvbuf

    def free(self) -> None:
        """Free requests, datatypes and the communicator; collective. It may be called twice.

        A plan that has failed can be freed, too. If a progress thread is still at work after some
        seconds, nothing is freed, and a warning says so.
        """
        if self._comm == MPI.COMM_NULL:
            return
        if self._engine.is_running:
            raise still_running("freed")
        call = RollCall(self._comm, self._timeout_s, "free the plan")
        call.before_blocking()
        self._free(call)
        self._engine = _NoEngine("the bound plan was freed: it cannot be started; bind it again")

    def _free(self, call: RollCall) -> None:
        """Free all resources, unless a thread still uses them on a rank; collective."""
        has_ended = self._engine.end_thread()
        if self._engine.failure is not None or not has_ended:
            # MPI or the thread may still use this memory.
            _kept.append((self._engine, self._node, self._calls))
        if self._has_background and not all(call.gather(has_ended)):
            self._comm = MPI.Intracomm()
            if not has_ended:
                text = "a progress thread did not end in time; the plan's memory is not freed"
                warnings.warn(text, RuntimeWarning, stacklevel=3)
            return
        self._engine.free()
        if self._calls is not None:
            self._calls.free()
        if self._node is not None:
            self._node.free(call)
        self._comm.Free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        # After an error, freeing could hang, as it is collective.
        if error is None:
            self.free()

    def _use(self, arrays: list[Array]) -> None:
        """Use checked buffers, and the shared buffer of the node."""
        dtype = arrays[0].dtype
        shared = np.empty(0, dtype) if self._node is None else self._node.buffer(dtype)
        if isinstance(self._engine, _NoEngine):
            self._engine = self._make(buffers=[*arrays, shared])
        else:
            self._engine.rebind([*arrays, shared])
        if self._ends_together:
            self._engine.end_together()

    def _require_idle(self, verb: str) -> None:
        if self._comm == MPI.COMM_NULL:
            raise BindError(f"the bound plan was freed: it cannot be {verb}; bind it again")
        if self._engine.failure is not None:
            raise failed_before(self._engine.failure, verb)
        if self._engine.is_running:
            raise still_running(verb)


def _make_calls(prepared: Prepared, comm: MPI.Intracomm) -> Calls:
    """Create communicators for a program's calls; collective."""
    elements = elements_of(prepared.plan, prepared.operation)
    return Calls(prepared.plan, prepared.program, comm, elements)


def _duplicate(comm: MPI.Intracomm, limit_s: float | None) -> MPI.Intracomm:
    """Return a duplicate communicator for a plan's messages, with its stored `crowding`."""
    call = RollCall(comm, limit_s, DOING, listens=False)
    call.before_blocking()
    ranks_per_core(comm)
    # Not Dup, which keeps cores that other ranks need if ranks share cores.
    own, request = comm.Idup()
    call.wait(request)
    # Errors become exceptions, independent of the error handler of the original communicator.
    own.Set_errhandler(MPI.ERRORS_RETURN)
    return own
