"""Cost of the compiled engine beyond MPI: empty plans, messages to self, binding.

Started by ``engine.py``; ``mpiexec -n 1 python benchmarks/engine_self.py`` does, too.

Messages to self are compared with a compiled loop of the same calls of MPI on
the same buffers, written by hand. The medians of interleaved rounds are printed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from stopwatch import in_a_row

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.loop.calls import call, ints, pointer
from collplan.executors.mpi.loop.entries import address_of
from collplan.executors.mpi.program.messages import handle_of
from collplan.measure.timing import Call, time_in_turns
from collplan.planner.machine_code.kernel import compile_at_once
from collplan.planner.plan.assembly import RankPlaces, assemble
from collplan.planner.plan.pieces import one_each
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.plan.ragged import Dependencies

ROUNDS = 9
N_MESSAGES = 200


@compile_at_once(_nrt=False)
def exchange(calls: Any, buffers: int, requests: int, scratch: int, width: int, n: int) -> int:
    """Receive and send n messages of one element to oneself, two at a time.

    `calls` holds isend, irecv, testsome, a datatype and a communicator.
    """
    for i in range(n):
        for turn in range(2):
            call(
                calls[1 - turn],
                (
                    pointer(buffers + 8 * (i + turn * n)),
                    np.int32(1),
                    calls[3],
                    np.int32(0),
                    np.int32(0),
                    calls[4],
                    pointer(requests + turn * width),
                ),
            )
        left = 2
        while left > 0:
            call(
                calls[2],
                (
                    np.int32(2),
                    pointer(requests),
                    pointer(scratch),
                    pointer(scratch + 4),
                    pointer(scratch + 16),
                ),
            )
            left -= max(0, _int_at(scratch))
    return 0


@compile_at_once(_nrt=False)
def _int_at(address: int) -> int:
    from_address: int = ints(address, 1)[0]
    return from_address


def self_messages(n: int) -> Plan:
    """Return a plan of n receives and sends to oneself, each pair after the one before."""
    op = np.tile([Op.RECV, Op.SEND], n)
    row = np.arange(2 * n)
    place = row // 2
    # Both tasks of a pair wait for both of the pair before.
    indptr = np.concatenate(([0], np.cumsum(np.where(row < 2, 0, 2), dtype=np.int64)))
    before = (2 * place[2:, None] - [2, 1]).reshape(-1)

    zero, counts = np.zeros(2 * n, dtype=np.int64), np.ones(2 * n, dtype=np.int64)
    columns = {"op": op, "round": place, "priority": row}
    return assemble(
        RankPlaces.one_per_node(1),
        columns | dict.fromkeys(("rank", "peer", "tag"), zero),
        one_each(Buffer.SEND, place, counts).masked(op == Op.SEND),
        one_each(Buffer.RECV, place, counts).masked(op == Op.RECV),
        Dependencies(indptr, before, np.zeros_like(before)),
        buffer_sizes=np.array([[n, n, 0]]),
        itemsize=8,
    )


def by_hand(comm: MPI.Intracomm) -> Any:
    """Return a call of the loop by hand."""
    names = ("MPI_Isend", "MPI_Irecv", "MPI_Testsome")
    addresses = [address_of(name, MPI.__file__) for name in names]
    calls = np.array([*addresses, handle_of(MPI.INT64_T), handle_of(comm)])
    buffers = np.zeros(2 * N_MESSAGES, dtype=np.int64)
    requests, scratch = np.zeros(2, dtype=np.int64), np.zeros(32, dtype=np.int64)
    places = buffers.ctypes.data, requests.ctypes.data, scratch.ctypes.data
    width = MPI._sizeof(MPI.Request)
    return lambda: (exchange(calls, *places, width, N_MESSAGES), buffers, requests, scratch)


def main() -> None:
    comm = MPI.COMM_SELF.Dup()
    plan = self_messages(N_MESSAGES)
    arrays = np.zeros(N_MESSAGES, dtype=np.int64), np.zeros(N_MESSAGES, dtype=np.int64)
    empty = self_messages(0)
    bound, nothing = bind(plan, comm, *arrays), bind(empty, comm)

    def start_and_wait() -> None:
        nothing.start()
        nothing.wait()

    cases: tuple[tuple[str, Call, int, int], ...] = (
        ("messages by hand", by_hand(comm), 200, 2 * N_MESSAGES),
        ("messages, compiled", bound, 200, 2 * N_MESSAGES),
        ("empty plan, call", nothing, 20_000, 1),
        ("empty plan, start and wait", start_and_wait, 20_000, 1),
    )
    blocks = [in_a_row(call_it, n) for _, call_it, n, _ in cases]
    rounds = time_in_turns(comm, blocks, ROUNDS, warm_ups=1)
    print(MPI.Get_library_version().splitlines()[0].split(",")[0])
    for (name, _, n, unit), block in zip(cases, rounds, strict=True):
        times = block / (n * unit)
        print(f"{name:28} {np.median(times) * 1e6:8.3f} µs per task (min {times.min() * 1e6:.3f})")
    rebind = in_a_row(lambda: bind(plan, comm, *arrays).free(), 20)
    bind_s = time_in_turns(comm, [rebind], 1, warm_ups=0)[0, 0] / 20
    print(f"{'bind and free':28} {bind_s * 1e3:8.3f} ms, {plan.n_tasks} tasks")


if __name__ == "__main__":
    main()
