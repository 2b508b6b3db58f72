"""Non-blocking collectives through memory that ranks share: when it is made, and how starts queue.

usage: nonblocking_shared.py [CHECK...]
"""

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from drop_in_calls import (
    KINDS,
    RANK,
    SIZE,
    WORLD,
    arguments,
    buffers,
    following,
    kept,
    run_checks,
)
from tables_everywhere import planning_table

MOST = 8
"""Number of such plans that a communicator has at most."""


def drop_in(**options: Any) -> Any:
    wanted = {"native_calls": 0, "nonblocking_from": 0, **options}
    return following(planning_table(SIZE, transport="shared"), **wanted)


def start(comm: Any, value: float, out: Any) -> MPI.Request:
    request: MPI.Request = comm.Iallreduce(kept(np.full(len(out), float(value + RANK))), out)
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
            assert SIZE == 1 or planned(comm) == before + (turn >= 2), (kind, turn, comm.stats())
            if turn == 1:
                comm.prepare()
        if number % MOST == MOST - 1:
            comm.let_go()
            comm.Ibarrier().Wait()  # asks again for what plans need
            comm.prepare()


def check_that_a_blocking_call_prepares(comm: Any) -> None:
    """A call of another signature, or of another kind, makes the memory; not one in vain."""
    outs = [np.zeros(n) for n in (60, 70)]
    for out in outs:
        start(comm, 1.0, out).Wait()
    assert planned(comm) == 0 or SIZE == 1
    other = np.zeros(9)
    comm.Bcast(other)
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


if __name__ == "__main__":
    run_checks(globals())
