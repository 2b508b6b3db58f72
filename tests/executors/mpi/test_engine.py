"""The engine on plans written by hand: exchanges, strides, stages, many starts, wrong calls."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.engine.engine import this_thread
from collplan.executors.mpi.engine.loop_memory import LoopMemory
from collplan.executors.mpi.engine.portable import portable
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.host.cores import Crowding
from collplan.executors.mpi.host.waiting import sleep_between_polls
from collplan.executors.mpi.program.program import rank_program
from collplan.planner.plan.plan import Buffer, Op, Stage
from collplan.planner.plan.ragged import ON_START
from collplan.specs.errors import CollplanError
from mpi_launching import assert_passes, mpirun
from mpi_plans import PlanWriter, reduction, refuses, ring_allreduce_max

WAYS = ("compiled", "python")


@pytest.mark.ranks(1, 2, 3)
def test_exchange_strided(comm: MPI.Intracomm) -> None:
    """Each rank sends the columns of a 4 x 6 matrix to the right, as one message.

    send (4 x 6) --- columns 1,2 and 4 ---> recv, transposed order of extents
    """
    rank, p = comm.rank, comm.size
    patterns = [(6, 4, 0, 1), (6, 2, 12, 2), (1, 2, 0, 1)]
    writer = PlanWriter([[24, 24, 0]] * p, patterns=patterns)
    for r in range(p):
        right, left = (r + 1) % p, (r - 1) % p
        # 4 rows of 2 elements; then column 4 as (2 x 2) rows of one element.
        writer.send(r, right, (Buffer.SEND, 1, 2, 1), (Buffer.SEND, 4, 1, 2), tag=3)
        writer.recv(
            r,
            left,
            (Buffer.RECV, 16, 4),
            (Buffer.RECV, 2, 1, 1),
            (Buffer.RECV, 0, 1, 3),
            (Buffer.RECV, 6, 2),
            tag=3,
        )
    send = np.arange(24, dtype=np.int32) + 100 * rank
    recv = np.full(24, -1, dtype=np.int32)
    with bind(writer.plan(), comm, send, recv) as bound:
        for _ in range(3):
            bound()
    matrix = (np.arange(24) + 100 * ((rank - 1) % p)).reshape(4, 6)
    message = [*matrix[:, 1:3].reshape(-1), *matrix[:, 4]]
    expected = np.full(24, -1)
    expected[16:20] = message[:4]
    expected[[2, 8, 14, 20]] = message[4:8]
    expected[[0, 1]] = message[8:10]
    expected[[6, 7]] = message[10:12]
    assert np.array_equal(recv, expected), (recv, expected)


@pytest.mark.ranks(1, 2, 3)
def test_runs_in_a_row(comm: MPI.Intracomm) -> None:
    """Compiled code runs a plan as often as asked, and no more often."""
    rank, p = comm.rank, comm.size
    writer = PlanWriter([[1, 1, 0]] * p)
    for r in range(p):
        writer.send(r, (r + 1) % p, (Buffer.SEND, 0, 1))
        writer.recv(r, (r - 1) % p, (Buffer.RECV, 0, 1))
    send, recv = np.array([10 + rank], np.int32), np.zeros(1, np.int32)
    with bind(writer.plan(), comm, send, recv) as bound:
        bound.repeat(0)
        assert recv[0] == 0
        for n_runs in (1, 5, 1000):
            before = bound.engine_memory.get("epoch")
            bound.repeat(n_runs)
            assert bound.engine_memory.get("epoch") == before + n_runs
        bound()
        assert recv[0] == 10 + (rank - 1) % p
    refuses(BindError, "was freed", lambda: bound.repeat(1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.ranks(1, 2, 3)
def test_local_tasks(comm: MPI.Intracomm, way: str) -> None:
    """Copies and reductions over several extents, strides and overlapping buffers."""
    p = comm.size
    patterns = [(4, 3, 0, 1)]
    writer = PlanWriter([[12, 12, 12]] * p, patterns=patterns)
    for r in range(p):
        a = writer.add(
            Op.COPY, r, [(Buffer.SEND, 0, 2, 1), (Buffer.SEND, 2, 2, 1)], [(Buffer.RECV, 0, 12)]
        )
        # Swap the halves in one task: all reads come before all writes.
        b = writer.add(
            Op.COPY,
            r,
            [(Buffer.RECV, 6, 6), (Buffer.RECV, 0, 6)],
            [(Buffer.RECV, 0, 6), (Buffer.RECV, 6, 6)],
            after=[a],
        )
        c = writer.add(Op.COPY, r, [(Buffer.RECV, 0, 12)], [(Buffer.SCRATCH, 0, 12)], after=[b])
        writer.add(
            Op.REDUCE,
            r,
            [(Buffer.SEND, 0, 2, 1), (Buffer.SCRATCH, 1, 6)],
            [(Buffer.RECV, 2, 3), (Buffer.RECV, 7, 3)],
            after=[c],
        )
        writer.add(Op.COMPUTE, r, duration_ns=1000)
    send = np.arange(12, dtype=np.int32)
    recv = np.zeros(12, dtype=np.int32)
    with bind(writer.plan(), comm, send, recv, operation=reduction(way, "sum")) as bound:
        bound()
    rows = send.reshape(3, 4)
    whole = np.concatenate((rows[:, :2].reshape(-1), rows[:, 2:].reshape(-1)))
    swapped = np.concatenate((whole[6:], whole[:6]))
    expected = swapped.copy()
    total = rows[:, :2].reshape(-1) + swapped[1:7]
    expected[2:5], expected[7:10] = total[:3], total[3:]
    assert np.array_equal(recv, expected), (recv, expected)


@pytest.mark.ranks(1, 2, 3)
def test_stages(comm: MPI.Intracomm) -> None:
    """A task of stage START has run when start returns; one of stage WAIT only in wait."""
    rank, p = comm.rank, comm.size
    writer = PlanWriter([[1, 4, 0]] * p)
    for r in range(p):
        one = (Buffer.SEND, 0, 1)
        writer.send(r, (r + 1) % p, one, stage=Stage.START)
        came = writer.recv(r, (r - 1) % p, (Buffer.RECV, 0, 1), stage=Stage.START)
        writer.add(Op.COPY, r, [one], [(Buffer.RECV, 1, 1)], after=[(came, ON_START)])
        writer.add(Op.COPY, r, [one], [(Buffer.RECV, 2, 1)], stage=Stage.WAIT)
        writer.add(Op.COPY, r, [one], [(Buffer.RECV, 3, 1)], after=[came], stage=Stage.WAIT)
    send, recv = np.array([rank], dtype=np.int32), np.full(4, -1, dtype=np.int32)
    left = (rank - 1) % p
    with bind(writer.plan(), comm, send, recv) as bound:
        bound.start()
        assert recv.tolist() == [left, rank, -1, -1], recv
        bound.wait()
        assert recv.tolist() == [left, rank, rank, rank], recv
        recv[:] = -1
        bound.start()
        while not bound.test():
            pass
        assert recv.tolist() == [left, rank, rank, rank], recv


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.ranks(1, 2, 3)
def test_many_starts(comm: MPI.Intracomm, way: str) -> None:
    """Hundreds of starts with changing inputs, leaving no objects behind."""
    rank, p = comm.rank, comm.size
    highest = reduction(way, "max")
    send, recv = np.zeros(5, dtype=np.int32), np.zeros(5, dtype=np.int32)
    with bind(ring_allreduce_max(p, 5), comm, send, recv, operation=highest) as bound:
        before = 0
        for i in range(300):
            send[:] = np.arange(5) + (rank * 7 + i) % (2 * p + 1)
            bound()
            top = max((r * 7 + i) % (2 * p + 1) for r in range(p))
            assert np.array_equal(recv, np.arange(5) + top), (i, recv)
            if i == 50:
                gc.collect()
                before = len(gc.get_objects())
        gc.collect()
        assert len(gc.get_objects()) <= before + 50, (before, len(gc.get_objects()))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.ranks(1, 2)
def test_many_binds(comm: MPI.Intracomm, way: str) -> None:
    """More binds than MPICH has communicators left: free returns what bind took."""
    p = comm.size
    highest = reduction(way, "max")
    send, recv = np.zeros(5, dtype=np.int32), np.zeros(5, dtype=np.int32)
    plan = ring_allreduce_max(p, 5)
    is_mpich = "MPICH" in MPI.Get_library_version()
    # It has 2048 at a time.
    others = [comm.Dup() for _ in range(1950 if is_mpich else 0)]
    for _ in range(120 if is_mpich else 50):
        bound = bind(plan, comm, send, recv, operation=highest)
        bound.free()
        bound.free()
    for other in others:
        other.Free()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.ranks(1, 2, 3)
def test_several_in_flight(comm: MPI.Intracomm, way: str) -> None:
    """Five bound plans run at once, started and finished in different orders."""
    rank, p = comm.rank, comm.size
    highest = reduction(way, "max")
    sends = [np.full(1000, rank + k, dtype=np.int32) for k in range(5)]
    recvs = [np.zeros(1000, dtype=np.int32) for _ in range(5)]
    plan = ring_allreduce_max(p, 1000)
    bound = [bind(plan, comm, s, r, operation=highest) for s, r in zip(sends, recvs, strict=True)]
    for one in bound if rank % 2 else reversed(bound):
        one.start()
    left = list(bound)
    while left:
        left = [one for one in left if not one.test()]
    for k, (one, recv) in enumerate(zip(bound, recvs, strict=True)):
        assert (recv == p - 1 + k).all(), (k, recv)
        one.free()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.ranks(1, 2, 3)
def test_several_waited_for_in_other_orders(comm: MPI.Intracomm, way: str) -> None:
    """Ranks that complete one plan only after another need both to advance in either's wait."""
    rank, p = comm.rank, comm.size
    count = 1 << 16
    orders = [0, 1, 2], [2, 1, 0], [1, 2, 0]
    operations = [reduction(by, "max") for by in ("compiled", "python", way)]
    plan = ring_allreduce_max(p, count)
    vectors = [np.full(count, rank + turn, dtype=np.int32) for turn in range(3)]
    results = [np.zeros(count, dtype=np.int32) for _ in range(3)]
    bounds = [
        bind(plan, comm, vector, result, operation=operation)
        for vector, result, operation in zip(vectors, results, operations, strict=True)
    ]
    for start in range(4):
        for bound in bounds:
            bound.start()
        first, second, third = orders[(rank + start) % 3]
        bounds[first].wait()
        bounds[second].wait()
        while not bounds[third].test():
            pass
        # A call among started plans, and the next round may find one of them running.
        bounds[start % 3]()
        for turn, result in enumerate(results):
            assert (result == p - 1 + turn).all()
            result[:] = 0
    assert not this_thread.engines
    for bound in bounds:
        bound.free()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.ranks(1, 2, 3)
