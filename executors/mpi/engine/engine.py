"""The engine: one rank's bound program, run by the compiled loop.

Ranks may wait for several plans in different orders. A rank that advanced only the one it waits
for would keep others from completing the one that they wait for, so a wait advances them all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.engine.loop_memory import TURN_NS, LoopMemory, Recorder
from collplan.executors.mpi.engine.node_memory import NodeMemory
from collplan.executors.mpi.engine.progress_thread import Background, ProgressThread
from collplan.executors.mpi.engine.reduction import Reduction
from collplan.executors.mpi.errors import still_running
from collplan.executors.mpi.host.cores import crowding
from collplan.executors.mpi.host.waiting import sleep_between_polls
from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.loop.records import STATE
from collplan.executors.mpi.program.messages import STATUS_BYTES, Messages, handle_of
from collplan.executors.mpi.program.program import Program
from collplan.executors.mpi.stall.watchdog import Standstill, Watch
from collplan.planner.errors import DeadlockError

Array = npt.NDArray[Any]
_LEFT, _TURN, _HANDED = (
    list(STATE.names or ()).index(name) for name in ("n_left", "turn_ns", "is_handed")
)

SHORT_TURN_NS: Final = 1
"""Time of the loop while other plans of this thread wait for their turn, in ns."""
BACKGROUND_TURN_NS: Final = 1_000_000
"""Sleep of a wait for a progress thread while other plans' threads have theirs, in ns."""
TURNS_AWAKE: Final = 10
"""Turns in which nothing ends before a rank that shares its core sleeps between them."""


class _Running(threading.local):
    """Started engines; plans of another thread are that thread's to advance."""

    def __init__(self) -> None:
        self.engines: list[Engine] = []


this_thread = _Running()
"""Engines that this thread has started and that have not completed."""


def note_end(engine: Engine) -> None:
    """Forget an engine that has completed or failed."""
    if engine in this_thread.engines:
        this_thread.engines.remove(engine)


def advance_others(engine: Engine) -> int:
    """Advance all started engines but the one that is waited for; forget the completed.

    Returns
    -------
    int
        How many tasks they have left.
    """
    n_left = 0
    for other in this_thread.engines.copy():
        if other is not engine:
            if other.advance():
                note_end(other)
            n_left += other.n_left
    return n_left


