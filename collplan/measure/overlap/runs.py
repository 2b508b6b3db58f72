"""Collectives that are set up to be timed alone and together with computation."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from time import clock_gettime_ns, monotonic_ns, pthread_getcpuclockid
from typing import Any, NamedTuple

from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.binding.prepared import Progress
from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.host.cores import pin_thread, usable_processors
from collplan.measure.lanes import node_of_ranks
from collplan.measure.overlap.overlapped import Overlapped, overlapped_native
from collplan.measure.overlap.sweep import BLOCKING, OverlapMethod, OverlapSweep
from collplan.measure.run import WrongElement, case_for_spec, find_truth
from collplan.measure.timing import Call, nothing
from collplan.planner.arrays import Array
from collplan.planner.passes.progress.cores import CorePlacement
from collplan.planner.plan.plan import Plan, Stage
from collplan.programs.compiling_together import compile_together


def map_cores(n_cores: int, free: Sequence[int], processors: Sequence[int]) -> list[int]:
    """Return the processor of every core of a node.

    If there are fewer processors than cores, cores share them. Communication cores then
    get a proportional part of the processors for themselves, so that communication and
    computation can still overlap. If there is only one processor, all cores share it.

    Parameters
    ----------
    n_cores : int
        Number of cores of the node.
    free : sequence of int
        Cores without rank, which are for communication.
    processors : sequence of int
        Usable processors, at least one.

    Examples
    --------
    >>> map_cores(4, [3], [0, 1, 2, 3]), map_cores(4, [3], [0, 1]), map_cores(4, [1, 3], [5])
    ([0, 1, 2, 3], [0, 0, 0, 1], [5, 5, 5, 5])
    """
    if len(processors) >= n_cores:
        return list(processors[:n_cores])
    n_kept = max(1, len(processors) * len(free) // n_cores) if free else 0
    n_kept = min(n_kept, len(processors) - 1)
    for_ranks = cycle(processors[: len(processors) - n_kept])
    for_progress = cycle(processors[-n_kept:])  # all processors if none are kept
    return [next(for_progress if core in free else for_ranks) for core in range(n_cores)]


@dataclass(frozen=True, slots=True)
class Pinned:
    """Places of the ranks, each of which is pinned to the processor of its core.

    Parameters
    ----------
    processors : list of int
        Processors that the ranks may use.
    cores : list of int, shape (n_cores,)
        Processor of every core.
    core : int
        Application core of this rank.
    """

    processors: list[int]
    cores: list[int]
    core: int

    @classmethod
    def at(cls, comm: MPI.Intracomm, sweep: OverlapSweep) -> Pinned:
        """Pin this rank's thread to the processor of its application core; collective.

        Raises
        ------
        LaunchError
            If ranks are on several nodes.
        """
        n_nodes = len(set(node_of_ranks(comm)))
        if n_nodes > 1:
            raise LaunchError(
                f"ranks are on {n_nodes} nodes, overlap is measured on the cores of one; "
                f"start them on one node"
            )
        processors = usable_processors(comm)
        placement = CorePlacement.of(sweep.spec(comm.size, BLOCKING).machine)
        cores = map_cores(sweep.n_cores, placement.free[0].tolist(), processors)
        core = int(placement.application[comm.rank])
        # Pin before the first query of the ranks per core, whose answer is cached.
        pin_thread(cores[core])
        return cls(processors, cores, core)


class Stamps(NamedTuple):
    """Times in ns of an overlapped run: its begin, the ends of start and computation, its end.

    `thread_ns` is the processor time of the progress thread during the run.
    """

    began: int
    started: int
    computed: int
    ended: int
    thread_ns: int


@dataclass(slots=True)
class Timed:
    """One method to run the collective, set up and ready to run.

    Parameters
    ----------
    method : OverlapMethod
        Method that runs.
    run : Overlapped
        Collective and computation.
    progress : str
        Source of this rank's progress: ``thread``, ``caller`` or ``library``.
    why_caller : str or None
        Reason why a thread that the plan needs is missing; None if none is missing.
    thread : int or None
        Identifier of the CPU-time clock of the progress thread; None without a thread.
    stages : list of tuple of int
        Distinct pairs of stage and core of this rank's tasks.
    stamps : list of Stamps
        Times of every overlapped run.
    """

    method: OverlapMethod
    run: Overlapped
    progress: str = "caller"
    why_caller: str | None = None
    thread: int | None = None
    stages: list[tuple[int, int]] = field(default_factory=list)
    stamps: list[Stamps] = field(default_factory=list)

    def both(self) -> None:
        """Run the collective and the computation, and record the times of the run."""
        before_ns = self._thread_ns()
        began = monotonic_ns()
        self.run.begin()
        started = monotonic_ns()
        self.run.compute()
        computed = monotonic_ns()
        self.run.finish()
        ended = monotonic_ns()
        thread_ns = self._thread_ns() - before_ns
        self.stamps.append(Stamps(began, started, computed, ended, thread_ns))

    def _thread_ns(self) -> int:
        return 0 if self.thread is None else clock_gettime_ns(self.thread)


class CollectivePair(AbstractContextManager["CollectivePair"]):
    """A collective by plans and by the MPI library, with this rank's buffers.

    It is a context manager, which frees its resources on exit.

    Parameters
    ----------
    comm : Intracomm
        Communicator of the ranks.
    sweep : OverlapSweep
        Description of the collective.
    pinned : Pinned
        Processors of the cores.
    """

    def __init__(self, comm: MPI.Intracomm, sweep: OverlapSweep, pinned: Pinned) -> None:
        self.comm, self.sweep, self._pinned = comm, sweep, pinned
        self._stack = ExitStack()
        spec = sweep.spec(comm.size, BLOCKING)
        self._case = case_for_spec(spec, comm)
        self._native = self._stack.enter_context(self._case.natively())
        self._received: dict[str, Array] = {}

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        # Freeing is collective, so it is not possible after an error on one rank.
        if kind is None:
            self._stack.close()

    def ready(self, method: OverlapMethod, compute: Call = nothing) -> Timed:
        """Set up a method to run; collective.

        Raises
        ------
        CollplanError
            If the plan of the method cannot be compiled or bound.
        """
        if method.source == "native":
            if method.blocking:
                return Timed(method, Overlapped(nothing, self._native, compute))
            progress = "library" if method.asynchronous else "caller"
            return Timed(method, overlapped_native(self._native, compute), progress)
        threads = set(threading.enumerate())
        bound, plan = self._bind(method)
        started = set(threading.enumerate()) - threads
        if method.blocking:
            return Timed(method, Overlapped(nothing, bound, compute))
        mine = plan.rank == self.comm.rank
        stages = set(zip(plan.stage[mine].tolist(), plan.core[mine].tolist(), strict=True))
        core = self._pinned.core
        lacks_thread = any(s == Stage.BACKGROUND and other != core for s, other in stages)
        return Timed(
            method,
            Overlapped(bound.start, bound.wait, compute),
            bound.progress,
            bound.why_caller if lacks_thread else None,
            next((pthread_getcpuclockid(thread.ident) for thread in started if thread.ident), None),
            sorted(stages),
        )

    def find_wrong(self) -> dict[str, WrongElement]:
        """Return the first wrong element of each method with wrong results; collective.

        The result is the same on all ranks. Keys are names of methods.
        """
        case = self._case
        _, truth = find_truth(case, self._native)
        found = {}
        for name, received in self._received.items():
            case.fill()
            case.recvbuf[: len(received)] = received
            wrong = case.compare(truth)
            if wrong is not None:
                found[name] = wrong
        return found

    def _bind(self, method: OverlapMethod) -> tuple[BoundPlan, Plan]:
        comm, case = self.comm, self._case
        spec = self.sweep.spec(comm.size, method)
        plan = compile_together(spec, comm, [])
        progress: Progress = "caller" if method.blocking else "auto"
        bound = bind(plan, comm, progress=progress, cores=self._pinned.cores)
        self._stack.enter_context(bound)
        sendbuf, recvbuf = bound.allocate()
        case.fill()
        sendbuf[:], recvbuf[:] = case.sendbuf, case.recvbuf[: len(recvbuf)]
        self._received[method.name] = recvbuf
        return bound, plan
