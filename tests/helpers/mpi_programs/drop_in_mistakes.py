"""Calls that MPI forbids, on a drop-in: what is raised, what is left alone, and what goes on after.

usage: drop_in_mistakes.py [SECTION...]
"""

import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

import collplan
from collplan.dropin.agreement import Meetings
from drop_in_calls import SIZE, WORLD, planning, run_checks

LAST = SIZE - 1
GUARD = 77.0
"""Guard values around buffers, where nothing may be written."""


def guarded(n: int) -> tuple[Any, Callable[[], None]]:
    """Return a buffer of n numbers, and what sees that memory around it was left alone."""
    whole = np.full(n + 4096, GUARD)
    inner = whole[2048 : 2048 + n]

    def see() -> None:
        assert (whole[:2048] == GUARD).all()
        assert (whole[2048 + n :] == GUARD).all()

    return inner, see


def error_class(call: Callable[..., None], *given: Any) -> int | None:
    """Return the class of MPI's error; None if there is none. Others are not caught."""
    try:
        call(*given)
    except MPI.Exception as error:
        return int(error.Get_error_class())
    return None


def goes_on(comm: Any, *counts: int) -> None:
    """See that collectives of the same and of other sizes still do what they should."""
    for n in counts:
        for _ in range(4):
            total = np.zeros(n)
            comm.Allreduce(np.full(n, comm.rank + 1.0), total)
            assert (total == sum(range(comm.size + 1))).all()
            values = np.full(n, comm.rank + 2.0)
            comm.Bcast(values, root=LAST)
            assert (values == LAST + 2.0).all()


