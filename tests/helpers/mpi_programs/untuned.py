"""The drop-in on ranks that no sweep speaks for: trials of plans, families, what is kept.

usage: untuned.py [CHECK...]
"""

import os
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from mpi4py import MPI

from collplan.deciding.trials import TRIED, TURNS
from collplan.specs import CollplanError
from collplan.tables.table import parse_table
from drop_in_calls import KINDS, WORLD, arguments, following, run_checks
from tables_everywhere import NOWHERE, sweep

AT_ONCE = 1e12
"""Share of time with which a trial begins as soon as it may."""
PREDICT = "collplan.deciding.predictions.predict"
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
    wanted = {"native_calls": 0, "trials": AT_ONCE, **options}
    return following(tuned_elsewhere(), **wanted)


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


def call(comm: Any, kind: str, salt: int, count: int = 5) -> None:
    """Run a collective and see that it leaves what native MPI leaves.

    The first rank is the root, or the second, if `count` is 3.
    """
    parts, size, rank = KINDS[kind], comm.Get_size(), comm.Get_rank()
    sends = count * (size if "blocks_send" in parts else 1)
    receives = count * (size if "blocks_recv" in parts else 1)
    results = []
    native = MPI.Intracomm(comm).Dup()
    for one in (comm, native):
        sendbuf = (np.arange(sends) * 7 + 3 * rank + salt).astype(np.int64)
        recvbuf = np.full(receives, rank + salt)
        given = arguments(kind, sendbuf, recvbuf, MPI.SUM, 1 % size if count == 3 else 0)
        getattr(one, kind.capitalize())(*given)
        results.append((sendbuf, recvbuf))
    for ours, theirs in zip(*results, strict=True):
        assert np.array_equal(ours, theirs), (kind, salt, ours, theirs)
    native.Free()


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
        one.Free()
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
    for one in parts:
        for _ in range(CALLS):
            total(one)
    for one in parts:
        if one.Get_size() > 1:
            rows = [row for row in rows_of(one) if row[3] == one.Get_size()]
            assert any(row[2] == TRIED and row[4] for row in rows), rows
        one.Free()


def check_plans_that_cannot_be_made(comm: Any) -> None:
    """If no plan can be had on one rank, all stay native, and know why."""
    other = drop_in()
    with patch(PREDICT, side_effect=MemoryError("no room at all")):
        for _ in range(3):
            total(other)
    if WORLD.size > 1:
        assert "no plan to try: MemoryError: no room at all" in whys(other), whys(other)
    other.Free()


def check_numbers_of_ranks_between_two_sweeps(comm: Any) -> None:
    """Sweeps of fewer and of more ranks decide without a trial."""
    if WORLD.size < 3:
        return
    document: dict[str, Any] = {
        "fingerprint": NOWHERE.model_dump(),
        "sweeps": [sweep("allreduce", size, True) for size in (2, 64)],
    }
    between = following(parse_table(document), native_calls=0)
    for _ in range(3):
        total(between)
    ((_, ran, why, _, planned, calls),) = rows_of(between)
    assert (ran, planned, calls) == ("ring", True, 3), ran
    assert why.startswith("won at 64 bytes on 1 node of 2 ranks, as 1 node of 64 ranks lies beyond")
    between.Free()


if __name__ == "__main__":
    run_checks(globals())
