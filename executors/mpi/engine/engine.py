"""The engine, which runs one rank's bound program with the compiled loop.

Ranks may wait for several plans in different orders. If a rank advanced only the plan it waits for,
other ranks could not complete the plans that they wait for. Therefore a wait advances all plans.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Final, NoReturn

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.engine.computations import Computations
from collplan.executors.mpi.engine.loop_memory import TURN_NS, LoopMemory, Recorder
from collplan.executors.mpi.engine.node_memory import NodeMemory
from collplan.executors.mpi.engine.progress_thread import Background, ProgressThread
from collplan.executors.mpi.engine.reduction import Reduction
from collplan.executors.mpi.engine.repeated import RepeatedCall
from collplan.executors.mpi.errors import failed_before, still_running
from collplan.executors.mpi.host.cores import crowding
from collplan.executors.mpi.host.waiting import sleep_between_polls
from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.entries import entry, linkable_entry
from collplan.executors.mpi.loop.records import STATE
from collplan.executors.mpi.program.messages import STATUS_BYTES, Messages, handle_of
from collplan.executors.mpi.program.program import Program
from collplan.executors.mpi.stall.watchdog import Standstill, Watch
from collplan.planner.arrays import Array
from collplan.planner.errors import DeadlockError

_LEFT, _TURN, _HANDED = (
    list(STATE.names or ()).index(name) for name in ("n_left", "turn_ns", "is_handed")
)

SHORT_TURN_NS: Final = 1
"""Duration of a turn of the loop if other plans of this thread are running, in ns."""
BACKGROUND_TURN_NS: Final = 1_000_000
"""Sleep in a wait for a progress thread while other plans have such threads, in ns."""
TURNS_AWAKE: Final = 10
"""Number of turns without progress before a rank that shares its core sleeps between turns."""


class _Running(threading.local):
    """Started engines of one thread, which only this thread advances."""

    def __init__(self) -> None:
        self.engines: list[Engine] = []


this_thread = _Running()
"""Engines of this thread that were started and have not completed."""


def note_end(engine: Engine) -> None:
    """Remove an engine that has completed or failed."""
    if engine in this_thread.engines:
        this_thread.engines.remove(engine)


def advance_others(engine: Engine) -> int:
    """Advance all started engines except the one that is waited for; remove completed ones.

    Returns
    -------
    int
        Number of remaining tasks of these engines.
    """
    n_left = 0
    for other in this_thread.engines.copy():
        if other is not engine:
            if other.advance():
                note_end(other)
            n_left += other.n_left
    return n_left


class Engine:
    """Run a bound program repeatedly, in an order that its dependencies allow.

    Parameters
    ----------
    program : Program
        The rank's tasks and their successors.
    buffers : sequence of ndarray
        Send, receive, scratch and shared buffer, flat, of one dtype.
    comm : MPI.Intracomm
        Communicator for the messages of this program only, which returns errors. If its ranks
        share cores, an idle rank sleeps between polls after a while.
    reduction : Reduction
        The loaded reduction.
    node : NodeMemory, optional
        Shared memory of the node, whose buffer is the fourth of `buffers`.
    background : Background, optional
        Processors for background tasks, if a thread runs these tasks.
    recorder : Recorder, optional
        Recorder of the times of tasks. Every start overwrites those of the previous one.
    watch : Watch, optional
        Watch that is notified between turns of the loop while this rank waits.
    calls : ndarray of CALL, optional
        Arguments of the program's calls of MPI's collectives.
    computations : Computations, optional
        Functions that COMPUTE tasks call.
    """

    def __init__(
        self,
        program: Program,
        buffers: Sequence[Array],
        comm: MPI.Intracomm,
        reduction: Reduction,
        node: NodeMemory | None = None,
        background: Background | None = None,
        recorder: Recorder | None = None,
        watch: Watch | None = None,
        calls: Array | None = None,
        computations: Computations | None = None,
    ) -> None:
        self._reduction, self._watch = reduction, watch
        self._computations = computations
        self._memory = LoopMemory(program, reduction.load(), background)
        self._n_vain_turns = self._n_left_before = 0
        cores = crowding(comm)
        self._sleep_s = sleep_between_polls(cores.ranks_per_core)
        self._memory.set_idling(self._sleep_s, cores.yields_help)
        self._memory.set(comm=handle_of(comm), any_source=MPI.ANY_SOURCE, any_tag=MPI.ANY_TAG)
        names = "MPI_Isend", "MPI_Irecv", "MPI_Testsome", "MPI_Iprobe"
        self._memory.find(*names, library=MPI.__file__)
        if node is not None:
            self._memory.share(node)
        if calls is not None:
            self._memory.call(calls)
        if recorder is not None:
            self._memory.record(recorder, program)
        self._run_loop = entry("run_loop")
        self._repeated: RepeatedCall | None = None
        self._address, self._words = self._memory.address, self._memory.words
        self._messages = Messages(program)
        self._messages.describe(self._memory.tasks, buffers)
        self._memory.use(buffers)
        self._buffers = list(buffers)
        self.failure: BaseException | None = None
        """First error of a start, after which there are no further ones."""
        self._thread: ProgressThread | None = None
        if background is not None:
            longest_s = sleep_between_polls(background.crowd)
            self._memory.set_idling(longest_s, cores.yields_help, of_thread=True)
            memory = self._memory
            stopping, wake = memory.address_in("is_stopping"), memory.get("handed")
            serve = partial(_serve, memory)
            self._thread = ProgressThread("collplan progress", serve, stopping, wake, self)
        if watch is not None:
            watch.over(self)

    @property
    def memory(self) -> LoopMemory:
        """Return the memory that the compiled loop uses."""
        return self._memory

    @property
    def is_running(self) -> bool:
        """Return whether a start is still incomplete, and has not failed."""
        return bool(self._words[_LEFT]) and self.failure is None

    @property
    def n_left(self) -> int:
        """Return the number of remaining tasks of the start."""
        return self._words[_LEFT]

    @property
    def epoch(self) -> int:
        """Return the number of starts of the program."""
        return self._memory.get("epoch")

    @property
    def progress(self) -> int:
        """Return a number that increases whenever a task ends."""
        return self._memory.get("progress")

    def standstill(self) -> Standstill:
        """Return the tasks that are in progress."""
        numbers, get = self._memory.numbers, self._memory.get
        before = numbers("before", get("n_tasks"))
        is_ending = bool(get("is_ending"))
        # A wait for other ranks, and the return of the start from a thread, count as tasks.
        n_left = get("n_left") - is_ending - get("is_handed")
        active = numbers("active", get("n_active")).tolist()
        gated = numbers("waiting", get("n_waiting")).tolist()
        blocked = np.flatnonzero(before > 0).tolist()
        is_computing = get("computing") >= 0 or get("beside_left_ns") > 0
        return Standstill(active, blocked, gated, n_left, is_ending and n_left == 0, is_computing)

    def end_together(self) -> None:
        """Let starts complete only when all ranks of the node have completed them."""
        self._memory.set(ends_together=1)

    def start(self) -> None:
        """Start all tasks that are ready, and complete the tasks of the START stage."""
        engines = this_thread.engines
        self._words[_TURN] = self._turn_ns() if engines else TURN_NS
        found = self._run_loop(self._address, codes.START)
        if found != codes.DONE:
            self._go_on(found, codes.GO_ON_STARTING)
        if self._words[_LEFT]:
            engines.append(self)

    def test(self) -> bool:
        """Advance without blocking; return whether everything is done.

        WAIT tasks run here only if no other tasks remain, so that a program that never waits also
        completes.
        """
        is_done = self.advance()
        if is_done:
            note_end(self)
        elif self._watch is not None:
            self._watch.look(self)
        return is_done

    def advance(self) -> bool:
        """Advance like `test`, in the wait for another plan."""
        if self.failure is not None:
            raise self.failure
        found = self._run_loop(self._address, codes.TEST)
        if found > codes.PENDING:
            self._raise(found)
        return bool(found == codes.DONE)

    def wait(self) -> None:
        """Advance until the start is complete."""
        if not self._words[_LEFT]:
            return
        if self.failure is not None:
            raise self.failure
        self._words[_TURN] = self._turn_ns()
        found = self._run_loop(self._address, codes.WAIT)
        if found != codes.DONE:
            self._go_on(found, codes.WAIT)
        note_end(self)

    def run(self) -> None:
        """Start and wait."""
        if this_thread.engines:
            self.start()
            self.wait()
            return
        self._words[_TURN] = TURN_NS
        found = self._run_loop(self._address, codes.RUN)
        if found != codes.DONE:
            self._go_on(found, codes.WAIT)

    def repeat(self, n_runs: int) -> None:
        """Start and wait `n_runs` times, with the machine code that programs in C use.

        No other plan of this thread may be running.
        """
        if self._repeated is None:
            function = linkable_entry("run_loop").load()
            self._repeated = RepeatedCall(function, (self._address, codes.RUN))
        self._words[_TURN] = TURN_NS
        for found in self._repeated.run(n_runs):
            self._go_on(found, codes.WAIT)

    def rebind(self, buffers: Sequence[Array]) -> None:
        """Use other buffers of the same dtype. The program must not be running."""
        self._messages.redescribe(self._memory.tasks, buffers)
        self._memory.use(buffers)
        self._buffers = list(buffers)

    def end_thread(self) -> bool:
        """End the thread, if there is one; return whether it has ended."""
        return self._thread is None or self._thread.stop()

    def free(self) -> None:
        """Free datatypes. The thread must have ended."""
        self._messages.free()

    def _go_on(self, found: int, what: int) -> None:
        """Advance other plans and handle signals between turns; raise errors."""
        while found == codes.PENDING:
            if self._watch is not None:
                self._watch.look(self)
            found = self._take_turn(what)
        if found != codes.DONE:
            self._raise(found)

    def _take_turn(self, what: int) -> int:
        """Advance other plans of this thread, then this one."""
        if self._words[_TURN] != TURN_NS:
            n_left = advance_others(self) + self._words[_LEFT]
            self._n_vain_turns = 0 if n_left != self._n_left_before else self._n_vain_turns + 1
            self._n_left_before = n_left
            self._words[_TURN] = self._turn_ns()
            is_short = self._words[_TURN] == SHORT_TURN_NS
            if is_short and self._n_vain_turns > TURNS_AWAKE and self._sleep_s:
                time.sleep(self._sleep_s)
        return int(self._run_loop(self._address, what))

    def _turn_ns(self) -> int:
        """Return the time that this plan may use its thread before other plans advance."""
        others = [engine for engine in this_thread.engines if engine is not self]
        if not others:
            return TURN_NS
        # Only the thread can advance a start that it runs.
        are_at_work = all(engine._words[_HANDED] for engine in others)
        return BACKGROUND_TURN_NS if are_at_work else SHORT_TURN_NS

    def _raise(self, found: int) -> NoReturn:
        """Raise the error of the loop, which is the last of this engine unless it was busy."""
        if found == codes.BUSY:
            if self.failure is not None:
                raise failed_before(self.failure, "started")
            raise still_running("started")
        note_end(self)
        self.failure = self._error_of(found)
        # The start remains incomplete, so that the loop refuses the next one.
        self._words[_LEFT] = max(1, self._words[_LEFT])
        raise self.failure

    def _error_of(self, found: int) -> BaseException:
        if found == codes.DEADLOCK:
            return DeadlockError(
                f"{self._words[_LEFT]} tasks of this rank wait for each other or for a later "
                "wait; collplan.verify(plan) names them"
            )
        if found == codes.RAISED:
            callback = self._reduction.callback
            if callback is not None and callback.has_error:
                return callback.take_error()
            assert self._computations is not None
            return self._computations.take_error()
        return MPI.Exception(self._error_code(found))

    def _error_code(self, found: int) -> int:
        code = self._memory.get("code")
        if found != codes.FAILED_IN_STATUS or code != MPI.ERR_IN_STATUS:
            return code
        status = MPI.Status()
        there = MPI.buffer.fromaddress(MPI._addressof(status), STATUS_BYTES)
        for i in range(max(0, self._memory.get("n_failed"))):
            there[:] = self._memory.statuses[i * STATUS_BYTES : (i + 1) * STATUS_BYTES].tobytes()
            if status.Get_error() not in (MPI.SUCCESS, MPI.ERR_PENDING):
                return int(status.Get_error())
        return code


def _serve(memory: LoopMemory) -> None:
    """Run background tasks of every start in a thread, until the engine is deleted."""
    entry("run_loop")(memory.address, codes.SERVE)
