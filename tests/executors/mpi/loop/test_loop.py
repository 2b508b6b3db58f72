"""Waits of the compiled loop and its order of posting, seen by an MPI of Python functions."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from itertools import groupby

import numpy as np
import pytest

from collplan.executors.mpi.engine.loop_memory import (
    FEW_SPINS,
    SLEEP_STEPS,
    SPINS,
    VAIN_YIELDS,
    YIELDS,
    LoopMemory,
)
from collplan.executors.mpi.engine.progress_thread import Background, ProgressThread
from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.loop.reductions import reduction_address
from collplan.executors.mpi.program.program import rank_program
from collplan.planner.plan.plan import Buffer, Op, Plan, Stage
from mpi_plans import PlanWriter

INT, LONG = ctypes.c_int32, ctypes.c_int64
MESSAGE = ctypes.CFUNCTYPE(INT, LONG, INT, LONG, INT, INT, LONG, LONG)
TESTSOME = ctypes.CFUNCTYPE(INT, INT, LONG, LONG, LONG, LONG)
NANOSLEEP = ctypes.CFUNCTYPE(INT, LONG, LONG)
YIELD = ctypes.CFUNCTYPE(INT)


class FakeMPI:
    """Notes what the loop calls; says that messages have come when it is told to.

    Parameters
    ----------
    memory : LoopMemory
        Whose functions it becomes.
    n_vain_polls : int
        Polls that find nothing, before each that finds all messages posted.
    on_post : callable
        Called with the name and tag of each message.
    """

    def __init__(
        self,
        memory: LoopMemory,
        n_vain_polls: int = 0,
        on_post: Callable[[str, int], None] = lambda name, tag: None,
    ) -> None:
        self.calls: list[str] = []
        self.sleeps_ns: list[int] = []
        self._n_vain, self._left, self._on_post = n_vain_polls, n_vain_polls, on_post
        self._functions = {
            "MPI_Isend": MESSAGE(self._poster("send")),
            "MPI_Irecv": MESSAGE(self._poster("recv")),
            "MPI_Testsome": TESTSOME(self._testsome),
            "nanosleep": NANOSLEEP(self._nanosleep),
            "sched_yield": YIELD(self._yield),
        }
        memory.set(
            **{
                name: ctypes.cast(function, ctypes.c_void_p).value or 0
                for name, function in self._functions.items()
            }
        )

    def _poster(self, name: str) -> Callable[..., int]:
        def post(_place: int, _count: int, _type: int, _peer: int, tag: int, *_rest: int) -> int:
            self.calls.append(f"{name} {tag}")
            self._on_post(name, tag)
            return 0

        return post

    def _testsome(self, n: int, _requests: int, n_done: int, places: int, _statuses: int) -> int:
        self.calls.append("poll")
        is_vain = self._left > 0
        self._left = self._left - 1 if is_vain else self._n_vain
        ctypes.c_int32.from_address(n_done).value = 0 if is_vain else n
        (ctypes.c_int32 * n).from_address(places)[:] = list(range(n))
        return 0

    def _nanosleep(self, duration: int, _left: int) -> int:
        self.calls.append("sleep")
        _, n_ns = (ctypes.c_int64 * 2).from_address(duration)
        self.sleeps_ns.append(n_ns)
        return 0

    def _yield(self) -> int:
        self.calls.append("yield")
        return 0


def bound(plan: Plan, buffers: list[np.ndarray], reduce: int = 0) -> LoopMemory:
    program = rank_program(plan, 0)
    memory = LoopMemory(program, reduce=reduce)
    memory.tasks["tag"][:-1] = program.tag
    memory.use(buffers)
    memory.set(turn_ns=10**12)
    return memory


def one_receive() -> Plan:
    writer = PlanWriter([[1, 1, 0]] * 2, itemsize=8)
    writer.recv(0, 1, (Buffer.RECV, 0, 1))
    writer.send(1, 0, (Buffer.SEND, 0, 1))
    return writer.plan()


@pytest.mark.parametrize(
    ("yields_help", "n_spins", "n_yields"), [(True, SPINS, YIELDS), (False, FEW_SPINS, VAIN_YIELDS)]
)
def test_a_rank_on_a_shared_core_spins_yields_then_sleeps(
    yields_help: bool, n_spins: int, n_yields: int
) -> None:
    """Ever longer, up to the longest, and with a poll in between; again for every message."""
    n_vain = n_spins + n_yields + 2 * SLEEP_STEPS
    word = np.zeros(1, dtype=np.int64)
    memory = bound(one_receive(), [word, word, word])
    mpi = FakeMPI(memory, n_vain_polls=n_vain)
    memory.set_idling(1.6e-3, yields_help)
    for _ in range(2):
        mpi.calls.clear()
        mpi.sleeps_ns.clear()
        assert entry("run_loop")(memory.address, codes.RUN) == codes.DONE
        idle = ["poll"] * n_spins + ["poll", "yield"] * n_yields + ["poll", "sleep"] * 32
        assert mpi.calls == ["recv 0", *idle, "poll"]
        steps = np.minimum(np.arange(1, 33), SLEEP_STEPS) * 100_000
        assert mpi.sleeps_ns == steps.tolist()


def test_a_rank_on_a_core_of_its_own_never_sleeps() -> None:
    word = np.zeros(1, dtype=np.int64)
    memory = bound(one_receive(), [word, word, word])
    mpi = FakeMPI(memory, n_vain_polls=2000)
    memory.set_idling(0.0)
    assert entry("run_loop")(memory.address, codes.RUN) == codes.DONE
    runs = [(name, len(list(calls))) for name, calls in groupby(mpi.calls)]
    assert runs[:2] == [("recv 0", 1), ("poll", SPINS + 1)]
    assert "sleep" not in mpi.calls
    assert mpi.calls.count("yield") == 2000 - SPINS


def test_a_short_turn_ends_without_sleeping() -> None:
    """While other plans wait for their turn the loop comes back soon."""
    word = np.zeros(1, dtype=np.int64)
    memory = bound(one_receive(), [word, word, word])
    mpi = FakeMPI(memory, n_vain_polls=100)
    memory.set_idling(1e-3)
    memory.set(turn_ns=1)
    assert entry("run_loop")(memory.address, codes.RUN) == codes.PENDING
    n_turns = 1
    while entry("run_loop")(memory.address, codes.WAIT) == codes.PENDING:
        n_turns += 1
    assert n_turns >= 3
    assert mpi.calls.count("poll") == 101
    assert "sleep" not in mpi.calls


def test_a_ready_reduction_comes_before_later_receives_and_after_earlier_messages() -> None:
    """A receive that is posted late finds its data reduced already; a send is never kept.

    recv 0 -> reduce -> send 2
           -> recv 1
    """
    writer = PlanWriter([[1, 1, 2]] * 2, itemsize=8)
    total, come, later = (Buffer.RECV, 0, 1), (Buffer.SCRATCH, 0, 1), (Buffer.SCRATCH, 1, 1)
    first = writer.recv(0, 1, come, tag=0)
    early = writer.send(0, 1, (Buffer.SEND, 0, 1), tag=3, after=[first])
    reduced = writer.add(Op.REDUCE, 0, [total, come], [total], after=[first])
    late = writer.recv(0, 1, later, tag=1, after=[first])
    writer.send(0, 1, total, tag=2, after=[reduced])
    assert early < reduced < late
    for tag in (0, 1):
        writer.send(1, 0, (Buffer.SEND, 0, 1), tag=tag)
    for tag in (2, 3):
        writer.recv(1, 0, (Buffer.RECV, 0, 1), tag=tag)
    send, recv = np.zeros(1, np.int64), np.array([30])
    memory = bound(
        writer.plan(), [send, recv, np.array([12, 0])], reduction_address("sum", np.dtype(int))
    )
    seen: dict[str, int] = {}
    mpi = FakeMPI(memory, on_post=lambda name, tag: seen.update({f"{name} {tag}": int(recv[0])}))
    assert entry("run_loop")(memory.address, codes.RUN) == codes.DONE
    assert seen == {"recv 0": 30, "send 3": 30, "recv 1": 42, "send 2": 42}
    assert [name for name in mpi.calls if name != "poll"] == list(seen)


def test_a_thread_on_its_processor_runs_what_is_handed_over_until_it_is_taken_back() -> None:
    """Each of the stages START, BACKGROUND and WAIT copies one element."""
    writer = PlanWriter([[3, 3, 0]], itemsize=8)
    for i, stage in enumerate((Stage.START, Stage.BACKGROUND, Stage.WAIT)):
        writer.add(Op.COPY, 0, [(Buffer.SEND, i, 1)], [(Buffer.RECV, i, 1)], stage=stage)
    usable = sorted(os.sched_getaffinity(0))
    background = Background((usable[0], usable[-1]), np.array([-1, 1, -1], dtype=np.int16), 1)
    memory = LoopMemory(rank_program(writer.plan(), 0), background=background)
    sent, received = np.arange(3), np.zeros(3, np.int64)
    memory.use([sent, received, np.zeros(0, np.int64)])
    memory.set(turn_ns=10**9)
    run = partial(entry("run_loop"), memory.address)
    words = memory.address_in("is_stopping"), memory.get("handed")
    thread = ProgressThread("test", partial(run, codes.SERVE), *words, memory)
    for _ in range(3):
        sent += 10
        received[:] = 0
        assert run(codes.START) == codes.DONE
        assert received[[0, 2]].tolist() == [sent[0], 0]
        found = codes.PENDING
        while found == codes.PENDING:
            found = run(codes.WAIT)
        assert found == codes.DONE
        assert received.tolist() == sent.tolist()
        assert memory.get("n_left") == memory.get("is_handed") == 0
    assert os.sched_getaffinity(thread.native_id) == {usable[-1]}
    assert thread.stop()
