"""Bound plans: random ones, other buffers and addresses, parts of the world, large counts."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.binding.buffers import Buffers
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.program.messages import Messages
from collplan.planner import compile_plan
from collplan.planner.collective.operations import get_operation
from collplan.planner.formats.npz import save
from collplan.planner.plan.plan import NO_PATTERN, Buffer, Op, Plan
from collplan.planner.plan.ragged import ON_START
from mpi_plans import InPython, Interval, PlanWriter, cells_of, refuses, ring_allreduce_max
from oracle import make_spec

MAX, SUM = get_operation("max"), get_operation("sum")


SIZE = 60


PATTERNS = [NO_PATTERN[0].tolist(), [5, 3, 0, 1], [4, 2, 9, 2], [2, 4, 0, 1], [-3, 3, 0, 1]]


Cells = set[tuple[int, int]]


def draw_side(rng: np.random.Generator, n: int, buffers: tuple[int, ...]) -> list[Interval]:
    """Draw disjoint intervals of n elements in all."""
    found: list[Interval] = []
    taken: Cells = set()
    while n:
        pattern = int(rng.integers(len(PATTERNS)))
        repeats = PATTERNS[pattern][1] * PATTERNS[pattern][3]
        if repeats > n or rng.random() < 0.5:
            pattern, repeats = 0, 1
        count = int(rng.integers(1, n // repeats + 1))
        interval = (int(rng.choice(buffers)), int(rng.integers(SIZE)), count, pattern)
        cells = cells_of(interval, PATTERNS)
        inside = all(0 <= element < SIZE for _, element in cells)
        if inside and len(set(cells)) == len(cells) and not taken & set(cells):
            found.append(interval)
            taken |= set(cells)
            n -= len(cells)
    return found


def random_plan(seed: int, p: int, n_steps: int = 40) -> Plan:
    """Messages, copies and reductions on random elements; conflicting tasks of a rank in order."""
    rng = np.random.default_rng(seed)
    writer = PlanWriter([[SIZE] * 3] * p, patterns=PATTERNS[1:])
    history: list[list[tuple[int, Cells, Cells]]] = [[] for _ in range(p)]

    def add(op: Op, r: int, reads: list[Interval], writes: list[Interval], **more: int) -> None:
        read = {cell for interval in reads for cell in cells_of(interval, PATTERNS)}
        written = {cell for interval in writes for cell in cells_of(interval, PATTERNS)}
        after = [
            task
            for task, old_read, old_written in history[r]
            if written & (old_read | old_written) or read & old_written
        ]
        priority = int(rng.integers(100))
        task = writer.add(op, r, reads, writes, after, priority=priority, **more)
        history[r].append((task, read, written))

    every, own = (0, 1, 2), (1, 2)
    for step in range(n_steps):
        n = int(rng.integers(0, 13))
        if rng.random() < 0.5:
            source, dest = (int(x) for x in rng.integers(p, size=2))
            # A message to oneself must not write what it still reads.
            buffers = ((0,), own) if source == dest else (every, own)
            sent, received = (draw_side(rng, n, chosen) for chosen in buffers)
            add(Op.SEND, source, sent, [], peer=dest, tag=step)
            add(Op.RECV, dest, [], received, peer=source, tag=step)
        else:
            r = int(rng.integers(p))
            op = Op.COPY if rng.random() < 0.4 else Op.REDUCE
            writes = draw_side(rng, n, own)
            reads = writes if rng.random() < 0.3 else draw_side(rng, n, every)
            if op == Op.REDUCE:
                reads = reads + draw_side(rng, n, every)
            add(op, r, reads, writes)
    return writer.plan()


@pytest.mark.ranks(1, 3)
def test_random_plans(comm: MPI.Intracomm) -> None:
    """Compiled reductions and those in Python, started together, finished in any order."""
    rank, p = comm.rank, comm.size
    for seed in range(12):
        plan = random_plan(seed, p)
        start = np.random.default_rng(seed + rank).integers(0, 100, (2, SIZE)).astype(np.int32)
        buffers = [start.copy() for _ in range(3)]
        operations = (SUM, InPython("sum"), SUM)
        bounds = [
            bind(plan, comm, *pair, operation=operation)
            for pair, operation in zip(buffers, operations, strict=True)
        ]
        assert [bounds[i].why_callback for i in (0, 2)] == [None, None]
        for _ in range(3):
            order = bounds if (rank + seed) % 2 else bounds[::-1]
            for bound in order:
                bound.start()
            # A wait advances its own plan only: in different orders, ranks would wait for ever.
            left = order[1:] + order[:1]
            while left:
                left = [bound for bound in left if not bound.test()]
        for other in buffers[1:]:
            # Scratch is the plan's own: what it held before the first write is not promised.
            assert np.array_equal(buffers[0][0], other[0]), seed
        for bound in bounds:
            bound.free()


@pytest.mark.ranks(1, 3)
def test_other_buffers(comm: MPI.Intracomm) -> None:
    """Each start with other buffers; a message that spans both follows them."""
    rank, p = comm.rank, comm.size
    writer = PlanWriter([[6, 8, 0]] * p)
    for r in range(p):
        spanning = [(Buffer.SEND, 1, 3), (Buffer.RECV, 6, 2)]
        writer.send(r, (r + 1) % p, *spanning)
        writer.recv(r, (r - 1) % p, (Buffer.RECV, 0, 5))
    pairs = [(np.zeros(6, np.int32), np.zeros(8, np.int32)) for _ in range(4)]
    for operation in (None, InPython("sum")):
        with bind(writer.plan(), comm, *pairs[0], operation=operation) as bound:
            for turn in range(40):
                send, recv = pairs[turn % 4]
                bound.rebind(send, recv)
                send[:], recv[:] = np.arange(6) + turn + rank, -turn - rank
                bound()
                left = (rank - 1) % p
                wanted = [turn + left + i for i in (1, 2, 3)] + [-turn - left] * 2
                assert recv[:5].tolist() == wanted, (operation, turn, recv)
            send, recv = pairs[0]
            for words, wrong in (
                ("recvbuf has 7 elements", (send, recv[:7])),
                ("sendbuf has dtype float32, recvbuf int32", (send.view("f4"), recv)),
            ):
                refuses(BindError, words, partial(bound.rebind, *wrong))
        refuses(BindError, "was freed: it cannot be given", partial(bound.rebind, send, recv))


@pytest.mark.ranks(1, 3)
def test_allocated_buffers(comm: MPI.Intracomm) -> None:
    rank, p = comm.rank, comm.size
    plan = ring_allreduce_max(p, 5)
    send, recv = np.zeros(5, np.int32), np.zeros(5, np.int32)
    copies = PlanWriter([[3, 3, 0]] * p)
    for r in range(p):
        copies.add(Op.COPY, r, [(Buffer.SEND, 0, 3)], [(Buffer.RECV, 0, 3)])
    with bind(copies.plan(), comm) as bound:
        refuses(BindError, "has no buffers; call allocate()", bound)
        refuses(BindError, "has no buffers; call allocate()", bound.start)
        assert bound.test()
        given, taken = bound.allocate()
        assert given.nbytes == taken.nbytes == 12
        assert given.ctypes.data % 4096 == taken.ctypes.data % 4096 == 0
        given.view(np.int32)[:] = 7
        bound()
        assert taken.view(np.int32).tolist() == [7, 7, 7]
    with bind(plan, comm, send, recv, operation=MAX) as bound:
        send[:] = rank
        bound()
        assert recv.tolist() == [p - 1] * 5


@pytest.mark.ranks(1, 3)
def test_sub_communicators(comm: MPI.Intracomm) -> None:
    """Plans on halves and on the whole, at once."""
    rank, p = comm.rank, comm.size
    half = comm.Split(rank % 2)
    whole, part = ring_allreduce_max(p, 300), ring_allreduce_max(half.size, 300)
    arrays = [np.full(300, rank, np.int32) for _ in range(4)]
    with (
        bind(whole, comm, arrays[0], arrays[1], operation=MAX) as one,
        bind(part, half, arrays[2], arrays[3], operation=MAX) as other,
    ):
        for _ in range(20):
            arrays[1][:] = arrays[3][:] = -1
            one.start()
            other.start()
            other.wait()
            one.wait()
            assert (arrays[1] == p - 1).all()
            assert (arrays[3] == rank % 2 + 2 * (half.size - 1)).all()
    half.Free()


@pytest.mark.ranks(1, 3)
def test_large_counts(comm: MPI.Intracomm) -> None:
    """Counts beyond what an int holds, had ints two bits: blocks of blocks of elements."""
    rank, p = comm.rank, comm.size
    keep = Messages.__init__.__defaults__
    for limit in (3, 2):
        Messages.__init__.__defaults__ = (limit,)
        for pattern in (0, 1):
            patterns = [[20, 4, 200, 5]]
            writer = PlanWriter([[1000, 1000, 0]] * p, patterns=patterns)
            count = 997 if pattern == 0 else 17
            for r in range(p):
                writer.send(r, (r + 1) % p, (Buffer.SEND, 1, count, pattern))
                writer.recv(r, (r - 1) % p, (Buffer.RECV, 2, count, pattern))
            send = np.arange(1000, dtype=np.int32) + rank
            recv = np.zeros(1000, np.int32)
            wanted = recv.copy()
            if pattern == 0:
                wanted[2:999] = send[1:998] - rank + (rank - 1) % p
            else:
                where = np.arange(5)[:, None, None] * 200 + np.arange(4)[:, None] * 20
                where = (where + np.arange(17)).reshape(-1)
                wanted[where + 2] = send[where + 1] - rank + (rank - 1) % p
            with bind(writer.plan(), comm, send, recv) as bound:
                for _ in range(2):
                    bound()
            assert np.array_equal(recv, wanted), (limit, pattern)
    Messages.__init__.__defaults__ = keep


@pytest.mark.ranks(1, 3)
def test_early_receives(comm: MPI.Intracomm) -> None:
    """A task that waits for a message's start runs while the message still waits."""
    rank, p = comm.rank, comm.size
    writer = PlanWriter([[1, 2, 0]] * p)
    for r in range(p):
        came = writer.recv(r, r, (Buffer.RECV, 0, 1))
        done = writer.add(
            Op.COPY, r, [(Buffer.SEND, 0, 1)], [(Buffer.RECV, 1, 1)], after=[(came, ON_START)]
        )
        writer.send(r, r, (Buffer.RECV, 1, 1), after=[done])
    send, recv = np.full(1, 3 + rank, np.int32), np.zeros(2, np.int32)
    with bind(writer.plan(), comm, send, recv) as bound:
        bound()
    assert recv.tolist() == [3 + rank] * 2


