"""Background tasks in a thread: results, several plans at once, where it runs, what it refuses."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from mpi4py import MPI

from executors.mpi import background, running
from executors.mpi.binding import BoundPlan, bind
from executors.mpi.cores import affinity
from executors.mpi.errors import BindError
from executors.mpi.measure import Case
from mpi_plans import PlanWriter, refuses
from oracle import make_spec
from planner import compile_plan
from planner.errors import DeadlockError
from planner.plan import Buffer, Op, Plan, Stage
from planner.reference import expected, make_inputs

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
PROCESSORS = sorted(set().union(*comm.allgather(affinity())))
NAME = "collplan progress"
OWN, OTHER = 0, p
"""An application core and the communication core of plans by hand."""


def machine(n_free: int = 2) -> dict[str, object]:
    return {"ranks_per_node": p, "cores": p + n_free}


def processors_of(n_cores: int) -> list[int]:
    """Return processors for all cores of a node, in turns."""
    return [PROCESSORS[core % len(PROCESSORS)] for core in range(n_cores)]


def bind_placed(plan: Plan, *buffers: np.ndarray | None, **options: object) -> BoundPlan:
    """Bind a plan with as many cores as processors may stand for."""
    n_cores = background.cores_of_node(plan, rank)
    given: dict[str, object] = {"cores": processors_of(n_cores), **options}
    return bind(plan, comm, *buffers, **given)  # type: ignore[arg-type]


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def placed(kind: str, count: int = 40, transport: str = "messages", **fields: object) -> Plan:
    fields = {"passes": [{"name": "place_progress"}], "algorithm": "auto", **fields}
    algorithm = fields.pop("algorithm")
    spec = make_spec(
        kind, algorithm, p, machine(), count=count, datatype="int32", root=p - 1, **fields
    )
    return compile_plan(spec.replace(transport=transport))


def plans() -> Iterator[Plan]:
    """Yield placed and split plans, some in segments."""
    for kind, transport in product(
        ("bcast", "reduce", "gather", "scatter", "allreduce", "scan", "allgather"),
        ("messages", "shared"),
    ):
        is_tree = kind in ("bcast", "reduce", "gather", "scatter", "allreduce")
        algorithm = {"allreduce": "reduce_bcast", "scan": "linear"}.get(kind, "binomial")
        for levels in (None, 0, 1, 2) if is_tree else (None,):
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
    assert comm.allreduce(n_threads, MPI.MAX) > 20, n_threads
    return n_done


def several_at_once() -> None:
    """Plans with threads and without one, waited for and tested in any order on each rank."""
    kinds = ("allreduce", "bcast", "allreduce", "allreduce")
    options = ({}, {}, {"progress": "caller"}, {"engine": "python"})
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
    assert not running.this_thread.engines
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


def copies(*stages: tuple[Stage, int], compute_ns: int = 0) -> Plan:
    """Return a plan whose ranks copy their element once a stage, on some core."""
    writer = PlanWriter([[1, len(stages), 0]] * p)
    for r in range(p):
        for i, (stage, core) in enumerate(stages):
            at = {"core": r if core == OWN else core, "stage": stage}
            before = []
            if compute_ns and core != OWN:
                before = [writer.add(Op.COMPUTE, r, duration_ns=compute_ns, **at)]
            place = (Buffer.RECV, i, 1)
            writer.add(Op.COPY, r, [(Buffer.SEND, 0, 1)], [place], before, **at)
    return writer.plan()


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
    """What a start has to receive has come when it returns, however late it was sent."""
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


class RangError(Exception):
    """What a signal raises."""


def ring(number: int, frame: object) -> None:
    raise RangError


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


def goes_to_its_cores() -> None:
    """The thread runs on the processors of its tasks' cores, one after the other."""
    writer = PlanWriter([[1, 1, 0]] * p)
    wanted: list[int] = []
    for r in range(p):
        before: list[int] = []
        for core in (p, p + 1, p):
            # Copies, which are no messages: each on its core, in order.
            place = [(Buffer.SEND, 0, 1)], [(Buffer.RECV, 0, 1)]
            before = [writer.add(Op.COPY, r, *place, after=before, core=core)]
            before = [writer.add(Op.COMPUTE, r, duration_ns=30_000_000, after=before, core=core)]
    cores = processors_of(p + 2)
    wanted = [cores[p], cores[p + 1], cores[p]]
    one = np.zeros(1, np.int32)
    with bind_placed(writer.plan(), one, one.copy(), progress="thread") as bound:
        (thread,) = threads()
        assert thread.native_id is not None
        bound.start()
        seen = []
        while not bound.test():
            where = os.sched_getaffinity(thread.native_id)
            seen.append(where)
            time.sleep(1e-3)
        there = [min(where) for where in seen if len(where) == 1]
        visited = [at for i, at in enumerate(there) if i == 0 or there[i - 1] != at]
        assert visited == [at for i, at in enumerate(wanted) if i == 0 or wanted[i - 1] != at]
        assert os.sched_getaffinity(0) == affinity()


def errors() -> None:
    """What goes wrong in the thread comes out of a wait, a call or a test."""
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
        assert not running.this_thread.engines


