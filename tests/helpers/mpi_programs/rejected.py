"""Calls that MPI rejects, more communicators than may have plans, and an end by ``sys.exit``.

For `collplan exec` with a table of plans for everything, or by a drop-in with the table TABLE.

usage: rejected.py [TABLE]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import collplan

TIMES = 5
MOST_COMMS = 64
OVERLAP = "send and receive buffers overlap"
IS_DROP_IN = len(sys.argv) > 1
COMM: Any = MPI.COMM_WORLD
if IS_DROP_IN:
    COMM = collplan.Comm(COMM, table=sys.argv[1], force=True)
RANK, SIZE = COMM.rank, COMM.size
IS_MPICH = "MPICH" in MPI.Get_library_version()


def class_of(call: Callable[..., Any], *given: Any) -> int:
    """Return the class of the error of a call, or 0."""
    try:
        call(*given)
    except MPI.Exception as error:
        return error.Get_error_class()
    return 0


def check_errors() -> None:
    """Errors are those of mpi4py in all calls, and calls of one rank alone return."""
    pair = MPI.INT.Create_contiguous(2)  # not committed
    buffer, other = np.zeros(8, np.int32), np.zeros(8, np.int32)
    native = MPI.Intracomm(COMM)
    for _ in range(TIMES):
        for name, *given in (
            ("Allreduce", [buffer, 4, MPI.INT], [buffer, 4, MPI.INT]),
            ("Allgather", [buffer[RANK:], 1, MPI.INT], [buffer, 1, MPI.INT]),
            ("Bcast", [buffer, 2, pair]),
        ):
            assert class_of(getattr(COMM, name), *given) == class_of(getattr(native, name), *given)
        if RANK == 0:
            assert class_of(COMM.Gather, [buffer, 1, pair], [other, 1, pair])
            floats = np.zeros(2)
            assert class_of(COMM.Allreduce, floats[:1], floats[1:], MPI.BAND)
            if IS_MPICH:
                assert class_of(COMM.Gather, [buffer, 2, MPI.INT], [buffer, 2, MPI.INT])
                assert class_of(COMM.Bcast, [MPI.BOTTOM, 16, MPI.INT])
    COMM.Barrier()


def check_errors_with_counts() -> None:
    """Calls of one rank whose counts differ per rank return, too, and later results are right."""
    pair = MPI.INT.Create_contiguous(2)
    out, counts = np.zeros(4 * SIZE, np.int32), list(range(1, SIZE + 1))
    places = [sum(counts[:i]) for i in range(SIZE)]
    floats = np.zeros(SIZE)
    for i in range(3 * TIMES):
        given = np.full(RANK + 1, i + RANK, np.int32)
        if RANK == 0:
            assert class_of(COMM.Allgatherv, [given, 1, pair], [out, counts, places, MPI.INT])
            assert class_of(COMM.Gatherv, given, [out, [-1] * SIZE, places, MPI.INT])
            assert class_of(COMM.Reduce_scatter, floats, floats[:1].copy(), [1] * SIZE, MPI.BAND)
            if IS_MPICH:
                void = [MPI.BOTTOM, 1, MPI.INT]
                assert class_of(COMM.Allgatherv, void, [out, counts, places, MPI.INT])
        COMM.Allgatherv(given, [out, counts, places, MPI.INT])
        assert out[: sum(counts)].tolist() == np.repeat(np.arange(SIZE) + i, counts).tolist()


def check_buffers_that_overlap() -> None:
    """Buffers of calls with counts overlap on a rank: MPI gets the calls, and reports errors.

    Own blocks do not overlap, as MPICH copies them by memcpy.
    """
    counts, places = [2] * SIZE, list(range(0, 2 * SIZE, 2))
    blocks = counts, places
    native, n_calls = MPI.Intracomm(COMM), 2 * TIMES
    for i in range(n_calls):
        memory, other = np.full(200, 100 * RANK + i), np.zeros(2 * SIZE, int)
        if IS_MPICH and RANK == 0 and i % 2 == 0:
            assert class_of(COMM.Gatherv, memory[:2], [memory, blocks])
            assert class_of(COMM.Scatterv, [memory, blocks], memory[:2])
            assert class_of(COMM.Reduce_scatter, memory[: 2 * SIZE], memory[:2], counts)
        given = memory[2 * RANK :][:2], [memory, blocks]
        assert class_of(COMM.Allgatherv, *given) == class_of(native.Allgatherv, *given)
        COMM.Gatherv(memory[102:104], [memory[100:], blocks] if RANK == 0 else None)
        COMM.Alltoallv([memory[20:], blocks], [memory[22:], blocks])
        COMM.Reduce_scatter(memory[100 : 100 + 2 * SIZE], other[:2], counts)
        COMM.Allgatherv(np.full(2, RANK), [other, blocks])
        assert other.tolist() == np.repeat(np.arange(SIZE), 2).tolist()
    if not IS_DROP_IN:
        return
    rows = COMM.stats().rows
    assert {row.ran for row in rows if row.collective in ("gatherv", "alltoallv")} == {"native"}
    if RANK == 0:
        assert OVERLAP in {row.why for row in rows if row.collective == "alltoallv"}
        assert OVERLAP in {row.why for row in rows if row.collective == "gatherv"}
    planned = {row.collective: row.calls for row in rows if row.planned}
    assert planned["reduce_scatter"] == n_calls - 2, planned


def check_in_place_in_a_list() -> None:
    """mpi4py also takes MPI_IN_PLACE with a count and a datatype."""
    for i in range(2 * TIMES):
        out = np.full(SIZE, i + RANK, np.int32)
        COMM.Allreduce([MPI.IN_PLACE, SIZE, MPI.INT], out)
        assert out.tolist() == [SIZE * i + SIZE * (SIZE - 1) // 2] * SIZE
        out = np.full(SIZE, i, np.int32)
        COMM.Reduce_scatter([MPI.IN_PLACE, SIZE, MPI.INT], out, [1] * SIZE)
        assert out[0] == SIZE * i


def check_repeated_calls() -> None:
    """A root that corrects its call has the sums of the others."""
    pair = MPI.INT.Create_contiguous(2)
    for i in range(2 * TIMES):
        given, out = np.array([i, 2 * i], np.int32), np.zeros(2, np.int32)
        if RANK == 0 and i < TIMES:
            assert class_of(COMM.Reduce, [given, 1, pair], [out, 1, pair])
            if IS_MPICH:
                assert class_of(COMM.Reduce, given, given)
        COMM.Reduce(given, out)
        assert RANK or out.tolist() == [SIZE * i, 2 * SIZE * i]


def check_many_communicators() -> None:
    """Communicators without plans work, and new ones have plans when others are freed."""
    comms = [COMM.Dup() for _ in range(MOST_COMMS + 5)]
    for _ in range(2):
        for comm in comms:
            out = np.zeros(1)
            for _ in range(4):
                comm.Allreduce(np.ones(1), out)
            assert out[0] == SIZE
        comms.append(comms.pop(0))
        comms[-1].Free()
        comms[-1] = COMM.Dup()
        comms = [*comms[:-7], comms[-1], *comms[-7:-1]]
    for comm in comms:
        comm.Free()


check_errors()
check_buffers_that_overlap()
check_errors_with_counts()
check_in_place_in_a_list()
check_repeated_calls()
check_many_communicators()
time.sleep(0.2 * RANK)
print(f"rank {RANK} passed", flush=True)
sys.exit(3)