def test_polling_with_computation(comm: MPI.Intracomm, way: str) -> None:
    """Completion by test() alone, with computation between the calls."""
    rank, p = comm.rank, comm.size
    highest = reduction(way, "max")
    send = np.full(50_000, rank, dtype=np.int32)
    recv = np.zeros(50_000, dtype=np.int32)
    with bind(ring_allreduce_max(p, 50_000), comm, send, recv, operation=highest) as bound:
        bound.start()
        work = np.ones((20, 20))
        while not bound.test():
            work = np.tanh(work @ work)
        assert bound.test()
        assert (recv == p - 1).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.ranks(1, 2, 3)
def test_wrong_calls(comm: MPI.Intracomm, way: str) -> None:
    rank, p = comm.rank, comm.size
    highest = reduction(way, "max")
    plan = ring_allreduce_max(p, 5)
    good, out = np.zeros(5, dtype=np.int32), np.zeros(5, dtype=np.int32)

    def attempt(*args: object, **kwargs: object) -> object:
        return lambda: bind(*args, **kwargs)  # type: ignore[arg-type]

    refuses(
        BindError,
        "sendbuf has 4 elements, the plan needs 5",
        attempt(plan, comm, good[:4], out, operation=highest),
    )
    refuses(BindError, "recvbuf is missing", attempt(plan, comm, good, operation=highest))
    refuses(BindError, "recvbuf is a list", attempt(plan, comm, good, [0] * 5, operation=highest))
    refuses(
        BindError,
        "float64 of 8 bytes",
        attempt(plan, comm, good.astype(float), out, operation=highest),
    )
    refuses(
        BindError,
        "sendbuf has dtype float32, recvbuf int32",
        attempt(plan, comm, good.astype("f4"), out, operation=highest),
    )
    refuses(
        BindError,
        "not C-contiguous",
        attempt(plan, comm, np.zeros(10, np.int32)[::2], out, operation=highest),
    )
    frozen = np.zeros(5, dtype=np.int32)
    frozen.flags.writeable = False
    refuses(BindError, "recvbuf is read-only", attempt(plan, comm, good, frozen, operation=highest))
    refuses(
        BindError,
        f"the plan is for {p + 3} ranks, the communicator has {p}",
        attempt(ring_allreduce_max(p + 3, 5), comm, good, out, operation=highest),
    )
    with bind(plan, comm, frozen, out, operation=highest) as bound:
        bound()
    refuses(BindError, "was freed", bound.start)
    ten = np.zeros(10, dtype=np.int32)
    for overlapping in ((good, good), (ten[:5], ten[4:]), (ten, ten[1:6])):
        refuses(
            BindError,
            "sendbuf and recvbuf overlap",
            attempt(plan, comm, *overlapping, operation=highest),
        )
    with bind(plan, comm, ten[:5], ten[5:], operation=highest) as bound:
        refuses(BindError, "sendbuf and recvbuf overlap", lambda: bound.rebind(ten[1:6], ten[:5]))
        bound()
    for limit_s in (0, -1, -1.5, float("nan"), "5"):
        refuses(
            BindError,
            f"timeout_s is {limit_s!r}, must be above 0 s",
            attempt(plan, comm, good, out, operation=highest, timeout_s=limit_s),
        )
    if p == 1:
        return
    whose = "" if rank == 0 else "rank 0 cannot bind the plan: "
    refuses(
        BindError,
        f"{whose}timeout_s is 0, must",
        attempt(plan, comm, good, out, operation=highest, timeout_s=30 if rank else 0),
    )
    half = comm.Split(rank % 2)
    across_both = half.Create_intercomm(0, comm, 1 - rank % 2)
    refuses(BindError, "comm is an intercommunicator", attempt(plan, across_both, good, out))
    across_both.Free()
    half.Free()
    refuses(BindError, "names no operation", attempt(plan, comm, good, out))
    # One rank's mistake is everybody's error, so that nobody waits for ever.
    words = (
        "sendbuf has 2" if rank == p - 1 else f"rank {p - 1} cannot bind the plan: sendbuf has 2"
    )
    mine = good[:2] if rank == p - 1 else good
    refuses(BindError, words, attempt(plan, comm, mine, out, operation=highest))
    other = plan.replace(priority=plan.priority + (plan.rank == rank) * 1 + rank)
    refuses(BindError, "binds a plan of digest", attempt(other, comm, good, out, operation=highest))
    shared = PlanWriter([[5, 5, 0]] * p)
    for r in range(p):
        shared.add(Op.COPY, r, [(Buffer.SHARED, 0, 5)], [(Buffer.RECV, 0, 5)])
    refuses(
        CollplanError, "whose shared buffer has 0 elements", attempt(shared.plan(), comm, good, out)
    )
    across = PlanWriter([[5, 5, 0]] * p)
    for r in range(p):
        after = [r - 1] if r else []
        across.add(Op.COPY, r, [(Buffer.SEND, 0, 5)], [(Buffer.RECV, 0, 5)], after=after)
    refuses(CollplanError, "share no memory", attempt(across.plan(), comm, good, out))
    stray = PlanWriter([[5, 5, 0]] * p)
    for r in range(p):
        stray.add(Op.COPY, r, [(Buffer.SEND, 1, 5)], [(Buffer.RECV, 0, 5)])
    refuses(CollplanError, "send[1:6] of rank", attempt(stray.plan(), comm, good, out))
    # Columns of an untrusted plan must not lead cursors out of their extents.
    for op, n_read, words in (
        (Op.COPY, 4, "task #0: copy of unequal size"),
        (Op.REDUCE, 3, "task #0: reduction of unequal operands"),
        (Op.REDUCE, 5, "task #0: reduction of unequal operands"),
    ):
        uneven = PlanWriter([[5, 5, 0]] * p)
        for r in range(p):
            uneven.add(op, r, [(Buffer.SEND, 0, n_read)], [(Buffer.RECV, 0, 2)])
        refuses(CollplanError, words, attempt(uneven.plan(), comm, good, out, operation=highest))
    limit = comm.Get_attr(MPI.TAG_UB)
    if limit < 2**31 - 1:
        high = PlanWriter([[5, 5, 0]] * p)
        for r in range(p):
            high.send(r, (r + 1) % p, (Buffer.SEND, 0, 5), tag=limit)
            high.recv(r, (r - 1) % p, (Buffer.RECV, 0, 5), tag=limit)
        refuses(
            BindError,
            f"tag {limit}, this MPI allows it up to {limit - 1}",
            attempt(high.plan(), comm, good, out),
        )
    with bind(plan, comm, good, out, operation=highest) as bound:
        bound.start()
        if bound._engine.is_running:
            refuses(BindError, "still running", bound.start)
            refuses(BindError, "still running", bound.free)
        bound.wait()


