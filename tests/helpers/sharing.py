"""Plans that share memory on real ranks: start after start, and what is refused.

The plan says which ranks are on one node; here all are. `run` runs a function on ranks of a pool;
``mpiexec -n 3 python sharing.py`` is for ranks that have no memory in common.
"""

from __future__ import annotations

import time
from itertools import product
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.program import program as programs
from collplan.planner import compile_plan
from collplan.planner.plan.plan import Plan
from collplan.specs.errors import CollplanError
from mpi_plans import reduction, refuses
from oracle import make_spec

comm: MPI.Intracomm = MPI.COMM_WORLD
"""The ranks that share memory; `run` sets it."""
rank, p = comm.rank, comm.size
WAYS = ("compiled", "python")
"""Kinds of reductions: machine code, or a callback in Python."""


def allreduce(n: int, algorithm: str = "linear", **fields: object) -> Plan:
    spec = make_spec("allreduce", algorithm, p, count=n, datatype="int64", **fields)
    return compile_plan(spec.replace(transport="shared"), rank=rank)


def barriers_hold() -> None:
    """All ranks wait for the last one."""
    for algorithm in ("recursive_doubling", "dissemination"):
        spec = make_spec("barrier", algorithm, p).replace(transport="shared")
        with bind(compile_plan(spec), comm) as barrier:
            came = np.zeros(1)
            for last in range(p):
                if rank == last:
                    time.sleep(0.003)
                    came[0] = time.monotonic()
                barrier()
                left = time.monotonic()
                comm.Bcast(came, root=last)
                assert left >= came[0], (algorithm, last)


def mpi_moves_beside() -> None:
    """Ranks that wait or test let MPI move what the first rank ends before it takes part."""
    content = np.zeros(1 << 18)
    spec = make_spec("barrier", "dissemination", p).replace(transport="shared")
    with bind(compile_plan(spec), comm) as barrier:
        for way in ("wait", "test"):
            for other in range(1, p) if rank == 0 else ():
                comm.Send(content, other)
            received = None if rank == 0 else comm.Irecv(content, 0)
            barrier.start()
            while way == "test" and not barrier.test():
                time.sleep(1e-4)
            barrier.wait()
            if received is not None:
                received.Wait()


def consecutive_starts(plan: Plan, n_starts: int, way: str, *, own: bool) -> int:
    """Start again and again, ranks late in turns; return how many results of this rank are wrong.

    No rank waits for another but in the plan, whose slots are those of the start before.
    """
    rng = np.random.default_rng(rank)
    n = int(plan.buffer_sizes[rank, 0])
    n_wrong = 0
    with bind(plan, comm, operation=reduction(way, "sum")) as bound:
        sendbuf, recvbuf = bound.allocate() if own else (np.zeros(n, int), np.zeros(n, int))
        bound.rebind(sendbuf, recvbuf)
        for start in range(n_starts):
            sendbuf[:] = (rank + 1) * (start + 1) + np.arange(n)
            bound.start()
            while not bound.test():
                # Others need the core, too.
                time.sleep(rng.random() ** 8 * 1e-3)
            total = p * (p + 1) // 2 * (start + 1) + p * np.arange(n)
            n_wrong += int((recvbuf != total).any())
            if rng.random() < 0.03:
                time.sleep(rng.random() * 1e-3)
        comm.Barrier()
    return n_wrong


def gates(has_gate: bool) -> None:
    """Count wrong results of many starts; without the gate there must be some."""
    make = programs._sharing

    def without_gate(*arguments: object) -> programs.Sharing:
        made = make(*arguments)  # type: ignore[arg-type]
        made.is_gated[:] = False
        return made

    with patch.object(programs, "_sharing", make if has_gate else without_gate):
        _starts_with(has_gate)


