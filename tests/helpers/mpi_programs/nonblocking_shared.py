"""Non-blocking collectives through memory that ranks share: when it is made, and how starts queue.

usage: nonblocking_shared.py [CHECK...]
"""

import threading
import time
from typing import Any

import numpy as np
from mpi4py import MPI

import collplan
from collplan.dropin import shared_plans
from collplan.deciding.started_decisions import NOT_PREPARED
from drop_in_calls import (
    KINDS,
    RANK,
    SIZE,
    WORLD,
    arguments,
    buffers,
    failing_engines,
    run_checks,
)
from tables_everywhere import planning_table


def drop_in(**options: Any) -> Any:
    wanted = {"native_calls": 0, "force": True, "nonblocking_from": 0, **options}
    return collplan.Comm(WORLD, table=planning_table(SIZE, transport="shared"), **wanted)


def start(comm: Any, value: float, out: Any) -> MPI.Request:
    request: MPI.Request = comm.Iallreduce(np.full(len(out), float(value + RANK)), out)
    return request


def expected(value: float) -> float:
    return SIZE * value + sum(range(SIZE))


def planned(comm: Any) -> int:
    """Return how many non-blocking calls ran by plans."""
    rows = comm.stats().as_dict()["rows"]
    return sum(row["calls"] for row in rows if row["planned"] and row["collective"][0] == "I")


def check_results(comm: Any) -> None:
    """All collectives: what native MPI leaves, before and after the memory was made."""
    for number, kind in enumerate(KINDS):
        count = (1, 40)[number % 2]
        for turn in range(4):
            before = planned(comm)
            results = []
            for one in (comm, WORLD):
                pair = buffers(kind, count, np.float64, turn)
                given = arguments(kind, *pair, MPI.SUM, SIZE - 1)
                getattr(one, f"I{kind}")(*given).Wait()
                results.append(pair)
            for ours, theirs in zip(*results, strict=True):
                assert np.array_equal(ours, theirs), (kind, count, turn, ours, theirs)
            # Each kind asks for a plan, of the eight that a communicator has at most.
            is_made = turn >= 2 and comm._nonblocking.shared.made
            assert SIZE == 1 or is_made or planned(comm) == before
            if turn == 1:
                comm.prepare()
        if len(comm._nonblocking.shared.made) == shared_plans.MOST:
            comm.let_go()


def check_that_a_blocking_call_prepares(comm: Any) -> None:
    """A call of another signature, or of another kind, makes the memory; not one in vain."""
    outs = [np.zeros(n) for n in (60, 70)]
    for out in outs:
        start(comm, 1.0, out).Wait()
    (why,) = {row["why"] for row in comm.stats().as_dict()["rows"]}
    assert why.endswith(NOT_PREPARED), why
    assert not comm._nonblocking.shared.made
    other = np.zeros(9)
    comm.Bcast(other)
    assert len(comm._nonblocking.shared.made) == 2
    # Nothing is left to be made, in calls that are found by their looks.
    for _ in range(3):
        comm.Bcast(other)
    for value in range(5):
        for out in outs:
            start(comm, value, out).Wait()
            assert (out == expected(value)).all()
    assert planned(comm) == 10
    # A call that all ranks have cached is looked at again.
    more = np.zeros(80)
    start(comm, 1.0, more).Wait()
    comm.Bcast(other)
    start(comm, 2.0, more).Wait()
    assert (more == expected(2.0)).all()
    assert planned(comm) == 11


