"""The drop-in beside native MPI: all collectives, buffers of all kinds, families, letting go.

usage: drop_in.py [SECTION...]
"""

import array
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import collplan
from collplan.tables.table import parse_table
from drop_in_calls import (
    KINDS,
    WORLD,
    arguments,
    buffers,
    compositions,
    following,
    planning,
    run_checks,
)
from rounding import in_rank_tree, values_of
from tables_everywhere import planning_table, reproducing_table


def same(kind: str, comm: Any, count: int, dtype: Any, op: MPI.Op, root: int) -> None:
    """See that a drop-in and native MPI leave the same in all of a rank's memory."""
    results = []
    for one in (comm, WORLD):
        sendbuf, recvbuf = buffers(kind, count, dtype)
        getattr(one, kind.capitalize())(*arguments(kind, sendbuf, recvbuf, op, root))
        results.append((sendbuf, recvbuf))
    for ours, theirs in zip(*results, strict=True):
        assert np.array_equal(ours, theirs), (kind, count, dtype, root, ours, theirs)


def check_results(comm: Any) -> None:
    for turn, kind in enumerate(KINDS):
        for count in (0, 1, 3, 40):
            # All roots of messages of one size, and another one of each other size.
            roots = range(WORLD.size) if count == 40 else ((turn + count) % WORLD.size,)
            for root in roots if "root" in KINDS[kind] else (0,):
                same(kind, comm, count, np.int32, MPI.SUM, root)
    for dtype in (np.int8, np.uint16, np.float32, np.complex128, np.float16):
        same("allreduce", comm, 9, dtype, MPI.PROD, 0)
        same("allgather", comm, 9, dtype, MPI.PROD, 0)
    for op in (MPI.MIN, MPI.MAX, MPI.LAND, MPI.BXOR):
        same("reduce", comm, 9, np.int64, op, WORLD.size - 1)
    comm.Barrier()
    found = comm.stats().as_dict()
    natives = {row["why"] for row in found["rows"] if not row["planned"]}
    assert natives == {"nothing to move"}, natives
    assert {row["collective"] for row in found["rows"] if row["planned"]} == {*KINDS, "barrier"}
    assert all(row["gain"] in (2.0, 4.0) for row in found["rows"] if row["planned"])


def check_reproducible_results(comm: Any) -> None:
    """All sums are those of the rank tree from the first call on, whatever a table measured."""
    n, size, rank = 24, WORLD.size, WORLD.rank
    for is_native in (True, False):
        table = reproducing_table(size, "placements", is_native=is_native)
        own = following(table)
        for kind in ("allreduce", "reduce", "reduce_scatter_block", "scan", "exscan"):
            n_sent = n * size if kind == "reduce_scatter_block" else n
            sendbuf, recvbuf = values_of(rank)[:n_sent].copy(), np.zeros(n)
            getattr(own, kind.capitalize())(*arguments(kind, sendbuf, recvbuf, MPI.SUM, size - 1))
            last = {"scan": rank + 1, "exscan": rank}.get(kind, size)
            if last and (kind != "reduce" or rank == size - 1):
                first = n * rank if kind == "reduce_scatter_block" else 0
                assert np.array_equal(recvbuf, in_rank_tree(0, last)[first : first + n]), kind
        counts = [1 + other for other in range(size)]
        recvbuf, first = np.zeros(counts[rank]), sum(counts[:rank])
        own.Reduce_scatter(values_of(rank)[: sum(counts)].copy(), recvbuf, counts)
        assert np.array_equal(recvbuf, in_rank_tree(0, size)[first : first + counts[rank]])
        request = own.Iallreduce(values_of(rank)[:n].copy(), total := np.zeros(n))
        request.Wait()
        exact = np.zeros(n, np.int64)
        own.Allreduce(np.arange(n), exact)
        assert np.array_equal(exact, size * np.arange(n))
        rows = own.stats().as_dict()["rows"]
        natives = {row["collective"] for row in rows if not row["planned"]}
        assert natives <= {"allreduce", "Iallreduce"}, rows
        if size > 1 and "Iallreduce" not in natives:
            assert np.array_equal(total, in_rank_tree(0, size)[:n])
        own.Free()