class Engine:
    """Run a bound program again and again, in the order its dependencies allow.

    Parameters
    ----------
    program : Program
        The rank's tasks and whom they release.
    buffers : sequence of ndarray
        Send, receive, scratch and shared buffer, flat, of one dtype.
    comm : MPI.Intracomm
        For the program's messages alone, with errors returned. Where its ranks share cores, an
        idle one sleeps between polls after a while.
    reduction : Reduction
        How it reduces, loaded.
    node : NodeMemory, optional
        What ranks of the node share; its buffer is the fourth of `buffers` then.
    background : Background, optional
        Which processors run background tasks, where a thread of their own does.
    recorder : Recorder, optional
        Where the times of tasks are noted; every start overwrites the last one's.
    watch : Watch, optional
        What is told between turns of the loop that this rank waits.
    calls : ndarray of CALL, optional
        How the program's calls of MPI's collectives begin.
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
    ) -> None:
        self._reduction, self._watch = reduction, watch
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
        self._address, self._words = self._memory.address, self._memory.words
        self._bases = self._memory.bases
        self._messages = Messages(program)
        self._messages.describe(self._memory.tasks, buffers)
        self._memory.use(buffers)
        self._buffers = list(buffers)
        self._moves_freely = not self._messages.any_spans
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
        """Return what the compiled loop works on."""
        return self._memory

    @property
    def is_running(self) -> bool:
        """Return whether a start has not completed yet."""
        return bool(self._words[_LEFT])

    @property
    def n_left(self) -> int:
        """Return how many tasks the start has left."""
        return self._words[_LEFT]

    @property
    def epoch(self) -> int:
        """Return how many times the program was started."""
        return self._memory.get("epoch")

    @property
    def progress(self) -> int:
        """Return a number that grows whenever a task ends."""
        return self._memory.get("progress")

    def standstill(self) -> Standstill:
        """Return what is under way."""
        numbers, get = self._memory.numbers, self._memory.get
        before = numbers("before", get("n_tasks"))
        is_ending = bool(get("is_ending"))
        # To wait for others, and to take the start back from a thread, count as tasks.
        n_left = get("n_left") - is_ending - get("is_handed")
        active = numbers("active", get("n_active")).tolist()
        gated = numbers("waiting", get("n_waiting")).tolist()
        blocked = np.flatnonzero(before > 0).tolist()
        is_computing = get("computing") >= 0 or get("beside_left_ns") > 0
        return Standstill(active, blocked, gated, n_left, is_ending and n_left == 0, is_computing)

    def end_together(self) -> None:
        """Let a start end from now on when all ranks of the node have completed it."""
        self._memory.set(ends_together=1)

    def start(self) -> None:
        """Start every task that is ready, and finish those that belong inside the start."""
        engines = this_thread.engines
        self._words[_TURN] = self._turn_ns() if engines else TURN_NS
        found = self._run_loop(self._address, codes.START)
        if found != codes.DONE:
            self._go_on(found, codes.GO_ON_STARTING)
        if self._words[_LEFT]:
            engines.append(self)

    def test(self) -> bool:
        """Advance without blocking; return whether everything is done.

        Tasks that belong inside `wait` run here only when they alone are
        left, so that a program that only tests completes too.
        """
        is_done = self.advance()
        if is_done:
            note_end(self)
        elif self._watch is not None:
            self._watch.look(self)
        return is_done

    def advance(self) -> bool:
        """Do what `test` does, for another plan's wait."""
        found = self._run_loop(self._address, codes.TEST)
        if found > codes.PENDING:
            self._raise(found)
        return bool(found == codes.DONE)

    def wait(self) -> None:
        """Advance until everything is done."""
        if not self._words[_LEFT]:
            return
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

    def rebind(self, buffers: Sequence[Array]) -> None:
        """Use other buffers of the same dtype from now on; the program must not be running."""
        self._messages.redescribe(self._memory.tasks, buffers)
        self._memory.use(buffers)
        self._buffers = list(buffers)

    def move(self, sent_at: int, received_at: int) -> bool:
        """Use memory elsewhere as send and receive buffer; return False where that takes more."""
        if self._words[_LEFT] or not self._moves_freely:
            return False
        self._bases[0], self._bases[1] = sent_at, received_at
        return True

    def free(self) -> None:
        """End the thread, if there is one, and free datatypes."""
        if self._thread is not None:
            self._thread.stop()
        self._messages.free()

    def _go_on(self, found: int, what: int) -> None:
        """Let other plans advance, and Python handle signals, between turns; raise what failed."""
        while found == codes.PENDING:
            if self._watch is not None:
                self._watch.look(self)
            found = self._take_turn(what)
        if found != codes.DONE:
            self._raise(found)

    def _take_turn(self, what: int) -> int:
        """Give other plans of this thread a turn, then this one."""
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
        """Return how long this plan may keep its thread from the others."""
        others = [engine for engine in this_thread.engines if engine is not self]
        if not others:
            return TURN_NS
        # Nobody else can advance a start that a thread has.
        are_at_work = all(engine._words[_HANDED] for engine in others)
        return BACKGROUND_TURN_NS if are_at_work else SHORT_TURN_NS

    def _raise(self, found: int) -> NoReturn:
        """Raise what went wrong."""
        if found == codes.BUSY:
            raise still_running("started")
        note_end(self)
        if found == codes.DEADLOCK:
            raise DeadlockError(
                f"{self._words[_LEFT]} tasks of this rank wait for each other or for a later "
                "wait; collplan.verify(plan) names them"
            )
        if found == codes.RAISED:
            assert self._reduction.callback is not None
            raise self._reduction.callback.take_error()
        raise MPI.Exception(self._error_code(found))

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
    """Run the background of every start, in the thread of an engine that may be gone."""
    entry("run_loop")(memory.address, codes.SERVE)
