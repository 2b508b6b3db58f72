"""Engines bound to a communicator and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.engine.engine_choice import Applies
from collplan.executors.mpi.engine.interpreted import Engine
from collplan.executors.mpi.engine.progress import NodeProgress
from collplan.executors.mpi.engine.recording import Recorder, RecordingEngine
from collplan.executors.mpi.engine.watched import WatchedEngine, WatchedRecordingEngine
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.program.datatypes import MessageTypes
from collplan.executors.mpi.program.views import extent_views, local_action
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.executors.mpi.engine.background import Background
    from collplan.executors.mpi.engine.compiled import CompiledEngine
    from collplan.executors.mpi.engine.node_memory import NodeMemory
    from collplan.executors.mpi.program.program import Program
    from collplan.executors.mpi.program.views import Action
    from collplan.executors.mpi.stall.watchdog import Watch
    from collplan.planner.plan.plan import Plan

Array = npt.NDArray[Any]


class AnyEngine(Protocol):
    """What runs a program that is bound."""

    @property
    def is_running(self) -> bool:
        """Return whether a start has not completed yet."""

    def start(self) -> None:
        """Start what is ready."""

    def test(self) -> bool:
        """Advance; return whether everything is done."""

    def wait(self) -> None:
        """Advance until everything is done."""

    def run(self) -> None:
        """Start and wait."""

    def move(self, sent_at: int, received_at: int) -> bool:
        """Use memory elsewhere as send and receive buffer; return False where that takes more."""


class NoEngine:
    """What a bound plan has before it has buffers, and after it was freed.

    Parameters
    ----------
    reason : str
        Why nothing can be started, and the way out.
    """

    is_running = False

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self) -> None:
        """Refuse."""
        raise BindError(self._reason)

    run = start

    def test(self) -> bool:
        """Return True: nothing is running."""
        return True

    def wait(self) -> None:
        """Return: nothing is running."""

    def move(self, sent_at: int, received_at: int) -> bool:
        """Return False: there is nothing to move."""
        return False


class PythonBinding:
    """Programs as persistent requests and numpy calls.

    Parameters
    ----------
    plan, program
        What to run.
    comm : MPI.Intracomm
        For the program's messages alone.
    sharing : float
        How many ranks share a core.
    operation : object with ``apply``, optional
        The reduction.
    recorder : Recorder, optional
        Where to note when tasks start and end.
    watch : Watch, optional
        What sees whether the program gets on.
    node : NodeMemory, optional
        What ranks of the node share.
    """

    def __init__(
        self,
        plan: Plan,
        program: Program,
        comm: MPI.Intracomm,
        sharing: float,
        operation: Applies | None,
        recorder: Recorder | None,
        watch: Watch | None = None,
        node: NodeMemory | None = None,
    ) -> None:
        self._watch = watch
        self._progress = None if node is None else NodeProgress(program, node, comm)
        self._plan, self._program, self._comm = plan, program, comm
        self._sharing, self._recorder = sharing, recorder
        self._apply = operation.apply if operation is not None else None
        self._types = MessageTypes(plan.itemsize)
        self._requests: list[MPI.Prequest | None] = []

    @property
    def epoch(self) -> int:
        """Return how many times a program that shares memory was started."""
        return 0 if self._progress is None else self._progress.epoch

    def end_together(self) -> None:
        """Let a start end from now on when all ranks of the node have completed it."""
        assert self._progress is not None
        self._progress.ends_together = True

    def use(self, buffers: Sequence[Array]) -> AnyEngine:
        """Return an engine for these buffers; the one before is of no use then."""
        self._free_requests()
        self._types.reset()
        program, patterns = self._program, self._plan.patterns
        actions: list[Action | None] = []
        for task in range(program.n_tasks):
            if program.op[task] <= Op.RECV:
                self._requests.append(self._request(task, buffers))
                actions.append(None)
            else:
                self._requests.append(None)
                actions.append(local_action(program, task, buffers, patterns, self._apply))
        return self._make(actions)

    def _make(self, actions: Sequence[Action | None]) -> AnyEngine:
        """Return the engine for recording and watching, or what of both is asked for."""
        arguments = self._program, self._requests, actions, self._sharing, self._progress
        if self._watch is None:
            if self._recorder is None:
                return Engine(*arguments)
            return RecordingEngine(*arguments, self._recorder)
        watched: WatchedEngine | WatchedRecordingEngine
        if self._recorder is None:
            watched = WatchedEngine(*arguments)
        else:
            watched = WatchedRecordingEngine(*arguments, self._recorder)
        watched.watch = self._watch
        self._watch.over(watched)
        return watched

    def free(self) -> None:
        """Free requests and datatypes."""
        self._free_requests()
        self._types.free()

    def _free_requests(self) -> None:
        for request in self._requests:
            if request is not None:
                request.Free()
        self._requests = []

    def _request(self, task: int, buffers: Sequence[Array]) -> MPI.Prequest:
        program = self._program
        is_send = program.op[task] == Op.SEND
        extents = program.reads if is_send else program.writes
        message = self._types.message(extent_views(buffers, self._plan.patterns, extents, task))
        init = self._comm.Send_init if is_send else self._comm.Recv_init
        return init(message, int(program.peer[task]), int(program.tag[task]))


class CompiledBinding:
    """Programs as flat arrays that the compiled loop reads.

    Parameters
    ----------
    plan, program, comm, sharing
        As for `PythonBinding`.
    reduce : int
        The address of the compiled reduction, 0 if there is none.
    watch, node
        As for `PythonBinding`.
    background : Background, optional
        Where background tasks run, if a thread does.
    """

    def __init__(
        self,
        plan: Plan,
        program: Program,
        comm: MPI.Intracomm,
        sharing: float,
        reduce: int,
        watch: Watch | None = None,
        node: NodeMemory | None = None,
        background: Background | None = None,
    ) -> None:
        self._watch, self._background = watch, background
        self._plan, self._program, self._comm = plan, program, comm
        self._sharing, self._reduce, self._node = sharing, reduce, node
        self._ends_together = False
        self._engine: CompiledEngine | None = None

    @property
    def epoch(self) -> int:
        """Return how many times the program was started."""
        return 0 if self._engine is None else self._engine.epoch

    def end_together(self) -> None:
        """Let a start end from now on when all ranks of the node have completed it."""
        self._ends_together = True
        if self._engine is not None:
            self._engine.end_together()

    def use(self, buffers: Sequence[Array]) -> AnyEngine:
        """Return the engine, which has these buffers from now on."""
        if self._engine is None:
            self._engine = self._make(buffers)
        else:
            self._engine.rebind(buffers)
        return self._engine

    def _make(self, buffers: Sequence[Array]) -> CompiledEngine:
        from collplan.executors.mpi.engine.compiled import CompiledEngine
        from collplan.executors.mpi.engine.watched_compiled import WatchedCompiledEngine

        kind = CompiledEngine if self._watch is None else WatchedCompiledEngine
        made = kind(
            self._program,
            self._plan.patterns,
            buffers,
            self._comm,
            self._reduce,
            self._sharing,
            self._node,
            self._background,
        )
        if self._ends_together:
            made.end_together()
        if isinstance(made, WatchedCompiledEngine) and self._watch is not None:
            made.watch = self._watch
            self._watch.over(made)
        return made

    def free(self) -> None:
        """End the engine's thread and free datatypes."""
        if self._engine is not None:
            self._engine.free()
            self._engine = None