def check_repeated_calls(comm: Any) -> None:
    """Other buffers of the same size, the same ones again, and buffers that are gone."""
    kept = [np.zeros(50) for _ in range(3)]
    for start in range(9):
        sendbuf = np.full(50, float(start + WORLD.rank))
        recvbuf = kept[start % 3] if start % 2 else np.empty(50)
        comm.Allreduce(sendbuf, recvbuf)
        total = WORLD.size * start + sum(range(WORLD.size))
        assert (recvbuf == total).all(), (start, recvbuf, total)
        # Nothing holds on to what the caller passed.
        sendbuf.resize(10)
    growing = bytearray(b"\1" * 8)
    comm.Bcast(growing)
    growing.extend(b"more")


def check_in_place(comm: Any) -> None:
    """MPI_IN_PLACE, where MPI lets ranks say it; None means the same to mpi4py."""
    for mark in (MPI.IN_PLACE, None):
        for kind in KINDS:
            is_rooted = "root" in KINDS[kind] and mark is not None
            for root in range(WORLD.size) if is_rooted else (0,):
                results = []
                for one in (comm, WORLD):
                    results.append(_in_place(one, kind, mark, root))
                assert np.array_equal(*results), (kind, root, results)


def _in_place(comm: Any, kind: str, mark: Any, root: int) -> Any:
    sendbuf, recvbuf = buffers(kind, 6, np.int32)
    is_root = WORLD.rank == root
    if kind == "bcast":
        recvbuf[:] = WORLD.rank
    elif kind == "scatter":
        recvbuf = mark if is_root else recvbuf
    elif "root" in KINDS[kind]:
        recvbuf[:] = np.arange(len(recvbuf)) + WORLD.rank
        sendbuf = mark if is_root else sendbuf
    else:
        if kind == "reduce_scatter_block":
            recvbuf = np.empty(len(sendbuf), np.int32)
        recvbuf[:] = np.arange(len(recvbuf)) + 5 * WORLD.rank
        sendbuf = mark
    getattr(comm, kind.capitalize())(*arguments(kind, sendbuf, recvbuf, MPI.SUM, root))
    return np.zeros(0) if recvbuf is mark else recvbuf


def check_specs(comm: Any) -> None:
    """All forms of a buffer that mpi4py knows, and ranks that use different ones."""
    n = 24
    forms: tuple[Callable[[Any], Any], ...] = (
        lambda a: a,
        lambda a: [a, MPI.INT],
        lambda a: [a, "i"],
        lambda a: [a, n],
        lambda a: (a, n, MPI.INT),
        lambda a: [a, (n, 0), MPI.INT],
        lambda a: [a, n, 0, MPI.INT],
        lambda a: memoryview(a),
        lambda a: [a.tobytes() if not a.flags.writeable else a, n, MPI.INT],
    )
    for turn in range(len(forms)):
        form = forms[(turn + WORLD.rank) % len(forms)]
        sendbuf = np.arange(n, dtype=np.int32) + WORLD.rank
        recvbuf = np.zeros(n, np.int32)
        comm.Allreduce(form(sendbuf), form(recvbuf))
        expected = np.arange(n) * WORLD.size + sum(range(WORLD.size))
        assert np.array_equal(recvbuf, expected), (turn, recvbuf)
    mine = array.array("d", [1.5, WORLD.rank])
    theirs = array.array("d", [0.0] * 2 * WORLD.size)
    comm.Allgather(mine, theirs)
    assert list(theirs) == [x for r in range(WORLD.size) for x in (1.5, r)]
    shifted = np.zeros(10, np.int32)
    comm.Bcast([shifted, (4, 3), MPI.INT] if WORLD.rank else [np.arange(4, dtype="i"), MPI.INT])
    assert WORLD.rank == 0 or shifted.tolist() == [0, 0, 0, 0, 1, 2, 3, 0, 0, 0]
    fortran = np.zeros((3, 4), order="F") if WORLD.rank else np.asfortranarray(np.ones((3, 4)))
    comm.Bcast(fortran)
    assert (fortran == 1).all()
    comm.Bcast(memoryview(b"fixed!!!") if WORLD.rank == 0 else bytearray(8))
    raw = np.zeros(41, np.uint8)
    comm.Allreduce(np.full(5, 2.0), [raw[1:], MPI.DOUBLE])
    assert (raw[1:].view(np.float64) == 2.0 * WORLD.size).all()


