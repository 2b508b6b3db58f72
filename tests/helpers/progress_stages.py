"""Tasks inside start, in the background and inside wait, where a thread runs the background."""

from __future__ import annotations

import signal
import time

import numpy as np

from collplan.executors.mpi.engine.engine import Engine
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.loop import codes
from collplan.planner.plan.plan import Buffer, Op, Plan, Stage
from mpi_plans import PlanWriter, RangError, interrupt, refuses, ring
from progress_plans import OTHER, OWN, bind_placed, comm, copies, p, placed, rank


def stages() -> None:
    """Start runs what is inside it alone, a thread the background, and wait or tests the rest."""
    plan = copies(
        (Stage.START, OWN), (Stage.BACKGROUND, OTHER), (Stage.WAIT, OWN), compute_ns=200_000_000
    )
    mine, seen = np.full(1, 7, np.int32), np.zeros(3, np.int32)
    with bind_placed(plan, mine, seen, progress="thread") as bound:
        for ends_by_tests in (False, True):
            seen[:] = -1
            bound.start()
            assert not bound.test()
            assert seen.tolist() == [7, -1, -1]
            refuses(BindError, "still running: it cannot be started", bound.start)
            refuses(BindError, "still running: it cannot be given", lambda: bound.rebind(mine))
            while seen[1] != 7:
                time.sleep(1e-3)
            assert seen.tolist() == [7, 7, -1]
            if ends_by_tests:
                while not bound.test():
                    pass
            else:
                bound.wait()
            assert seen.tolist() == [7, 7, 7]


def ring_in_start() -> Plan:
    """Return a plan whose ranks send to the right inside start, then copy in the background."""
    writer = PlanWriter([[1, 2, 0]] * p)
    for r in range(p):
        at = {"core": r, "stage": Stage.START}
        writer.send(r, (r + 1) % p, (Buffer.SEND, 0, 1), **at)
        came = writer.recv(r, (r - 1) % p, (Buffer.RECV, 0, 1), **at)
        both = [(Buffer.RECV, 0, 1)], [(Buffer.RECV, 1, 1)]
        writer.add(Op.COPY, r, *both, after=[came], core=OTHER)
    return writer.plan()


def start_waits_for_others() -> None:
    """Messages of the start have arrived when it returns, however late they were sent."""
    mine, seen = np.zeros(1, np.int32), np.zeros(2, np.int32)
    with bind_placed(ring_in_start(), mine, seen, progress="thread") as bound:
        for late in range(p):
            mine[:], seen[:] = rank + 10 * late, -1
            if rank == late:
                time.sleep(0.08)
            bound.start()
            assert seen[0] == (rank - 1) % p + 10 * late
            bound.wait()
            assert seen[1] == seen[0]


def interrupted_starts() -> None:
    """A start that was interrupted goes on in a wait or in tests, and is handed over there."""
    mine, seen = np.full(1, rank, np.int32), np.zeros(2, np.int32)
    signal.signal(signal.SIGALRM, ring)
    with bind_placed(ring_in_start(), mine, seen, progress="thread") as bound:
        for ends_by_tests in (False, True):
            seen[:] = -1
            comm.Barrier()
            if rank == p - 1:
                time.sleep(0.15)
            elif rank == 0:
                signal.setitimer(signal.ITIMER_REAL, 0.03)
            try:
                bound.start()
                assert rank, "the start of rank 0 ended"
            except RangError:
                assert seen[1] == -1
            if ends_by_tests:
                while not bound.test():
                    pass
            else:
                bound.wait()
            assert seen.tolist() == [(rank - 1) % p] * 2


def interrupts() -> None:
    """Signals are handled while a caller waits for its thread, and the wait is taken up again."""
    plan = copies((Stage.BACKGROUND, OTHER), compute_ns=400_000_000)
    one, seen = np.full(1, 5, np.int32), np.zeros(1, np.int32)
    with bind_placed(plan, one, seen, progress="thread") as bound:
        interrupt(bound, after_s=0.05)
        bound.wait()
        assert seen[0] == 5


def computes() -> None:
    """The application's own thread computes, while the other runs the background."""
    duration_ns = 300_000_000
    compute = {"name": "add_compute", "duration_ns": duration_ns}
    plan = placed("bcast", passes=[{"name": "place_progress"}, compute])
    vector = np.zeros(40, np.int32)
    with bind_placed(plan, None, vector, progress="thread") as bound:
        assert isinstance(bound._engine, Engine)
        memory = bound._engine._memory
        assert memory.get("beside_ns") == duration_ns
        assert not (memory.tasks["kind"][:-1] == codes.COMPUTE).any()
        for by_tests in (False, True):
            vector[:] = 3 if rank == p - 1 else -1
            bound.start()
            before = time.thread_time_ns()
            if by_tests:
                assert not bound.test()
                left = memory.get("beside_left_ns")
                assert 0 < left < duration_ns
                while not bound.test():
                    pass
            else:
                bound.wait()
            # A wait that leaves it to others sleeps.
            assert time.thread_time_ns() - before > duration_ns // 100
            assert memory.get("beside_left_ns") <= 0
            assert (vector == 3).all()


def computes_with_the_background() -> None:
    """Nothing beside a thread may wait for what is in it, or be waited for."""
    writer = PlanWriter([[1, 1, 0]] * p)
    for r in range(p):
        sent = [(Buffer.SEND, 0, 1)], [(Buffer.RECV, 0, 1)]
        copy = writer.add(Op.COPY, r, *sent, core=OTHER)
        writer.add(Op.COMPUTE, r, duration_ns=1000, after=[copy], core=r)
    one = np.ones(1, np.int32)
    words = f"compute #{2 * rank + 1} on the rank's own core waits for tasks in the background"
    with bind_placed(writer.plan(), one, one.copy()) as bound:
        assert bound.progress == "caller"
        assert bound.why_caller is not None
        assert words in bound.why_caller
        bound()