def check_many_in_flight(comm: Any) -> None:
    """Starts of one signature follow each other, and none waits for another rank."""
    out = np.zeros(50)
    start(comm, 0.0, out).Wait()
    comm.prepare()
    before = planned(comm)
    outs = [np.zeros(50) for _ in range(12)]
    if RANK == SIZE - 1:
        # The others start everything, and say so, while this rank has started nothing.
        for rank in range(SIZE - 1):
            assert WORLD.recv(source=rank) == rank
    requests = [start(comm, float(turn), one) for turn, one in enumerate(outs)]
    if RANK < SIZE - 1:
        WORLD.send(RANK, SIZE - 1)
    order = range(12) if RANK % 2 else reversed(range(12))
    for turn in order:
        if turn % 3 == 0:
            MPI.Request.Waitall([requests[turn]])
        elif turn % 3 == 1:
            requests[turn].Wait()
        else:
            while not requests[turn].Test():
                time.sleep(1e-4)
        assert (outs[turn] == expected(float(turn))).all()
    assert planned(comm) == before + 12
    # Blocking calls between them have memory of their own.
    requests = [start(comm, 5.0, outs[0])]
    comm.Allreduce(np.full(50, 1.0), out)
    requests.append(start(comm, 6.0, outs[1]))
    assert (out == SIZE).all()
    MPI.Request.Waitall(requests)
    assert (outs[0] == expected(5.0)).all()
    assert (outs[1] == expected(6.0)).all()
    for turn in range(300):
        start(comm, float(turn), out).Wait()
        assert out[-1] == expected(float(turn))
    assert len(comm._nonblocking._in_flight) <= 20
    assert [thread.name for thread in threading.enumerate()].count("collplan flights") == 1


def check_copies(comm: Any) -> None:
    """Buffers that a plan cannot use in place, among starts that follow each other."""
    values = np.zeros(8)
    comm.Ibcast(values).Wait()
    comm.prepare()
    every_other = MPI.DOUBLE.Create_vector(8, 1, 2).Commit()
    gaps = [np.full(16, -1.0) for _ in range(6)]
    requests = []
    for turn, one in enumerate(gaps):
        one[::2] = turn if RANK == 0 else -2.0
        mine = every_other.Dup()
        requests.append(comm.Ibcast([one, 1, mine]))
        mine.Free()
    MPI.Request.Waitall(requests)
    for turn, one in enumerate(gaps):
        assert one.tolist() == [turn, -1.0] * 8
    every_other.Free()
    assert planned(comm) == 6


def check_families(comm: Any) -> None:
    """Communicators of some ranks, letting go with starts in flight, and making again."""
    half = comm.Split(RANK % 2, RANK)
    for one in (comm, half):
        out = np.zeros(30)
        one.Iallreduce(np.ones(30), out).Wait()
        one.prepare()
        outs = [np.zeros(30) for _ in range(4)]
        requests = [one.Iallreduce(np.ones(30), each) for each in outs]
        one.let_go()
        MPI.Request.Waitall(requests)
        assert all((each == one.size).all() for each in outs)
        assert not one._nonblocking.shared.made
        one.Iallreduce(np.ones(30), out).Wait()
        one.Barrier()
        one.Iallreduce(np.ones(30), out).Wait()
        assert (out == one.size).all()
        assert one._nonblocking.shared.made
    half.Free()


def check_what_decides(comm: Any) -> None:
    """Few plans, few calls, and plans that leave: every call runs, and all ranks agree."""
    few = drop_in(max_plans=2, native_calls=2)
    outs = [np.zeros(n) for n in range(1, shared_plans.MOST + 3)]
    for turn in range(6):
        for out in outs:
            start(few, float(turn), out).Wait()
            assert (out == expected(float(turn))).all()
        few.prepare()
    made = few._nonblocking.shared.made
    assert len(made) == (shared_plans.MOST if SIZE > 1 else len(made))
    assert len(few._nonblocking.kept) <= 2
    counts = WORLD.allgather(planned(few))
    assert counts == [3 * shared_plans.MOST] * SIZE or SIZE == 1, counts
    few.let_go()


def check_plans_that_cannot_be_made(comm: Any) -> None:
    """If a rank has no memory for its part, all ranks stay native, and say why."""
    out = np.zeros(20)
    start(comm, 0.0, out).Wait()
    with failing_engines():
        comm.prepare()
    for _ in range(3):
        start(comm, 1.0, out).Wait()
        comm.prepare()
    assert (out == expected(1.0)).all()
    assert planned(comm) == 0
    whys = {row["why"] for row in comm.stats().as_dict()["rows"]}
    assert any("cannot run here: " in why for why in whys), whys


if __name__ == "__main__":
    run_checks(globals())