def check_datatypes(comm: Any) -> None:
    """Derived datatypes, on one rank or all; pairs; what only some ranks describe so."""
    column = MPI.DOUBLE.Create_vector(4, 1, 3).Commit()
    row = MPI.DOUBLE.Create_contiguous(4).Commit()
    backward = MPI.DOUBLE.Create_indexed_block(1, [3, 2, 1, 0]).Commit()
    for strided in range(WORLD.size):
        matrix = np.zeros((4, 3)) + WORLD.rank
        flat = np.zeros(4)
        is_strided = WORLD.rank == strided
        comm.Bcast([matrix, 1, column] if is_strided else [flat, 4, MPI.DOUBLE], root=strided)
        assert is_strided or (flat == strided).all()
        flat[:] = strided
        comm.Bcast([flat, 1, row] if is_strided else [matrix, 1, column], root=strided)
        assert is_strided or (matrix[:, 0] == strided).all()
        assert (matrix[:, 1:] == WORLD.rank).all()
    values = np.arange(4.0) + 10 * WORLD.rank
    everyone = np.zeros((WORLD.size, 4))
    sent = [values, 1, backward] if WORLD.rank == 0 else values
    comm.Allgather(sent, [everyone, 1, row])
    expected = [[3.0, 2.0, 1.0, 0.0]]
    expected += [(np.arange(4.0) + 10 * rank).tolist() for rank in range(1, WORLD.size)]
    assert everyone.tolist() == expected
    for one in (column, row, backward):
        one.Free()
    pair = np.zeros(3, collplan.numpy_dtype("double_int"))
    pair["value"], pair["index"] = [5.0, -WORLD.rank, 1.0], WORLD.rank
    found = np.zeros_like(pair)
    comm.Allreduce([pair, 3, MPI.DOUBLE_INT], [found, 3, MPI.DOUBLE_INT], MPI.MINLOC)
    assert found["index"].tolist() == [0, WORLD.size - 1, 0], found
    # Pairs have gaps, which moving them leaves alone.
    comm.Bcast([pair, 3, MPI.DOUBLE_INT], root=0)
    assert (pair["index"] == 0).all()


def check_freed_datatypes(comm: Any) -> None:
    """A handle may mean one datatype, and another when that was freed."""
    handles = []
    for turn in range(12):
        strides = turn % 3 + 1
        datatype = MPI.DOUBLE.Create_vector(4, 1, strides) if turn % 2 else None
        datatype = (datatype or MPI.DOUBLE.Create_contiguous(4)).Commit()
        handles.append(datatype.handle)
        step = strides if turn % 2 else 1
        for again in range(3):
            values = np.full(12, -1.0)
            if WORLD.rank == turn % WORLD.size:
                values[: 4 * step : step] = np.arange(4) + again
            comm.Bcast([values, 1, datatype], root=turn % WORLD.size)
            expected = np.full(12, -1.0)
            expected[: 4 * step : step] = np.arange(4) + again
            assert np.array_equal(values, expected), (turn, again, values)
        datatype.Free()
    assert len(set(handles)) < len(handles), "handles are not used again, so this showed nothing"


def check_operations(comm: Any) -> None:
    """Operations of the user's: native, unless they are registered."""
    known, unknown = compositions()
    ours = planning(operations=[(known, "compose")])
    mine = np.array([2 + 1j * WORLD.rank, 1 + 1j])
    results = [np.zeros(2, complex) for _ in range(3)]
    WORLD.Allreduce(mine, results[0], known)
    ours.Allreduce(mine, results[1], known)
    ours.Allreduce(mine, results[2], unknown)
    assert all(np.array_equal(one, results[0]) for one in results), results
    # The table has one size, beyond which decisions are extrapolated.
    rows = {row["why"].partition(",")[0]: row["planned"] for row in ours.stats().as_dict()["rows"]}
    assert rows == {
        "won at 1 bytes on " + _ranks(): True,
        "the operation is not one that plans know": False,
    }, rows
    known.Free()
    unknown.Free()