def interrupts() -> None:
    """Signals are handled while a caller waits for its thread, and the wait is taken up again."""
    plan = copies((Stage.BACKGROUND, OTHER), compute_ns=400_000_000)
    one, seen = np.full(1, 5, np.int32), np.zeros(1, np.int32)
    signal.signal(signal.SIGALRM, ring)
    with bind_placed(plan, one, seen, progress="thread") as bound:
        for call in (bound, bound.wait):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                call()
            except RangError:
                continue
            raise AssertionError("the wait ended")
        refuses(BindError, "still running: it cannot be started", bound)
        bound.wait()
        assert seen[0] == 5


def degrades() -> None:
    """Where there is no thread, the caller runs everything, and the plan says why."""
    plan, vector = placed("bcast", 8), np.zeros(8, np.int32)
    none = make_spec("bcast", "auto", p, count=8, datatype="int32", root=p - 1)
    wide = {"ranks_per_node": p, "cores": 5000}
    way = {"count": 8, "datatype": "int32", "root": p - 1}
    passes = [{"name": "place_progress"}]
    huge = compile_plan(make_spec("bcast", "auto", p, wide, **way, passes=passes))
    cases: list[tuple[str, Plan, dict[str, object]]] = [
        ("it was asked for", plan, {"progress": "caller"}),
        ("tasks run in Python (it was asked for)", plan, {"engine": "python"}),
        ("are on cores that hold ranks, as core", compile_plan(none), {}),
        (f"has 5000 cores, its ranks may use {len(PROCESSORS)} processors", huge, {"cores": None}),
        ("cannot be used by rank", plan, {"cores": [9999] * (p + 2)}),
    ]
    for words, each, options in cases:
        with bind_placed(each, None, vector, **options) as bound:
            assert bound.progress == "caller"
            assert words in bound.why_caller, bound.why_caller
            assert not threads()
            vector[:] = 3 if rank == p - 1 else -1
            bound()
            assert (vector == 3).all()
        if options.get("progress") is None:
            insisting = {**options, "progress": "thread"}
            refuses(BindError, words, lambda e=each, o=insisting: bind_placed(e, None, vector, **o))
    refusals = (
        ("progress is 'later'; use one of auto, caller, thread", {"progress": "later"}),
        (f"cores names 1 processors, the plan's node has {p + 2} cores", {"cores": [0]}),
        ("cores[1] is -1; use the number of a processor", {"cores": [0, -1, 1, 1, 1]}),
        ("cores[0] is 'a'; use the number of a processor", {"cores": "abcdefgh"}),
    )
    for words, options in refusals:
        refuses(BindError, words, lambda o=options: bind_placed(plan, None, vector, **o))
    # One rank's wish is enough for all to be told.
    only = {"progress": "thread", "engine": "python"} if rank == p - 1 else {"engine": "python"}
    refuses(BindError, "progress is thread, but", lambda: bind_placed(plan, None, vector, **only))


def nodes_and_hosts() -> None:
    """Nodes of one host take their processors in turn; a node on two hosts has none."""
    if p < 2:
        return
    two = {"nodes": 2, "ranks_per_node": [1, p - 1], "cores": p}
    fields = {"count": 8, "datatype": "int32", "passes": [{"name": "place_progress"}]}
    plan = compile_plan(make_spec("bcast", "auto", p, two, **fields))
    vector = np.zeros(8, np.int32)
    background.affinity, keep = (lambda: set(range(2 * p)) | affinity()), background.affinity
    kept_reason = background._pinning_reason
    background._pinning_reason = lambda rank, processors: None
    seen: list[list[int]] = []
    kept_crowd = background._crowd
    background._crowd = lambda facts, offers, rank: seen.append(offers[rank].processors) or 0.5
    try:
        with bind(plan, comm, None, vector) as bound:
            assert bound.progress == "thread", bound.why_caller
        offset = p if rank else 0
        assert all(offset < processor < offset + p for processor in seen[0]), seen
        background.host = lambda: f"host {rank}"
        with bind(placed("bcast", 8), comm, None, vector) as bound:
            assert "of the same node of the plan on" in bound.why_caller, bound.why_caller
    finally:
        from executors.mpi.cores import host

        background.affinity, background.host = keep, host
        background._pinning_reason, background._crowd = kept_reason, kept_crowd


def crowds() -> None:
    """Who shares a processor with other threads must know."""
    fact = lambda *usable: background._Fact("h", "h", usable, 0, 4)  # noqa: E731
    offer = lambda *at: background._Offer(True, False, None, at)  # noqa: E731
    alone = background._crowd([fact(0, 1, 2, 3)] * 2, [offer(2), offer(3)], 0)
    assert alone == 1
    assert background._crowd([fact(0, 1, 2, 3)] * 3, [offer(3)] * 3, 1) == 3
    assert background._crowd([fact(0, 1, 2, 3)] * 3, [offer(1), offer(3), offer(3)], 0) == 1.5
    assert background._crowd([fact(0), fact(1)], [offer(1), offer(1)], 0) == 3
    away = background._Fact("other", "other", (0,), 1, 4)
    assert background._crowd([fact(0, 1), away], [offer(1), offer(1)], 0) == 1


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
        bound._binding.free()
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
