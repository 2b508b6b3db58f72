"""Collectives of the drop-in whose counts differ per rank, beside native MPI's.

usage: vectors.py [SECTION...]
"""

import itertools
import random
from typing import Any

import numpy as np
from mpi4py import MPI

import collplan
from drop_in_calls import RANK, SIZE, WORLD, following, kept, planning, run_checks
from tables_everywhere import planning_table

ROOTED = ("gatherv", "scatterv")
KINDS = (*ROOTED, "allgatherv", "reduce_scatter", "alltoallv")


def drop_in(**options: Any) -> Any:
    return planning(**{"nonblocking_from": 0, **options})


def rows(comm: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = comm.stats().as_dict()["rows"]
    return found


def planned(comm: Any) -> int:
    return int(comm.stats().as_dict()["planned_calls"])


def reasons(comm: Any) -> set[str]:
    return {row["why"] for row in rows(comm) if not row["planned"]}


def places(rng: random.Random, counts: Any, layout: str, *, is_sent: bool) -> Any:
    """Return where blocks begin: packed, in any order with gaps, or the sent ones overlapping."""
    counts = np.asarray(counts)
    if layout == "packed":
        return np.cumsum(counts) - counts
    if is_sent and layout == "overlapping":
        return np.full(len(counts), 1)
    order, at, displs = rng.sample(range(SIZE), SIZE), 0, np.zeros_like(counts)
    for block in order:
        at += rng.choice((0, 1, 3))
        displs[block] = at
        at += counts[block]
    return displs


class Case:
    """Arguments of one call on this rank, the same contents for every communicator.

    `table` has all ranks' counts: elements per rank, or of every sender (row) for every receiver.
    """

    def __init__(
        self, kind: str, table: Any, layout: str = "packed", root: int = 0, dtype: Any = np.int32
    ) -> None:
        self.kind, self.table, self.layout = kind, np.asarray(table), layout
        self.root, self.dtype = root, np.dtype(dtype)

    def call(self, comm: Any, *, in_place: bool = False, blocking: bool = True) -> Any:
        """Make the call; return what is in all of this rank's memory after it."""
        name = self.kind.capitalize() if blocking else f"I{self.kind}"
        # Ranks differ in where their blocks are.
        rng = random.Random(f"{self.kind}{self.table.tolist()}{RANK}")
        memory, given = getattr(self, f"_{self.kind}")(rng, in_place)
        request = getattr(comm, name)(*given)
        if not blocking:
            request.Wait()
        return memory

    def _memory(self, counts: Any, displs: Any, salt: int) -> Any:
        size = int(max([0, *(np.asarray(counts) + displs)])) + 2
        return (np.arange(size) * 7 + 100 * RANK + salt).astype(self.dtype)

    def _blocks(self, rng: Any, counts: Any, salt: int, *, is_sent: bool = False) -> Any:
        displs = places(rng, counts, self.layout, is_sent=is_sent)
        memory = self._memory(counts, displs, salt)
        counts, displs = np.asarray(counts), np.asarray(displs)
        datatype = MPI._typedict[self.dtype.char]
        return memory, rng.choice(
            (
                [memory, (counts.tolist(), displs.tolist()), datatype],
                [memory, counts, displs, datatype],
                [memory, (tuple(counts), displs)],
            )
        )

    def _gatherv(self, rng: Any, in_place: bool) -> Any:
        mine = self._memory([self.table[RANK]], [0], 1)
        everyone, blocks = self._blocks(rng, self.table, 5)
        sent = [mine, int(self.table[RANK])]
        is_root = self.root == RANK
        given = MPI.IN_PLACE if in_place and is_root else sent, blocks if is_root else None
        return (mine, everyone), (*given, self.root)

    def _scatterv(self, rng: Any, in_place: bool) -> Any:
        mine = self._memory([self.table[RANK]], [0], 1)
        everyone, blocks = self._blocks(rng, self.table, 5, is_sent=True)
        received = [mine, int(self.table[RANK])]
        is_root = self.root == RANK
        given = blocks if is_root else None, MPI.IN_PLACE if in_place and is_root else received
        return (mine, everyone), (*given, self.root)

    def _allgatherv(self, rng: Any, in_place: bool) -> Any:
        mine = self._memory([self.table[RANK]], [0], 1)
        everyone, blocks = self._blocks(rng, self.table, 5)
        sent = MPI.IN_PLACE if in_place else [mine, int(self.table[RANK])]
        return (mine, everyone), (sent, blocks)

    def _reduce_scatter(self, rng: Any, in_place: bool) -> Any:
        total = int(self.table.sum())
        whole, own = np.arange(total).astype(self.dtype) + RANK, np.zeros(self.table[RANK], "i4")
        own = own.astype(self.dtype)
        counts = self.table.tolist() if in_place or rng.random() < 0.5 else self.table
        if in_place:
            return (whole[: self.table[RANK]],), (MPI.IN_PLACE, whole, counts)
        return (whole, own), (whole, own, counts)

    def _alltoallv(self, rng: Any, in_place: bool) -> Any:
        received, there = self._blocks(rng, self.table[:, RANK], 5)
        if in_place:
            return (received,), (MPI.IN_PLACE, there)
        sent, here = self._blocks(rng, self.table[RANK], 1, is_sent=True)
        return (sent, received), (here, there)


def counts_for(kind: str, seed: int, symmetric: bool = False) -> Any:
    shape = (SIZE, SIZE) if kind == "alltoallv" else (SIZE,)
    table = np.random.default_rng(seed).choice((0, 0, 1, 2, 7, 40), shape)
    return np.triu(table) + np.triu(table, 1).T if symmetric and table.ndim == 2 else table


def same(comm: Any, case: Case, **options: Any) -> None:
    """See that a drop-in and native MPI leave the same in all of a rank's memory."""
    ours, theirs = (case.call(one, **options) for one in (comm, WORLD))
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one, other), (case.kind, case.table, case.layout, one, other)