def _ranks() -> str:
    return f"1 node of {WORLD.size} rank" + ("s" if WORLD.size > 1 else "")


def check_families(comm: Any) -> None:
    """Communicators made from a drop-in are drop-ins, of mpi4py's own kinds, too."""
    half = comm.Split(comm.rank % 2, comm.rank)
    twin, group = comm.Dup(), comm.Get_group()
    made = comm.Create(group)
    later, request = comm.Idup()
    request.Wait()
    nobody = comm.Split(MPI.UNDEFINED)
    assert nobody == MPI.COMM_NULL
    grid = comm.Create_cart([comm.size], periods=[True])
    line = grid.Sub([True])
    assert isinstance(grid, MPI.Cartcomm)
    assert isinstance(line, MPI.Cartcomm)
    assert grid.Get_topo()[0] == [comm.size]
    for one in (half, twin, made, later, grid, line):
        assert isinstance(one, MPI.Intracomm)
        total = np.zeros(3, np.int64)
        one.Allreduce(np.full(3, one.rank), total)
        assert (total == sum(range(one.size))).all()
        one.Free()
        assert one == MPI.COMM_NULL
    group.Free()
    rows = comm.stats().as_dict()["rows"]
    assert {row["ranks"] for row in rows} == {comm.size, half_size(comm)}
    assert all(row["planned"] for row in rows), rows
    assert isinstance(comm, MPI.Intracomm)
    alone = collplan.Comm(MPI.COMM_SELF, table=planning_table(1), force=True)
    assert pickle.loads(pickle.dumps(alone)) == MPI.COMM_SELF
    assert comm.allreduce(1) == comm.size


def check_ranks_left_out(comm: Any) -> None:
    """Blocking and non-blocking calls on a grid that does not contain the last rank."""
    grid = comm.Create_cart([max(comm.size - 1, 1)])
    if grid != MPI.COMM_NULL:
        for n in range(4):
            total, later = np.zeros(3, np.int64), np.zeros(3, np.int64)
            mine = np.full(3, grid.rank + n)
            grid.Allreduce(mine, total)
            grid.Iallreduce(mine, later).Wait()
            assert (total == sum(range(grid.size)) + n * grid.size).all()
            assert (later == total).all()
        grid.Free()


