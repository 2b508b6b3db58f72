"""Non-blocking collectives of the drop-in beside native MPI's: results, many in flight, ends.

usage: nonblocking.py [SECTION...]
"""

import itertools
import os
from typing import Any

import numpy as np
from mpi4py import MPI

import collplan
from collplan.tables.table import parse_table
from drop_in_calls import (
    KINDS,
    RANK,
    SIZE,
    WORLD,
    arguments,
    buffers,
    compositions,
    following,
    kept,
    planning,
    run_checks,
)
from tables_everywhere import NOWHERE, sweep

TOTAL = sum(range(SIZE))


def drop_in(**options: Any) -> Any:
    return planning(**{"nonblocking_from": 0, **options})


def start(comm: Any, kind: str, sendbuf: Any, recvbuf: Any, op: MPI.Op, root: int) -> MPI.Request:
    given = arguments(kind, sendbuf, recvbuf, op, root)
    request: MPI.Request = getattr(comm, f"I{kind}")(*given)
    assert isinstance(request, MPI.Request)
    return request


def planned(comm: Any) -> int:
    return int(comm.stats().as_dict()["planned_calls"])


def reasons(comm: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in comm.stats().as_dict()["rows"]:
        if not row["planned"]:
            found.setdefault(row["collective"], set()).add(row["why"])
    return found


def check_results(comm: Any) -> None:
    """All collectives, at once: what native MPI leaves."""
    ours, theirs, requests = [], [], []
    cases = [
        (kind, count, op, root)
        for kind, parts in KINDS.items()
        for count, op in ((1, MPI.MAX if "op" in parts else MPI.SUM), (40, MPI.SUM))
        for root in ({0, SIZE - 1} if "root" in parts and count == 40 else {SIZE - 1})
    ]
    for salt, (kind, count, op, root) in enumerate(cases):
        dtype = (np.int32, np.float64, np.complex64)[salt % 3 if op == MPI.SUM else 0]
        for comm_, used in ((comm, ours), (WORLD, theirs)):
            used.append(buffers(kind, count, dtype, salt))
            requests.append(start(comm_, kind, *used[-1], op, root))
        if salt % 24 == 23:
            MPI.Request.Waitall(requests)
            requests.clear()
    requests.append(comm.Ibarrier())
    MPI.Request.Waitall(requests)
    for one, other in zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True):
        assert np.array_equal(one, other), (one, other)
    assert planned(comm) == len(ours) + 1, comm.stats()
    assert reasons(comm) == {}


def check_sweeps_beside_computation(_: Any) -> None:
    """Sweeps of calls that do not block decide at any size, and levels are split."""
    found = sweep("reduce", SIZE, True) | {"computation_s": 1e-3, "cores": SIZE + 1}
    passes = [{"name": "split_tree", "levels": 1}]
    found["choices"]["binomial"] |= {"passes": passes}
    found["points"] = found["points"][:1]
    table = parse_table({"fingerprint": NOWHERE.model_dump(), "sweeps": [found]})
    before = os.sched_getaffinity(0)
    cores = [min(before)] * SIZE + [max(before)]
    comm = following(table, native_calls=0, cores=cores)
    out = np.zeros(30)
    for _turn in range(12):
        comm.Ireduce(kept(np.full(30, float(RANK))), out).Wait()
        assert RANK or (out == TOTAL).all()
    assert planned(comm) == 12
    # Levels that were measured stay, whatever the program computes.
    assert all("levels" not in row["why"] for row in comm.stats().as_dict()["rows"])
    comm.Reduce(np.full(30, float(RANK)), out)
    assert not any(row.planned for row in comm.stats().rows if row.collective == "reduce")
    refused = ""
    try:
        drop_in(cores=[])
    except collplan.CollplanError as error:
        refused = str(error)
    assert "cores: 0 processors" in refused
    comm.Free()


def check_many_in_flight(comm: Any) -> None:
    """The same signature many times at once, completed in all orders and by all calls."""
    n_requests = 24
    for order in (1, -1):
        outs = [np.zeros(30) for _ in range(n_requests)]
        requests = [
            comm.Iallreduce(kept(np.full(30, float(i + RANK))), out) for i, out in enumerate(outs)
        ]
        for i in list(range(n_requests))[::order]:
            requests[i].Wait()
            assert requests[i] == MPI.REQUEST_NULL
            assert (outs[i] == SIZE * i + TOTAL).all(), (i, outs[i])
            requests[i].Wait()  # of nothing any more
    outs = [np.zeros(30) for _ in range(8)]
    requests = [comm.Iallreduce(kept(np.full(30, float(i))), out) for i, out in enumerate(outs)]
    native = [np.zeros(3) for _ in range(8)]
    sent = [np.full(3, float(i)) for i in range(8)]  # mpi4py does not keep them
    requests += [WORLD.Iallreduce(one, out) for one, out in zip(sent, native, strict=True)]
    statuses = [MPI.Status() for _ in requests]
    left = set(range(len(requests)))
    while len(left) > 8:
        found = MPI.Request.Waitany(requests)
        left.remove(found)
    while not MPI.Request.Testall(requests, statuses):
        pass
    for i in range(8):
        assert (outs[i] == SIZE * i).all()
        assert (native[i] == SIZE * i).all()
    request = comm.Ibcast(kept(np.zeros(9)))
    while not request.Test():
        pass
    status = MPI.Status()
    comm.Ibarrier().Wait(status)
    assert (status.Get_count(MPI.BYTE), status.source) == (0, MPI.ANY_SOURCE)
    assert not status.Is_cancelled()
    assert reasons(comm) == {}