def check_results(comm: Any) -> None:
    layouts, dtypes = ("packed", "apart", "overlapping"), (np.int8, np.int32, np.complex128)
    for (i, kind), (j, layout), in_place in itertools.product(
        enumerate(KINDS), enumerate(layouts), (False, True)
    ):
        # Every kind and every layout has every type.
        seed = (i + j + in_place) % 3
        counts = counts_for(kind, seed + 1, symmetric=in_place)
        same(comm, Case(kind, counts, layout, seed % SIZE, dtypes[seed]), in_place=in_place)
    assert reasons(comm) <= {"nothing to move"}, comm.stats()
    assert {row["collective"] for row in rows(comm) if row["planned"]} == {*KINDS}
    gather = next(row for row in rows(comm) if row["collective"] == "gatherv")
    assert gather["why"].startswith("gather won at "), gather


def check_datatypes(comm: Any) -> None:
    """Derived datatypes on some ranks, pairs, and operations that plans do not know."""
    column = MPI.DOUBLE.Create_vector(2, 1, 3).Commit()
    resized = column.Create_resized(0, 8).Commit()
    counts = [rank % 2 + 1 for rank in range(SIZE)]
    results = []
    for one in (comm, WORLD):
        matrix = np.arange(24.0).reshape(4, 6) + 100 * RANK
        everyone = np.zeros((SIZE, 8))
        blocks = [everyone, ([2 * n for n in counts], range(0, 8 * SIZE, 8))]
        one.Allgatherv([matrix, counts[RANK], resized], blocks)
        if RANK % 2:
            one.Alltoallv([matrix, ([1] * SIZE, range(SIZE)), resized], [everyone, (2, 8)])
        else:
            one.Alltoallv([matrix, (2, 1)], [everyone, (2, 8)])
        results.append(everyone)
    assert np.array_equal(*results), results
    resized.Free()
    column.Free()
    pairs = np.zeros(sum(counts), collplan.numpy_dtype("double_int"))
    pairs["value"], pairs["index"] = np.arange(len(pairs)) % 2 - RANK, RANK
    own = np.zeros(counts[RANK], pairs.dtype)
    comm.Reduce_scatter([pairs, MPI.DOUBLE_INT], [own, MPI.DOUBLE_INT], counts, MPI.MINLOC)
    assert (own["index"] == SIZE - 1).all(), own
    assert reasons(comm) == set(), reasons(comm)
    assert planned(comm) == 3
    largest = MPI.Op.Create(lambda _a, _b, _t: None)
    comm.Reduce_scatter(np.zeros(sum(counts)), np.zeros(counts[RANK]), counts, largest)
    largest.Free()
    assert reasons(comm) == {"the operation is not one that plans know"}