def half_size(comm: Any) -> int:
    return int((comm.size + 1 - comm.rank % 2) // 2)


def check_letting_go(comm: Any) -> None:
    """More sizes than plans are kept: all ranks free the same ones in the same calls."""
    few = planning(max_plans=2)
    generator = np.random.default_rng(5)
    for n in generator.integers(1, 7, 40):
        # Ranks find entries differently: some by arrays, some each time anew.
        mine = np.full(n, WORLD.rank)
        total = np.zeros_like(mine)
        spec = [total, MPI.LONG] if (WORLD.rank + n) % 2 else total
        few.Allreduce(mine, spec)
        assert (total == sum(range(WORLD.size))).all()
    whys = {row["why"] for row in few.stats().as_dict()["rows"]}
    assert any(why.startswith("other plans replaced its plan") for why in whys), whys
    few.Free()


def check_signatures_in_turn(_: Any) -> None:
    """A signature whose plan was replaced runs natively in the next eight calls."""
    few = planning(max_plans=2)
    for _ in range(9):
        for n in (1, 2, 3):
            total = np.zeros(n)
            few.Allreduce(np.ones(n), total)
            assert (total == WORLD.size).all()
    assert few.stats().as_dict()["native_calls"] == 8
    few.Free()


def check_native_components(comm: Any) -> None:
    """Winners made of the library's own collectives run; non-blocking calls stay native."""
    kinds = ("allreduce", "bcast", "scatter", "gather", "allgather", "alltoall", "reduce", "exscan")
    table = planning_table(comm.size, (*kinds, "reduce_scatter_block")).model_dump(mode="json")
    for sweep in table["sweeps"]:
        for choice in sweep["choices"].values():
            if not choice.get("native"):
                choice["algorithms"] = "native"
                choice["decomposition"] = "guideline" if sweep["ranks"] > 1 else "flat"
    mocked = following(parse_table(table), native_calls=0)
    for count in (0, 1, 40):
        for kind in (*kinds, "reduce_scatter_block"):
            for dtype in (np.int32, np.complex64):
                same(kind, mocked, count, dtype, MPI.SUM, (WORLD.size - 1) * (count == 1))
    same("allreduce", mocked, 9, np.float64, MPI.MAX, 0)
    if WORLD.size > 1:
        natives = {row.why for row in mocked.stats().rows if not row.planned}
        assert natives == {"nothing to move"}, mocked.stats()
    mine, total = np.full(9, WORLD.rank), np.empty(9, int)
    mocked.Iallreduce(mine, total).Wait()
    assert (total == sum(range(WORLD.size))).all()
    mocked.Free()


def check_other_calls(comm: Any) -> None:
    """Small non-blocking calls are native, persistent ones are counted; they mix with plans."""
    ones, out = np.ones(4), np.zeros(4)
    request = comm.Iallreduce(ones, out)
    comm.Bcast(np.zeros(4))
    request.Wait()
    assert (out == comm.size).all()
    started = comm.Allreduce_init(ones, out)
    message = WORLD.Send_init(ones, MPI.PROC_NULL)
    for _ in range(2):
        started.Start()
        started.Wait()
        MPI.Prequest.Startall([started, message])
        MPI.Request.Waitall([started, message])
    for one in (started, message):
        one.Free()
    mine, all_ = np.full(comm.rank + 1, comm.rank), np.zeros(sum(range(comm.size + 1)), int)
    comm.Allgatherv(mine, [all_, list(range(1, comm.size + 1))])
    assert all_.tolist() == [r for r in range(comm.size) for _ in range(r + 1)]
    rows = {row["collective"]: row for row in comm.stats().as_dict()["rows"]}
    whys = {name: row["why"] for name, row in rows.items()}
    assert (rows["Allreduce_init"]["calls"], rows["Allreduce_init"]["least_bytes"]) == (4, 32)
    assert whys["Iallreduce"].startswith("non-blocking: below 1048576 bytes")
    assert whys["allgatherv"].startswith("allgather won at ")


def check_first_calls(_: Any) -> None:
    """Plans are made on the third equal call, on all ranks, whatever their buffers look like."""
    comm = planning(native_calls=2)
    for turn in range(5):
        total = np.zeros(7)
        is_last = comm.rank == comm.size - 1
        comm.Allreduce(np.ones(7), [total, MPI.DOUBLE] if is_last else total)
        assert (total == comm.size).all()
        found = comm.stats().as_dict()
        assert found["native_calls"] == min(turn + 1, 2)
        assert found["planned_calls"] == max(turn - 1, 0)
    whys = {row["why"] for row in found["rows"] if not row["planned"]}
    assert "a plan takes time to make: ring from call 3 on" in whys, whys
    # It frees its plans, and makes new ones.
    comm.let_go()
    for _turn in range(3):
        comm.Allreduce(np.ones(7), np.zeros(7))
    assert comm.stats().as_dict()["planned_calls"] == 4
    comm.Free()


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


def check_that_the_last_drop_in_of_a_handle_decides(comm: Any) -> None:
    """Calls by any object of a handle follow the table of the drop-in that was made last."""
    native = MPI.Intracomm(comm)
    out = np.zeros(3)
    native.Allreduce(np.ones(3), out)
    before = comm.stats().as_dict()["planned_calls"]
    assert before > 0
    later = collplan.Comm(comm, table=planning_table(comm.size), force=True, native_calls=9)
    before = comm.stats().as_dict()
    comm.Allreduce(np.ones(3), out)
    assert (out == comm.size).all()
    assert comm.stats().as_dict() == before
    assert later.stats().as_dict()["native_calls"] == 1


if __name__ == "__main__":
    run_checks(globals())