BINDING = """
import sys
import numpy as np
from mpi4py import MPI
import collplan

ones, total = np.ones(8, np.int32), np.zeros(8, np.int32)
with collplan.bind(collplan.load_plan(sys.argv[1]), MPI.COMM_SELF, ones, total) as bound:
    bound()
assert (total == 1).all()
strange = {"numba", "rich", "typer", "click", "networkx", "graphviz", "asyncio", "pydantic"}
print(sorted(strange & set(sys.modules)))
"""


def test_a_rank_that_binds_imports_nothing_of_the_command_line(tmp_path: Path) -> None:
    """Nor numba, which is needed to compile the loop, but not to load it."""
    path = tmp_path / "allreduce.plan"
    spec = make_spec("allreduce", "ring", 1, count=8, datatype="int32")
    save(compile_plan(spec), path)
    command = [sys.executable, "-c", BINDING, str(path)]
    for expected in ("", "[]\n"):  # the first one fills the cache
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith(expected)


class Elsewhere:
    """An array of another library, which says where it lies by DLPack's number."""

    def __init__(self, kind: int) -> None:
        self._kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, 0


def test_arrays_on_devices_are_told_from_others_of_the_host() -> None:
    """The host's are main memory, and memory that CUDA has pinned or manages."""
    plan = compile_plan(make_spec("allreduce", "ring", 2, count=8, datatype="int32"))
    for kind in range(1, 20):
        is_on_host = kind in (1, 3, 13)
        words = "is a Elsewhere, must be" if is_on_host else "lies in a device's memory"
        with pytest.raises(BindError, match=f"sendbuf {words}"):
            Buffers(plan, 0).check(Elsewhere(kind), np.zeros(8, np.int32))