def check_room_for_less_than_this_rank_sends(comm: Any) -> None:
    """A rank sees by itself that it has too little room; all take part, as natively."""
    for n in (6, 3000):
        half, see = guarded(comm.size * n // 2)
        for _ in range(2):
            found = error_class(comm.Allgather, np.ones(n), half)
            found = found, error_class(comm.Alltoall, np.ones(n * comm.size), half)
            assert found == (MPI.ERR_TRUNCATE, MPI.ERR_TRUNCATE), found
            expected = MPI.ERR_TRUNCATE if comm.rank == 0 else None
            assert error_class(comm.Gather, np.ones(n), half) == expected
            room = half[: n // 2] if comm.rank == 0 else np.ones(n)
            assert error_class(comm.Scatter, np.ones(n * comm.size), room) == expected
            see()
    goes_on(comm, 6, 3)


def check_room_for_less_than_another_rank_sends(comm: Any) -> None:
    """A rank whose buffer is too small asks for another size than all others."""
    if comm.size == 1:
        return
    # Others know the plan, or this is the first call with its size.
    for n_before in (0, 3):
        for n in (8 + n_before, 20_000 + n_before):
            for _ in range(n_before):
                comm.Bcast(np.zeros(n))
            room, see = guarded(n // 2 if comm.rank == LAST else n)
            found = error_class(comm.Bcast, room)
            assert found == (MPI.ERR_TRUNCATE if comm.rank == LAST else None), (found, n, n_before)
            room = np.zeros(n // 2 if comm.rank == LAST else n)
            found = error_class(comm.Scatter, np.ones(n * comm.size), room)
            assert found == (MPI.ERR_TRUNCATE if comm.rank == LAST else None), (found, n, n_before)
            see()
            goes_on(comm, 5, n)


class Late:
    """A request whose completion is seen a tenth of a second after it was first asked for."""

    def __init__(self, request: MPI.Request) -> None:
        self.request, self.end_s = request, time.monotonic() + 0.1

    def Test(self) -> bool:
        return time.monotonic() > self.end_s and self.request.Test()


def check_a_rank_that_learns_late_that_all_have_met(_: Any) -> None:
    """All call the same: where others have gone on to a plan of another size, none has missed it.

    A root need not wait for others: it leaves a meeting, scatters natively, and starts the
    plan that comes next before the last rank has seen the meeting's end.
    """
    comm, begin = planning(native_calls=2), Meetings._begin

    def begin_late(self: Meetings, request: Any) -> Any:
        begun = begin(self, request)
        return (Late(begun[0]), *begun[1:]) if comm.rank == LAST else begun

    for n in (8, 3000):
        for m in (n, n, n, n, n + 2, n):
            with patch.object(Meetings, "_begin", begin_late):
                room = np.zeros(m)
                comm.Scatter(np.full(m * comm.size, m, float), room)
            assert (room == m).all()
    comm.let_go()


def check_calls_that_differ_otherwise(comm: Any) -> None:
    """Other calls that are new to all ranks, and differ: all say so, and none waits."""
    if comm.size == 1:
        return
    for n in (4, 3000):
        mine = n + (comm.rank == LAST)
        for call in (lambda m: comm.Allreduce(np.ones(m), np.zeros(m)), None):
            try:
                if call is None:
                    comm.Bcast(np.ones(n), root=int(comm.rank == LAST))
                else:
                    call(mine)
            except collplan.CollplanError as error:
                words = str(error)
                assert "all ranks must call the same" in words, words
            else:
                raise AssertionError("no error")
        goes_on(comm, 2, n)


def check_blocks_with_room_to_spare(comm: Any) -> None:
    """Calls that leave gaps between blocks natively leave them with plans."""
    for name in ("Allgather", "Alltoall"):
        for _ in range(2):
            sent = np.full(2 * comm.size, 1.0 + comm.rank)[: 2 if name == "Allgather" else None]
            everyone = np.full(5 * comm.size, GUARD)
            getattr(comm, name)(sent, everyone)
            blocks = everyone.reshape(comm.size, 5)
            assert (blocks[:, 2:] == GUARD).all()
            assert np.array_equal(blocks[:, 0], np.arange(comm.size) + 1.0)
            assert np.array_equal(blocks[:, 0], blocks[:, 1])


def check_overlap(comm: Any) -> None:
    """Buffers that overlap: what is sent is read before anything is written.

    If both begin at the same address, MPI decides; see ``rejected.py``.
    """
    memory = np.zeros(30)
    for skip in (1, 9, 10):
        for turn in range(3):
            memory[:] = np.arange(30.0) + comm.rank
            sent, received = memory[skip : skip + 10], memory[:10]
            if turn == 2:
                sent, received = received, sent
            expected = WORLD.allreduce(sent.copy())
            comm.Allreduce(sent, received)
            assert np.array_equal(received, expected), (skip, turn, received, expected)


def check_keys(comm: Any) -> None:
    """Buffers that look alike to Python and are not: type, size, order, read-only."""
    n = 12
    for _ in range(3):
        for dtype in ("f8", "i8", "u8", "c16", "f4", "i4"):
            for form in (lambda a: a, lambda a: [a, a.size], lambda a: (a, a.size, a.dtype.char)):
                mine = np.full(n, comm.rank + 1, dtype)
                total = np.zeros(n, dtype)
                comm.Allreduce(form(mine), form(total))
                assert (total == sum(range(comm.size + 1))).all(), (dtype, total)
        for count in (3, np.int64(5), 12):
            mine, total = np.full(n, comm.rank + 1.0), np.zeros(n)
            comm.Allreduce([mine, count, MPI.DOUBLE], [total, count, MPI.DOUBLE])
            assert (total[:count] == sum(range(comm.size + 1))).all()
            assert (total[count:] == 0).all()
        grid = np.full((3, 4), comm.rank + 1.0, order="F")
        total = np.zeros((3, 4), order="F")
        comm.Allreduce(grid, total)
        comm.Allreduce(MPI.IN_PLACE, grid)
        assert np.array_equal(grid, total)
        for wrong in (np.zeros((n, 2))[:, 0], np.zeros(n, ">f8"), np.zeros(n - 1)):
            assert _refused(lambda wrong=wrong: comm.Allreduce(np.zeros(n), wrong))
        frozen = np.zeros(n)
        frozen.flags.writeable = False
        assert _refused(lambda frozen=frozen: comm.Allreduce(np.zeros(n), frozen))
        assert _refused(lambda frozen=frozen: comm.Allreduce(MPI.IN_PLACE, [frozen, MPI.DOUBLE]))
        comm.Allreduce(frozen, np.zeros(n))
    # A datatype that was freed leaves its handle to another one.
    for stride in (1, 2, 3):
        column = MPI.DOUBLE.Create_vector(4, 1, stride).Commit()
        values = np.full(12, float(comm.rank))
        comm.Bcast([values, 1, column], root=LAST)
        there = np.arange(4) * stride
        assert (values[there] == LAST).all(), (stride, values)
        assert (np.delete(values, there) == comm.rank).all(), (stride, values)
        column.Free()


def _refused(call: Callable[[], None]) -> bool:
    try:
        call()
    except (ValueError, BufferError, KeyError):
        return True
    return False


def check_first_calls(_: Any) -> None:
    """Plans are made on the third equal call, on all ranks, whatever their buffers look like."""
    comm = planning(native_calls=2)
    for turn in range(5):
        total = np.zeros(7)
        comm.Allreduce(np.ones(7), [total, MPI.DOUBLE] if comm.rank == LAST else total)
        assert (total == comm.size).all()
        found = comm.stats().as_dict()
        assert found["native_calls"] == min(turn + 1, 2)
        assert found["planned_calls"] == max(turn - 1, 0)
    (why,) = (row["why"] for row in found["rows"] if not row["planned"])
    assert why == "a plan takes time to make: ring from call 3 on", why
    comm.let_go()
    goes_on(comm, 7)


if __name__ == "__main__":
    run_checks(globals())
