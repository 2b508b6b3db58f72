"""The drop-in on ranks that no sweep speaks for: trials of plans, families, what is kept.

usage: untuned.py [CHECK...]
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from mpi4py import MPI

import collplan
from collplan.dropin.arguments import KINDS as MPI4PY
from collplan.deciding.statistics import FASTER
from collplan.deciding.trials import TRIED, TURNS
from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.specs import CollplanError
from collplan.tune.predictions import predict
from collplan.tune.sweep import NodePlacement
from collplan.tune.table import parse_table
from drop_in_calls import KINDS, WORLD, arguments, failing_engines, run_checks
from tables_everywhere import NOWHERE, sweep

AT_ONCE = 1e12
"""Share of time with which a trial begins as soon as it may."""
PREDICT = "collplan.dropin.making.predict"
CLOCKS = [
    f"collplan.dropin.{name}.perf_counter" for name in ("methods", "tried_routes", "blocking")
]
TICK_S, DELAY_S = 1e-6, 0.02
CALLS = 4 * TURNS + 4
"""As many equal calls as a trial of three plans has, and some more."""
FEW_CALLS = 6
"""As many as it takes until every plan has run once."""


def tuned_elsewhere(n_ranks: int = 64) -> Any:
    """Return a table of all collectives on another number of ranks."""
    kinds = [*KINDS, "barrier"]
    sweeps = [
        sweep(kind, n_ranks, commutes)
        for kind in kinds
        for commutes in ((True, False) if "op" in KINDS.get(kind, ()) else (None,))
    ]
    return parse_table({"fingerprint": NOWHERE.model_dump(), "sweeps": sweeps})


def drop_in(**options: Any) -> Any:
    wanted = {"native_calls": 0, "force": True, "trials": AT_ONCE, **options}
    return collplan.Comm(WORLD, table=tuned_elsewhere(), **wanted)


def rows_of(comm: Any) -> list[tuple[Any, ...]]:
    """Return what ran on this rank, its times aside."""
    names = "collective", "ran", "why", "ranks", "planned", "calls"
    return sorted(tuple(row[name] for name in names) for row in comm.stats().as_dict()["rows"])


def whys(comm: Any) -> dict[str, int]:
    """Return the number of calls by their reasons, after all ranks have agreed on them."""
    rows = comm.allgather(rows_of(comm))
    assert all(one == rows[0] for one in rows), rows
    found: dict[str, int] = {}
    for _, _, why, *_, calls in rows[0]:
        found[why] = found.get(why, 0) + calls
    return {why: calls for why, calls in found.items() if why != "objects"}


class Clock:
    """A clock that only its readers and slow calls advance, so that the machine does not matter."""

    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += TICK_S
        return self.now_s


@contextmanager
def slow(kind: str | None) -> Iterator[None]:
    """Make native calls of a kind slow, or plans, if there is none."""
    clock = Clock()

    def late(run: Any) -> Any:
        def method(*args: Any) -> Any:
            clock.now_s += DELAY_S
            return run(*args)

        return method

    holder: Any = BoundPlan if kind is None else MPI4PY[kind]
    name = "__call__" if kind is None else "natives"
    before = getattr(holder, name)
    made = late(before) if kind is None else (before[0], late(before[1]))
    with ExitStack() as stack:
        for one in CLOCKS:
            stack.enter_context(patch(one, clock))
        stack.enter_context(patch.object(holder, name, made))
        yield


def call(comm: Any, kind: str, salt: int, count: int = 5) -> None:
    """Run a collective and see that it leaves what native MPI leaves.

    The first rank is the root, or the second, if `count` is 3.
    """
    parts, size, rank = KINDS[kind], comm.Get_size(), comm.Get_rank()
    sends = count * (size if "blocks_send" in parts else 1)
    receives = count * (size if "blocks_recv" in parts else 1)
    results = []
    for one in (comm, MPI.Intracomm(comm)):
        sendbuf = (np.arange(sends) * 7 + 3 * rank + salt).astype(np.int64)
        recvbuf = np.full(receives, rank + salt)
        given = arguments(kind, sendbuf, recvbuf, MPI.SUM, 1 % size if count == 3 else 0)
        getattr(one, kind.capitalize())(*given)
        results.append((sendbuf, recvbuf))
    for ours, theirs in zip(*results, strict=True):
        assert np.array_equal(ours, theirs), (kind, salt, ours, theirs)


def total(comm: Any, count: int = 40) -> None:
    """Run an allreduce."""
    out = np.zeros(count)
    comm.Allreduce(np.full(count, 1.0 + comm.Get_rank()), out)
    size = comm.Get_size()
    assert (out == size * (size + 1) / 2).all()


def check_results(comm: Any) -> None:
    """All collectives, before, in and after trials, and two of them on some of the ranks."""
    some = WORLD.size // 2 + 1
    few = comm.Split(0 if WORLD.rank < some else MPI.UNDEFINED, -WORLD.rank)
    for one in (comm, few):
        if one == MPI.COMM_NULL:
            continue
        kinds = KINDS if one is comm else ("bcast", "exscan")
        for kind in kinds:
            is_long = one is comm and kind in ("allreduce", "alltoall")
            for turn in range(CALLS if is_long else FEW_CALLS):
                call(one, kind, turn)
        for _ in range(CALLS if one is comm else FEW_CALLS):
            one.Barrier()
        if one.Get_size() == 1:
            continue
        rows = [row for row in rows_of(one) if row[3] == one.Get_size()]
        assert {row[0] for row in rows if row[2] == TRIED and row[4]} == {*kinds, "barrier"}
    if few != MPI.COMM_NULL:
        few.Free()


def check_faster_plans_stay(comm: Any) -> None:
    """A plan that is faster runs all later calls, on all ranks, and says what it gains."""
    with slow("allreduce"):
        for _ in range(CALLS + 6):
            total(comm)
    if comm.size == 1:
        assert list(whys(comm)) == ["no sweep of allreduce on 1 node of 1 rank"]
        return
    found = whys(comm)
    n_plans = found[TRIED] // TURNS - 1
    assert 1 <= n_plans <= 3, found
    # One call before, and those after.
    assert found[FASTER] == CALLS + 6 - 1 - found[TRIED], found
    (row,) = (row for row in comm.stats().as_dict()["rows"] if row["why"] == FASTER)
    assert row["gain"] > 1, row
    assert len(comm._plans.kept) == 1
    # It gives back what it has, and begins anew.
    comm.let_go()
    assert not comm._plans.kept
    total(comm)


def check_slower_plans_are_dropped(comm: Any) -> None:
    with slow(None):
        for _ in range(CALLS + 6):
            total(comm)
    found = whys(comm)
    if comm.size == 1:
        return
    (why,) = (why for why in found if why.startswith("tried here, not faster: "))
    assert found[why] == CALLS + 6 - 1 - found[TRIED], found
    assert not comm._plans.kept


def check_plans_that_take_too_long_are_dropped_early(comm: Any) -> None:
    """The calls of a trial take no longer than its share of time, and one call of each plan."""
    frugal = drop_in(trials=10.0)
    frugal._plans._trial_cost_s = 0.0
    with slow(None):
        for _ in range(CALLS):
            total(frugal)
    if comm.size > 1:
        found = whys(frugal)
        assert any(why.startswith("tried here, not faster: ") for why in found), found
        assert found[TRIED] <= TURNS + 3, found
    frugal.let_go()


def check_trials_wait_until_they_pay(comm: Any) -> None:
    """Ranks meet ever less often about calls that take too little time."""
    frugal = drop_in(trials=1e-6)
    for _ in range(70):
        total(frugal)
    if comm.size > 1:
        (why,) = whys(frugal)
        assert why.endswith("; a trial of plans has not paid so far"), why
        (route,) = frugal._plans._decided.values()
        # After 1, 2, 4 calls and so on, the last time after 64.
        assert route.pending.n_left == 58, route.pending.n_left
        assert list(frugal._plans.ready.values()) == [route]
    frugal.let_go()


def check_no_trials(comm: Any) -> None:
    """Parameter and environment variable turn trials off; rank 0 decides; others are refused."""
    os.environ["COLLPLAN_TRIALS"] = "0" if WORLD.rank == 0 else "1000"
    try:
        by_environment = drop_in(trials=None)
    finally:
        del os.environ["COLLPLAN_TRIALS"]
    for one in (drop_in(trials=0), by_environment):
        for _ in range(CALLS):
            total(one)
        (why,) = whys(one)
        assert why.startswith("no sweep of allreduce on 1 node of "), why
        one.let_go()
    for bad in (-1, float("nan"), float("inf"), "some"):
        with pytest.raises(CollplanError, match=r"^trials is .*; give the share of time"):
            drop_in(trials=bad)


def check_families(comm: Any) -> None:
    """Communicators of some ranks only, while the others do something else, or nothing."""
    members = list(range(0, WORLD.size, 2))
    twin = comm.Dup()
    parts = [twin, comm.Split(WORLD.rank % 2, WORLD.rank)]
    if WORLD.rank in members:
        whole = comm.Get_group()
        group = whole.Incl(members)
        # Ranks that are not members do not even call this.
        parts.append(comm.Create_group(group, 7))
        group.Free()
        whole.Free()
    with slow("allreduce"):
        for one in parts:
            for _ in range(CALLS):
                total(one)
    for one in parts:
        if one.Get_size() > 1:
            rows = [row for row in rows_of(one) if row[3] == one.Get_size()]
            assert any(row[2] == TRIED and row[4] for row in rows), rows
        one.Free()


def check_uneven_placements(comm: Any) -> None:
    """Nodes of different numbers of ranks, and ranks in any order, as far as plans see it."""
    size = WORLD.size
    for nodes, kinds in (
        ([*([0] * (size - 1)), 1], ("allreduce", "alltoall")),
        ([rank * rank % 3 for rank in range(size)], ("bcast", "allgather")),
    ):
        one = drop_in()
        one._plans._placement = NodePlacement.of_nodes(nodes)
        for kind in kinds:
            for turn in range(FEW_CALLS):
                call(one, kind, turn, count=3)
        whys(one)
        if size > 1:
            tried = {row[0] for row in rows_of(one) if row[2] == TRIED and row[4]}
            assert tried == {*kinds}
        one.let_go()


def check_many_trials_at_once(comm: Any) -> None:
    """Trials of several signatures in turns; a trial whose plans have to leave starts anew."""
    known: dict[int, Any] = {}

    def predict_once(table: Any, placement: Any, collective: Any, n_bytes: int) -> Any:
        if n_bytes not in known:
            known[n_bytes] = predict(table, placement, collective, n_bytes)
        return known[n_bytes]

    for max_plans, turns in ((1, 2), (2, 3), (5, TURNS)):
        one = drop_in(max_plans=max_plans)
        with slow("allreduce"), patch(PREDICT, predict_once):
            for _ in range(turns):
                for count in (1, 2, 3):
                    total(one, count)
        whys(one)
        assert len(one._plans.kept) <= max_plans
        one.let_go()
        assert not one._plans.kept


def check_plans_that_cannot_be_made(comm: Any) -> None:
    """If no plan can be had on one rank, all stay native, and know why."""
    with failing_engines():
        for _ in range(CALLS):
            total(comm)
    if WORLD.size > 1:
        rows = rows_of(comm)
        assert any(row[2].startswith("no plan to try: ") for row in rows), rows
        assert not any(row[4] for row in rows), rows
    other = drop_in()
    with patch(PREDICT, side_effect=MemoryError("no room at all")):
        for _ in range(3):
            total(other)
    if WORLD.size > 1:
        assert "no plan to try: MemoryError: no room at all" in whys(other), whys(other)
    other.let_go()


def check_numbers_of_ranks_between_two_sweeps(comm: Any) -> None:
    """Sweeps of fewer and of more ranks decide without a trial."""
    if WORLD.size < 3:
        return
    document: dict[str, Any] = {
        "fingerprint": NOWHERE.model_dump(),
        "sweeps": [sweep("allreduce", size, True) for size in (2, 64)],
    }
    between = collplan.Comm(WORLD, table=parse_table(document), native_calls=0, force=True)
    for _ in range(3):
        total(between)
    ((_, ran, why, _, planned, calls),) = rows_of(between)
    assert (ran, planned, calls) == ("ring", True, 3), ran
    assert why.startswith("won at 64 bytes on 1 node of 2 ranks, as 1 node of 64 ranks lies beyond")
    between.let_go()


if __name__ == "__main__":
    run_checks(globals())