def check_blocking_calls_between(comm: Any) -> None:
    """Planned and native blocking calls while others are in flight; ranks wait elsewhere."""
    first, second, out = np.zeros(500), np.zeros(500), np.zeros(500)
    for turn in range(5):
        one = comm.Iallreduce(kept(np.full(500, 1.0 * RANK)), first)
        comm.Allreduce(np.full(500, 2.0), out)
        two = comm.Iallreduce(kept(np.full(500, 3.0 * RANK)), second)
        comm.Bcast(out, root=turn % SIZE)
        WORLD.Barrier()
        assert comm.allreduce(1) == SIZE
        assert (out == 2 * SIZE).all()
        # MPI gets it on while this rank waits for something else.
        if RANK == 0:
            one.Wait()
            for rank in range(1, SIZE):
                WORLD.send(turn, rank)
        else:
            assert WORLD.recv(source=0) == turn
            one.Wait()
        two.Wait()
        assert (first == TOTAL).all()
        assert (second == 3 * TOTAL).all()


def check_in_place(comm: Any) -> None:
    rooted = {kind for kind, parts in KINDS.items() if "root" in parts}
    for kind, root in itertools.product(KINDS, {0, SIZE // 2}):
        if root and kind not in rooted:
            continue
        results = []
        for one in (comm, WORLD):
            sendbuf, recvbuf = buffers(kind, 6, np.int32)
            recvbuf[:] = np.arange(len(recvbuf)) + RANK
            mark: Any = MPI.IN_PLACE
            if kind == "scatter":
                recvbuf = mark if root == RANK else recvbuf
            elif kind == "reduce_scatter_block":
                recvbuf, sendbuf = sendbuf, mark
            elif "root" not in KINDS[kind] or root == RANK:
                sendbuf = mark
            start(one, kind, sendbuf, recvbuf, MPI.SUM, root).Wait()
            results.append([] if recvbuf is mark else recvbuf.tolist())
        assert results[0] == results[1], (kind, root, results)


def check_buffers(comm: Any) -> None:
    """Datatypes with gaps, freed at once; memory that is not aligned; buffers nobody else has."""
    column = MPI.DOUBLE.Create_vector(4, 1, 3).Commit()
    for strided in range(SIZE):
        matrix, flat = np.full((4, 3), 1.0 * RANK), np.full(4, 1.0 * RANK)
        mine = column.Dup()
        spec: Any = [matrix, 1, mine] if strided == RANK else flat
        request = comm.Ibcast(spec, root=(strided + 1) % SIZE)
        mine.Free()
        other = comm.Ibcast([flat, MPI.DOUBLE] if strided == RANK else [matrix, 1, column])
        MPI.Request.Waitall([request, other])
        got = matrix[:, 0] if strided == RANK else flat
        assert (got == (strided + 1) % SIZE).all(), got
        assert (matrix[:, 1:] == RANK).all()
    column.Free()
    raw = np.zeros(41, np.uint8)
    comm.Iallreduce(kept(np.full(5, 2.0)), [raw[1:], MPI.DOUBLE]).Wait()
    assert (raw[1:].view(np.float64) == 2.0 * SIZE).all()
    out = np.zeros(100)
    requests = [
        comm.Iallreduce(kept(np.full(100, float(i))), out if i == 3 else kept(np.empty(100)))
        for i in range(6)
    ]
    np.full(10000, np.nan)
    MPI.Request.Waitall(requests)
    assert (out == 3.0 * SIZE).all()
    pair = np.zeros(3, collplan.numpy_dtype("double_int"))
    pair["value"], pair["index"] = [5.0, -RANK, 1.0], RANK
    found = np.zeros_like(pair)
    comm.Iallreduce([pair, MPI.DOUBLE_INT], [found, MPI.DOUBLE_INT], MPI.MINLOC).Wait()
    assert found["index"].tolist() == [0, SIZE - 1, 0], found
    assert reasons(comm) == {}


def check_gaps_again_and_again(comm: Any) -> None:
    """The layout found for a call must not make the next one move memory as if it had no gaps."""
    every_other = MPI.DOUBLE.Create_vector(4, 1, 2).Commit()
    pairs = collplan.numpy_dtype("double_int")
    for turn in range(4):
        root = turn % SIZE
        values = np.full(8, -1.0)
        values[::2] = turn if root == RANK else 0.0
        comm.Ibcast([values, 1, every_other], root=root).Wait()
        assert values.tolist() == [turn, -1.0] * 4, (turn, values)
        mine, everyone = np.zeros(5, pairs), np.zeros(5 * SIZE, pairs)
        mine["value"], mine["index"] = turn, RANK
        everyone.view(np.uint8)[:] = 255
        comm.Iallgather([mine, MPI.DOUBLE_INT], [everyone, MPI.DOUBLE_INT]).Wait()
        assert (everyone["value"] == turn).all()
        assert (np.arange(SIZE) == everyone["index"].reshape(SIZE, 5).T).all()
        gaps = everyone.view(np.uint8).reshape(-1, pairs.itemsize)[:, 12:]
        assert (gaps == 255).all()
    every_other.Free()
    assert reasons(comm) == {}


def check_operations(comm: Any) -> None:
    """Operations whose order matters, and that plans do not know, are native and right."""
    known, unknown = compositions()
    ours = drop_in(operations=[(known, "compose")])
    mine = np.array([2 + 1j * RANK, 1 + 1j])
    results = [np.zeros(2, complex) for _ in range(3)]
    WORLD.Allreduce(mine, results[0], known)
    requests = [
        ours.Iallreduce(mine, results[1], known),
        ours.Iallreduce(mine, results[2], unknown),
    ]
    MPI.Request.Waitall(requests)
    assert all(np.array_equal(one, results[0]) for one in results), results
    whys = reasons(ours)["Iallreduce"]
    assert any("the operation is not one that plans know" in why for why in whys), whys
    assert SIZE == 1 or any("cannot run here" in why for why in whys), whys
    known.Free()
    unknown.Free()
    ours.Free()


def check_families(comm: Any) -> None:
    """Communicators made from a drop-in, and such that are freed while something is in flight."""
    half, twin = comm.Split(RANK % 2, RANK), comm.Dup()
    for one in (half, twin):
        one.Ibarrier().Wait()  # asks for what plans need
        one.prepare()
    outs = [np.zeros(50) for _ in range(3)]
    requests = [
        one.Iallreduce(kept(np.ones(50)), out)
        for one, out in zip((comm, half, twin), outs, strict=True)
    ]
    sizes = comm.size, half.size, twin.size
    half.Free()
    twin.Free()
    MPI.Request.Waitall(requests)
    assert [out[0] for out in outs] == list(sizes)
    assert reasons(comm)["Ibarrier"], comm.stats()
    later, request = comm.Idup()
    request.Wait()
    mine = np.ones(50)
    later.Iallreduce(mine, outs[0]).Wait()
    later.Free()
    nobody = comm.Split(MPI.UNDEFINED)
    assert nobody == MPI.COMM_NULL
    grid = comm.Create_cart([SIZE], periods=[True])
    grid.Ibcast(outs[0]).Wait()
    grid.Free()
    comm.let_go()
    comm.Ibcast(outs[0]).Wait()


def check_what_decides(comm: Any) -> None:
    """Small messages, few calls and unplanned collectives are native; all is counted."""
    ours = drop_in(native_calls=2, nonblocking_from=1000)
    # mpi4py does not keep what native calls use.
    ones, out, few_out, blocks = np.ones(200), np.zeros(200), np.zeros(20), np.zeros(40 * SIZE)
    for _ in range(5):
        ours.Iallreduce(ones, out).Wait()
    ours.Iallreduce(ones[:20], few_out).Wait()
    sent = blocks.copy()
    ours.Ialltoall(sent, blocks).Wait()
    ours.Iallgatherv(ones[:1], [blocks, [1] * SIZE]).Wait()
    ours.Iallreduce(recvbuf=out, sendbuf=ones, op=MPI.MAX).Wait()
    assert (out == 1).all()
    rows = ours.stats().as_dict()["rows"]
    counts = {(row["collective"], row["planned"]): 0 for row in rows}
    for row in rows:
        counts[row["collective"], row["planned"]] += row["calls"]
    assert counts[("Iallreduce", True)] == 3, rows
    assert counts[("Iallreduce", False)] == 4, rows
    assert not reasons(ours)["Iallgatherv"] & {""}, ours.stats()
    ours.Free()
    usual = drop_in(nonblocking_from=None, native_s=4e-6)
    large = np.ones(1 << 17)
    usual.Ibcast(large).Wait()
    usual.Ibcast(out).Wait()
    assert reasons(usual)["Ibcast"] == {
        "non-blocking: scatter_allgather gains less than a non-blocking start costs",
        "non-blocking: below 1048576 bytes a plan gains too little",
    }
    usual.Free()
    few = drop_in(max_plans=2)
    outs = [np.zeros(n) for n in (1, 2, 3, 4, 1, 2, 3, 4)]
    given = [np.ones_like(each) for each in outs]
    MPI.Request.Waitall([few.Iallreduce(*each) for each in zip(given, outs, strict=True)])
    assert all((each == SIZE).all() for each in outs)
    few.Free()


if __name__ == "__main__":
    run_checks(globals())