def check_equal_counts_get_a_plan(_: Any) -> None:
    """Two calls are native, whatever the buffers; plans are kept under the counts of all."""
    comm = planning(native_calls=2)
    for turn in range(10):
        kind = KINDS[turn % 2]
        same(comm, Case(kind, [rank % 3 + 1 for rank in range(SIZE)], root=SIZE - 1))
        assert planned(comm) == max(0, turn - 3), comm.stats()
    (why,) = reasons(comm)
    assert why == "a plan takes time to make: binomial from call 3 on", why
    comm.Free()


def check_counts_of_one_rank_change(_: Any) -> None:
    """Most ranks' arguments are those of the call before, but not those of two that exchange."""
    comm, rng = planning(native_calls=1), random.Random(7)
    tables = [np.full((SIZE, SIZE), 5) for _ in range(3)]
    # Alone, a rank without elements would have nothing to move.
    tables[1][SIZE - 1, 0], tables[2][0, SIZE - 1] = 40, 0 if SIZE > 1 else 3
    for _turn in range(40):
        table = rng.choice(tables)
        same(comm, Case("alltoallv", table))
        # The root knows all, and others their own only.
        same(comm, Case("gatherv", table[:, 0]))
        same(comm, Case("scatterv", table[0]))
    assert planned(comm) > 100, comm.stats()
    comm.Free()


def check_parts_of_the_ranks(comm: Any) -> None:
    half = comm.Split(RANK % 2)
    counts = [rank + 1 for rank in range(half.size)]
    mine = np.full(half.rank + 1, half.rank)
    for _turn in range(3):
        everyone = np.zeros(sum(counts), int)
        half.Allgatherv(mine, [everyone, counts])
        assert everyone.tolist() == [rank for rank in range(half.size) for _ in range(rank + 1)]
    assert planned(comm) == 3
    half.Free()


def check_tables_of_regular_kinds(_: Any) -> None:
    """The sweep of the regular kind decides; where it says native, or is missing, so are calls."""
    table = planning_table(SIZE, ("gather", "barrier"))
    natively = [
        one.replace(points=tuple(point.replace(winner="native") for point in one.points))
        for one in table.sweeps
        if one.collective == "gather"
    ]
    others = [one for one in table.sweeps if one.collective != "gather"]
    comm = following(table.replace(sweeps=(*natively, *others)), native_calls=0)
    for _turn in range(12):
        same(comm, Case("gatherv", [3] * SIZE))
        same(comm, Case("scatterv", [3] * SIZE))
    found = {row["collective"]: row["why"] for row in rows(comm)}
    assert found["scatterv"] == "no sweep of scatter", found
    assert found["gatherv"] == "native won all sizes of gather", found
    assert planned(comm) == 0
    comm.Free()


def check_nonblocking_forms(comm: Any) -> None:
    """Start forms that are planned where each rank knows all counts, and else native."""
    n_calls = 0
    for kind, layout in itertools.product(KINDS, ("packed", "apart")):
        for seed, in_place in itertools.product((1, 2), (False, True)):
            case = Case(kind, counts_for(kind, seed, symmetric=True) + 1, layout, seed % SIZE)
            same(comm, case, in_place=in_place, blocking=False)
            n_calls += kind in ("allgatherv", "reduce_scatter")
    assert planned(comm) == n_calls == 16, comm.stats()
    assert reasons(comm) == {
        "non-blocking: ranks would have to meet to know each other's counts"
    }, comm.stats()
    outs = [np.zeros(SIZE * (SIZE + 1) // 2) for _ in range(6)]
    counts = [rank + 1 for rank in range(SIZE)]
    requests = [
        comm.Iallgatherv(kept(np.full(RANK + 1, float(RANK + turn))), [out, counts])
        for turn, out in enumerate(outs)
    ]
    comm.Allgatherv(np.ones(RANK + 1), [np.zeros(sum(counts)), counts])
    MPI.Request.Waitall(requests)
    for turn, out in enumerate(outs):
        assert out.tolist() == [r + turn for r in range(SIZE) for _ in range(r + 1)], (turn, out)


def check_fewer_plans_than_counts(_: Any) -> None:
    """Plans of vector and other calls replace each other, at the same calls on all ranks."""
    few = planning(max_plans=2)
    for n in np.random.default_rng(5).integers(1, 6, 30):
        same(few, Case("allgatherv", [n + rank for rank in range(SIZE)]))
        total = np.zeros(n)
        few.Allreduce(np.ones(n), total)
        assert (total == SIZE).all()
        same(few, Case("alltoallv", np.full((SIZE, SIZE), n)))
    few.Free()


if __name__ == "__main__":
    run_checks(globals())