@pytest.mark.ranks(1, 2, 3)
def test_all_sizes_of_elements(comm: MPI.Intracomm) -> None:
    """Any numpy type travels: messages are bytes."""
    rank, p = comm.rank, comm.size
    for dtype in (
        "bool",
        "int8",
        "float16",
        "float32",
        "int64",
        "complex64",
        "complex128",
        "longdouble",
    ):
        kind = np.dtype(dtype)
        writer = PlanWriter([[4, 4, 0]] * p, itemsize=kind.itemsize)
        for r in range(p):
            writer.send(r, (r + 1) % p, (Buffer.SEND, 2, 2))
            writer.recv(r, (r - 1) % p, (Buffer.RECV, 1, 1), (Buffer.RECV, 3, 1))
        send = (np.arange(4) + rank).astype(kind)
        recv = np.zeros(4, dtype=kind)
        with bind(writer.plan(), comm, send, recv) as bound:
            bound()
        left = (np.arange(4) + (rank - 1) % p).astype(kind)
        assert recv[1] == left[2], (dtype, recv)
        assert recv[3] == left[3], (dtype, recv)


@pytest.mark.system
@pytest.mark.parametrize(("n_ranks", "mpi"), [(1, "openmpi"), (3, "mpich"), (3, "openmpi")])
def test_plans_that_never_complete(n_ranks: int, mpi: str) -> None:
    assert_passes(mpirun(n_ranks, "engine_failing.py", mpi=mpi))


def test_idle_ranks_without_python_sleep_as_their_crowding_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = []
    set_idling = LoopMemory.set_idling

    def note(memory: LoopMemory, *idling: Any) -> None:
        told.append(idling)
        set_idling(memory, *idling)

    monkeypatch.setattr(LoopMemory, "set_idling", note)
    writer = PlanWriter([[1, 1, 0]])
    writer.add(Op.COPY, 0, [(Buffer.SEND, 0, 1)], [(Buffer.RECV, 0, 1)])
    plan = writer.plan()
    assert portable(plan, rank_program(plan, 0), 0, None, Crowding(3.0, False), 0)
    assert told[-1] == (sleep_between_polls(3.0), False)
    assert told[-1][0] > 0