def _starts_with(has_gate: bool) -> None:
    n_wrong = 0
    # A bcast's root never waits for anybody: only its gate holds it back.
    for way, n_starts in (("compiled", 200), ("python", 60)):
        n_wrong += broadcasts(n_starts if has_gate else 60)
        if has_gate:
            for own, algorithm in product((False, True), ("linear", "recursive_doubling")):
                plan = allreduce(40, algorithm)
                n_wrong += consecutive_starts(plan, n_starts // 2, way, own=own)
    n_wrong = comm.allreduce(n_wrong)
    assert (n_wrong == 0) == has_gate, f"{n_wrong} wrong results"


def broadcasts(n_starts: int) -> int:
    """Broadcast again and again to ranks that are late; return how many wrong results came."""
    spec = make_spec("bcast", "linear", p, count=30, datatype="int64").replace(transport="shared")
    values = np.zeros(30, dtype=np.int64)
    n_wrong = 0
    with bind(compile_plan(spec), comm, None, values) as bound:
        for start in range(n_starts):
            values[:] = start if rank == 0 else -1
            if rank and start % 7 == rank:
                time.sleep(5e-4)
            bound()
            n_wrong += int((values != start).any())
        comm.Barrier()
    return n_wrong


def several_at_once() -> None:
    """Plans of the world and of halves of it, started together and waited for in any order."""
    half = comm.Split(rank % 2, rank)
    spec = make_spec("allgather", "ring", half.size, count=3, datatype="int64")
    plan = compile_plan(spec.replace(transport="shared"))
    mine, all_of_half = np.zeros(3, dtype=np.int64), np.zeros(3 * half.size, dtype=np.int64)
    inputs, results = np.zeros((2, 3, 11), dtype=np.int64)
    with bind(plan, half, mine, all_of_half) as gather:
        bounds = [
            bind(
                allreduce(11), comm, inputs[i], results[i], operation=reduction(WAYS[i % 2], "sum")
            )
            for i in range(3)
        ]
        for start in range(20):
            inputs[:] = rank + start + np.arange(3)[:, None]
            mine[:] = rank * 10 + start
            order = np.random.default_rng(start + 100 * rank).permutation(4)
            both = [*bounds, gather]
            for i in range(4):
                both[i].start()
            left = set(order.tolist())
            while left:
                left -= {i for i in left if both[i].test()}
                time.sleep(0)
            for i in range(3):
                assert (results[i] == p * (p - 1) // 2 + p * (start + i)).all()
            wanted = np.repeat(np.arange(rank % 2, p, 2) * 10 + start, 3)
            assert np.array_equal(all_of_half, wanted)
        for bound in bounds:
            bound.free()
    half.Free()


def buffers_outlive_their_plan() -> None:
    """Arrays of a plan that was freed may still be read and written."""
    bound = bind(allreduce(1000), comm)
    sendbuf, recvbuf = bound.allocate()
    sendbuf[:] = rank
    bound()
    view = sendbuf[500:]
    del sendbuf
    bound.free()
    view += 1
    assert (view == rank + 1).all()
    assert (recvbuf == p * (p - 1) // 2).all()


def misfits() -> None:
    """Programs of different plans do not wait for each other for ever."""
    own = allreduce(8)
    others = allreduce(8, "ring").replace(spec=own.spec)
    refuses(
        CollplanError,
        "compile the same spec on all ranks",
        lambda: bind(others if rank == p - 1 else own, comm, np.zeros(8, int), np.zeros(8, int)),
    )


def apart() -> None:
    """Ranks that the plan has on one node and MPI does not."""
    for plan in (allreduce(8), allreduce(8, machine={"nodes": 2, "ranks_per_node": [1, p - 1]})):
        words = "the plan shares memory between ranks that have none in common: rank "
        refuses(CollplanError, words, lambda plan=plan: bind(plan, comm))


def run(ranks: MPI.Intracomm, name: str, *arguments: object) -> object:
    """Call a function of this module on the ranks of a communicator."""
    global comm, rank, p
    comm, rank, p = ranks, ranks.rank, ranks.size
    return globals()[name](*arguments)


if __name__ == "__main__":
    apart()
    if rank == 0:
        print("passed")
