"""Background tasks in a thread: results, several plans at once, where it runs, what it refuses."""

from __future__ import annotations

import gc
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import count, product

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.executors.mpi.engine.engine import this_thread
from collplan.measure.run import Case
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.errors import DeadlockError
from collplan.planner.plan.plan import Buffer, Op, Plan
from mpi_plans import InPython, PlanWriter, refuses
from progress_places import crowds, degrades, goes_to_its_cores, nodes_and_hosts
from progress_plans import OTHER, bind_placed, comm, p, placed, rank, threads
from progress_stages import (
    computes,
    computes_with_the_background,
    interrupted_starts,
    interrupts,
    stages,
    start_waits_for_others,
)


def plans() -> Iterator[Plan]:
    """Yield placed and split plans, some in segments; even and odd numbers of ranks take turns."""
    numbers = count()
    for kind, transport in product(
        ("bcast", "reduce", "gather", "scatter", "allreduce", "scan", "allgather"),
        ("messages", "shared"),
    ):
        is_tree = kind in ("bcast", "reduce", "gather", "scatter", "allreduce")
        algorithm = {"allreduce": "reduce_bcast", "scan": "linear"}.get(kind, "binomial")
        for levels in (None, 0, 1, 2) if is_tree else (None,):
            number = next(numbers)
            if (number + number // 4) % 2 != p % 2:
                continue
            split = {"name": "split_tree", "levels": levels, "comm_cores": 2}
            passes = [{"name": "place_progress", "policy": "odd_even"} if levels is None else split]
            if levels == 0:
                passes.append({"name": "segment", "max_bytes": 64})
            fields = {"algorithm": algorithm if is_tree else "auto", "passes": passes}
            yield placed(kind, transport=transport, **fields)


def overlapped(n_starts: int) -> int:
    """Start again and again, compute on other memory meanwhile; return how often."""
    rng = np.random.default_rng(rank)
    others = np.arange(2000.0)
    n_threads, n_done = 0, 0
    for turn, plan in enumerate(plans()):
        assert plan.spec is not None
        collective = plan.spec.collective
        cases = [Case(plan, collective, comm, seed=seed) for seed in range(2)]
        truths = [expected(collective, make_inputs(collective, p, seed))[rank] for seed in range(2)]
        with bind_placed(plan) as bound:
            n_threads += bound.progress == "thread"
            assert bound.progress == "thread" or "are on cores that hold ranks" in bound.why_caller
            own = bound.allocate() if turn % 3 == 0 else None
            for start in range(n_starts):
                case, truth = cases[start % 2], truths[start % 2]
                case.fill()
                if own is None:
                    bound.rebind(case.sendbuf, case.recvbuf)
                else:
                    own[0][:], own[1][:] = case.sendbuf, case.recvbuf[: len(own[1])]
                bound.start()
                others += 1.0
                np.sqrt(others, out=others)
                if start % 3 == 0:
                    while not bound.test():
                        time.sleep(rng.random() * 1e-4)
                else:
                    bound.wait()
                if own is not None:
                    case.recvbuf[: len(own[1])] = own[1]
                others *= others
                others -= 1.0
                wrong = case.own_wrong(truth)
                assert len(wrong) == 0, (turn, start, plan.spec, case.recvbuf, truth)
                n_done += 1
    assert np.allclose(others, np.arange(2000.0), atol=1e-6)
    assert comm.allreduce(n_threads, MPI.MAX) > 10, n_threads
    return n_done


def several_at_once() -> None:
    """Plans with threads and without one, waited for and tested in any order on each rank."""
    kinds = ("allreduce", "bcast", "allreduce", "allreduce")
    options = ({}, {}, {"progress": "caller"}, {"operation": InPython("sum")})
    buffers = [(np.zeros(300, np.int32), np.zeros(300, np.int32)) for _ in kinds]
    bounds = [
        bind_placed(
            placed(kind, 300, ("messages", "shared")[i % 2]),
            pair[0] if kind == "allreduce" else None,
            pair[1],
            **option,
        )
        for i, (kind, pair, option) in enumerate(zip(kinds, buffers, options, strict=True))
    ]
    assert [bound.progress for bound in bounds] == ["thread", "thread", "caller", "caller"]
    for start in range(40):
        order = np.random.default_rng(start * p + rank).permutation(len(bounds))
        for i, (mine, result) in enumerate(buffers):
            mine[:] = rank + start + i
            result[:] = start if rank == p - 1 else -1
        for bound in bounds:
            bound.start()
        for i in order:
            if start % 2:
                bounds[i].wait()
        left = set(order.tolist())
        while left:
            left -= {i for i in left if bounds[i].test()}
        for i, (_, result) in enumerate(buffers):
            total = p * (p - 1) // 2 + p * (start + i)
            assert (result == (start if kinds[i] == "bcast" else total)).all(), (start, i, result)
    assert not this_thread.engines
    for bound in bounds:
        bound.free()


def needs_no_caller() -> None:
    """A caller that holds the interpreter's lock and calls nothing sees the result come."""
    vector = np.zeros(1000, np.int32)
    keep = sys.getswitchinterval()
    for transport in ("messages", "shared"):
        with bind_placed(placed("bcast", 1000, transport), None, vector) as bound:
            for start in range(1, 20):
                vector[:] = start if rank == p - 1 else -1
                comm.Barrier()
                sys.setswitchinterval(1000)
                bound.start()
                while vector[-1] != start:
                    pass
                sys.setswitchinterval(keep)
                bound.wait()
                assert (vector == start).all()


def errors() -> None:
    """Errors in the thread come out of a wait, a call or a test."""
    writer, cycle = PlanWriter([[4, 4, 0]] * p), PlanWriter([[1, 1, 0]] * p)
    for r in range(p):
        writer.send(r, r, (Buffer.SEND, 0, 4), core=OTHER)
        writer.recv(r, r, (Buffer.RECV, 0, 2), core=OTHER)
        for other in (2 * r + 1, 2 * r):
            cycle.add(Op.COMPUTE, r, after=[other], core=OTHER)
    four, one = np.zeros(4, np.int32), np.zeros(1, np.int32)

    def start_and_test(bound: BoundPlan) -> None:
        bound.start()
        while not bound.test():
            pass

    def start_and_wait(bound: BoundPlan) -> None:
        bound.start()
        bound.wait()

    ways: tuple[Callable[[BoundPlan], None], ...] = (
        start_and_test,
        start_and_wait,
        BoundPlan.__call__,
    )
    for way in ways:
        bound = bind_placed(writer.plan(), four, four.copy(), progress="thread")
        found = MPI.SUCCESS
        try:
            way(bound)
        except MPI.Exception as error:
            found = error.Get_error_class()
        assert found == MPI.ERR_TRUNCATE
        bound = bind_placed(cycle.plan(), one, one.copy(), progress="thread")
        words = "2 tasks of this rank wait for each other"
        refuses(DeadlockError, words, lambda way=way, bound=bound: way(bound))
        assert not this_thread.engines


def ends() -> None:
    """A thread ends with its plan: when it is freed, and when nobody has it any more."""
    vector = np.zeros(40, np.int32)
    plan = placed("bcast", transport="shared")
    bound = bind_placed(plan, None, vector, progress="thread")
    bound()
    assert len(threads()) == 1
    child = os.fork()
    if child == 0:
        # No thread is in here: neither waiting for it nor ending it may hang or crash.
        bound._engine.free()
        os._exit(0 if not threads() else 1)
    assert os.waitpid(child, 0)[1] == 0
    bound()
    bound.free()
    assert not threads()
    bound = bind_placed(plan, None, vector)
    bound()
    engine = weakref.ref(bound._engine)
    del bound
    gc.collect()
    assert engine() is None
    assert not threads()


def leaves() -> None:
    """Programs may end with plans that were not freed; some are running, and cannot complete."""
    for transport in ("messages", "shared"):
        vector = np.zeros(40, np.int32)
        bound = bind_placed(placed("bcast", 40, transport), None, vector, progress="thread")
        bound()
        if rank == 0:
            bound.start()
        kept.append((bound, vector))
    assert sum(thread.is_alive() for thread in threads()) >= 2


kept: list[tuple[BoundPlan, np.ndarray]] = []
CASES = (
    several_at_once,
    needs_no_caller,
    stages,
    start_waits_for_others,
    interrupted_starts,
    computes,
    computes_with_the_background,
    goes_to_its_cores,
    interrupts,
    degrades,
    nodes_and_hosts,
    crowds,
    ends,
    errors,
    leaves,
)
begin = MPI.Wtime()
n_starts = overlapped(int(sys.argv[1]))
for case in CASES:
    started = MPI.Wtime()
    case()
    comm.Barrier()
    if rank == 0:
        print(f"{case.__name__}: {MPI.Wtime() - started:.2f} s")
if rank == 0:
    print(f"passed: {n_starts} starts on {p} ranks in {MPI.Wtime() - begin:.1f} s", flush=True)
