"""Binding by what each rank knows of a collective whose counts differ per rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import collplan
from collplan import RankView
from collplan.specs import CollplanError


def view_of(comm: MPI.Intracomm, kind: str, table: Any, **fields: Any) -> RankView:
    """Return what a rank knows of a table of counts."""
    mine: dict[str, Any] = {}
    if kind == "alltoallv":
        mine = {"counts": table[comm.rank], "received": table[:, comm.rank]}
    elif kind in ("gatherv", "scatterv"):
        root = fields["root"]
        mine = {"own": int(table[comm.rank]), "counts": table if comm.rank == root else None}
    else:
        mine = {"counts": list(table)}
    return RankView(kind, datatype="int32", **{**mine, **fields})


@pytest.mark.ranks(1, 3, 4)
def test_bound_views_leave_what_native_mpi_leaves(comm: MPI.Intracomm) -> None:
    n = comm.size
    table, pairs = np.arange(n) % 3 * 4 + 1, np.arange(n * n).reshape(n, n) % 5
    at = np.cumsum(table) - table + np.arange(n) * comm.rank  # ranks differ in where blocks are
    mine = np.arange(table[comm.rank], dtype=np.int32) + 100 * comm.rank
    all_sent = np.arange(table.sum(), dtype=np.int32)
    row, column = pairs[comm.rank], pairs[:, comm.rank]
    sent, received = np.arange(row.sum(), dtype=np.int32), np.zeros(column.sum() + n, np.int32)
    spread = np.cumsum(column) - column + np.arange(n)
    root, room = n - 1, np.zeros(int(at[-1] + table[-1]), np.int32)
    own = np.zeros_like(mine)
    is_root = comm.rank == root
    cases = {
        "gatherv": (mine, room, {"root": root}, (mine, [room, table] if is_root else None, root)),
        "scatterv": (
            all_sent,
            own,
            {"root": root},
            ([all_sent, table] if is_root else None, own, root),
        ),
        "allgatherv": (mine, room, {"displs": at}, (mine, [room, (table, at)])),
        "reduce_scatter": (all_sent, own, {"op": "max"}, (all_sent, own, table, MPI.MAX)),
        "alltoallv": (
            sent,
            received,
            {"received_displs": spread},
            ([sent, row], [received, (column, spread)]),
        ),
    }
    for kind, (sendbuf, recvbuf, fields, given) in cases.items():
        counts = pairs if kind == "alltoallv" else table
        with collplan.bind(view_of(comm, kind, counts, **fields), comm, sendbuf, recvbuf) as bound:
            recvbuf[:] = -1
            bound()
            found = recvbuf.copy()
        recvbuf[:] = -1
        getattr(comm, kind.capitalize())(*given)
        assert np.array_equal(found, recvbuf), (kind, found, recvbuf)


@pytest.mark.ranks(1, 3)
def test_what_does_not_fit_is_named_on_all_ranks(comm: MPI.Intracomm) -> None:
    last = comm.size - 1
    wrong = RankView("gatherv", [4] * comm.size, own=4 + (comm.rank == last))
    said = f"counts: rank {last} sends 5 elements, rank 0 has 4 for its block; both must be equal"
    with pytest.raises(CollplanError) as caught:
        collplan.bind(wrong, comm)
    assert str(caught.value) == said
    bad = [1.5] * comm.size if comm.rank == last else [1] * comm.size
    with pytest.raises(CollplanError, match=r"counts: 1\.5 .* is not a whole number"):
        collplan.bind(RankView("allgatherv", bad), comm)
