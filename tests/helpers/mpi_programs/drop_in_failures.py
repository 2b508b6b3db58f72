"""Plans that cannot be made or bound on one rank: all ranks run natively and say why.

usage: drop_in_failures.py [SECTION...]
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from mpi4py import MPI

import collplan
from collplan.executors.mpi.engine.reduction import Reduction
from drop_in_calls import RANK, SIZE, WORLD, planning, run_checks
from tables_everywhere import planning_table, reproducing_table

STAGES = {
    "compile": "collplan.programs.compiling_together.compile_plan",
    "prove": "collplan.programs.compiling_together.compile_plan",
    "prepare": "collplan.executors.mpi.binding.prepared.Prepared",
    "digest": "collplan.executors.mpi.binding.prepared._digests",
    "load": "collplan.executors.mpi.engine.reduction.Reduction.load",
    "find strangers": "collplan.executors.mpi.engine.node_memory._refuse_strangers",
    "compare programs": "collplan.executors.mpi.engine.node_memory._refuse_misfit",
    "find room": "collplan.executors.mpi.engine.node_memory._require_room",
    "populate pages": "collplan.executors.mpi.engine.node_memory._populate",
    "assemble": "collplan.executors.mpi.binding.bound_plan.BoundPlan._assemble",
    "make the engine": "collplan.executors.mpi.engine.engine.Engine.__init__",
}
"""Functions that each rank calls between a request and its bound plan."""
ERRORS = (
    ModuleNotFoundError("import of numba halted;\nNone in sys.modules"),
    MemoryError(),
    collplan.CollplanError("refused"),
)


@contextmanager
def failing(stage: str, culprit: int, error: Exception) -> Iterator[None]:
    """Let a stage fail on one rank."""
    with patch.object(Reduction, "is_loaded", property(lambda _: stage != "load")):
        if culprit != RANK:
            yield
            return
        with patch(STAGES[stage], side_effect=error):
            yield


def sums(comm: Any, n: int = 100) -> None:
    """See that a sum over all ranks is right."""
    total = np.zeros(n)
    comm.Allreduce(np.full(n, comm.rank + 1.0), total)
    assert (total == SIZE * (SIZE + 1) / 2).all(), total


def sharing() -> Any:
    """Return a drop-in on all ranks whose plans for sums share memory."""
    table = planning_table(SIZE, ("allreduce",), "shared")
    return collplan.Comm(WORLD, table=table, force=True, native_calls=0)


def check_a_failure_on_one_rank_at_any_stage_leaves_all_ranks_native(_: Any) -> None:
    for i, stage in enumerate(STAGES):
        error, culprit = ERRORS[i % len(ERRORS)], (0, SIZE - 1)[i % 2]
        comm = sharing()
        with failing(stage, culprit, error):
            for _turn in range(3):
                sums(comm)
        found = comm.stats().as_dict()
        assert (found["planned_calls"], found["native_calls"]) == (0, 3), (stage, found)
        (row,) = found["rows"]
        words = " ".join(str(error).split()) or type(error).__name__
        assert " cannot run here: " in row["why"], (stage, row)
        assert words in row["why"], (stage, row)
        assert "\n" not in row["why"], row
        assert culprit == RANK or f"rank {culprit} cannot" in row["why"], (stage, row)
        # What was not to blame goes on by plans.
        sums(comm, 64)
        assert comm.stats().as_dict()["planned_calls"] == 1, (stage, str(comm.stats()))
        comm.let_go()


def check_a_communicator_that_cannot_be_had_leaves_all_ranks_native(_: Any) -> None:
    too_many = MPI.Exception(MPI.ERR_OTHER)
    comm = planning()
    half = comm.Dup()
    with patch("collplan.dropin.nonblocking_setup.own_communicator", side_effect=too_many):
        half.prepare()
    with patch("collplan.dropin.blocking.BlockingPlans.private", property(_raise(too_many))):
        for _turn in range(2):
            sums(half)
    mine, total = np.ones(1 << 18), np.zeros(1 << 18)
    half.Iallreduce(mine, total).Wait()
    assert (total == SIZE).all()
    whys = {row["why"] for row in comm.stats().as_dict()["rows"]}
    assert any(why.startswith("plans cannot have a communicator: ") for why in whys), whys
    assert any(why.startswith("non-blocking: Exception: ") for why in whys), whys
    half.Free()


def _raise(error: Exception) -> Any:
    def get(_: Any) -> Any:
        raise error

    return get


def check_machine_code_that_cannot_be_loaded_leaves_all_ranks_native(_: Any) -> None:
    with failing("load", SIZE - 1, OSError("no locator available")):
        comm = planning()
        sums(comm)
        mine, total = np.ones(8), np.zeros(8)
        comm.Iallreduce(mine, total).Wait()
    found = comm.stats().as_dict()
    assert found["planned_calls"] == 0, found
    assert all("no locator available" in row["why"] for row in found["rows"]), found
    comm.let_go()


def check_that_there_is_no_table_is_said_once(_: Any) -> None:
    with patch("sys.stderr", io.StringIO()) as said:
        for _turn in range(2):
            sums(collplan.Comm(WORLD))
    lines = said.getvalue().splitlines()
    if RANK:
        assert not lines, lines
    else:
        (line,) = lines
        assert line.startswith("collplan: warning: collplan.Comm has no tuning table"), line


def check_results_that_no_plan_makes_reproducible_are_native_and_said_to_be(_: Any) -> None:
    table = reproducing_table(SIZE, "placements", is_native=True)
    comm = collplan.Comm(WORLD, table=table, force=True)
    refused = collplan.CollplanError("refused")
    with patch("sys.stderr", io.StringIO()) as said, failing("compile", 0, refused):
        for _turn in range(2):
            sums(comm)
    (row,) = comm.stats().as_dict()["rows"]
    assert (row["planned"], row["calls"]) == (False, 2), row
    lines = said.getvalue().splitlines()
    if RANK:
        assert not lines, lines
    else:
        (line,) = lines
        assert line.startswith("collplan: allreduce: no plan can run here: "), line
        assert "not reproducible between placements" in line, line
    comm.let_go()


def check_vector_calls_are_counted_with_their_bytes(_: Any) -> None:
    """Those that no sweep covers: with the bytes of this rank's first buffer."""
    comm = collplan.Comm(WORLD, table=planning_table(SIZE, ("barrier",)), force=True)
    counts = [rank + 1 for rank in range(SIZE)]
    displs = [sum(counts[:rank]) for rank in range(SIZE)]
    mine, blocks = np.full(RANK + 1, RANK, "i4"), np.zeros(sum(counts), "i4")
    own, whole = 4 * (RANK + 1), 4 * sum(counts)
    comm.Allgatherv(mine, [blocks, counts])
    comm.Allgatherv(MPI.IN_PLACE, [blocks, (counts, displs), MPI.INT])
    comm.Gatherv([mine, MPI.INT], [blocks, counts, displs, MPI.INT])
    comm.Scatterv([blocks, counts, displs, "i"] if RANK == 0 else None, mine)
    comm.Ialltoallv(
        [blocks, [RANK + 1] * SIZE, [0] * SIZE, MPI.INT], [blocks.copy(), counts]
    ).wait()
    types = [MPI.INT] * SIZE
    comm.Alltoallw(
        [blocks, ([RANK + 1] * SIZE, [0] * SIZE), types],
        [blocks.copy(), (counts, [0] * SIZE), types],
    )
    comm.allgather({"an": "object"})
    found = {row["collective"]: row for row in comm.stats().as_dict()["rows"]}
    sizes = {name: (row["least_bytes"], row["most_bytes"]) for name, row in found.items()}
    assert sizes == {
        "allgatherv": (own, whole),
        "gatherv": (own, own),
        "scatterv": (whole, whole) if RANK == 0 else (own, own),
        "Ialltoallv": (own * SIZE, own * SIZE),
        "Alltoallw": (own * SIZE, own * SIZE),
        "allgather": (0, 0),
    }, sizes


def check_a_table_that_is_none_is_refused_on_all_ranks(_: Any) -> None:
    for table in (5, 0.5, ["table.yaml"], {"version": 1}):
        kind = type(table).__name__
        with pytest.raises(collplan.CollplanError, match=f"table: is a {kind}; give a TuningTable"):
            collplan.Comm(WORLD, table=table)  # type: ignore[arg-type]


if __name__ == "__main__":
    run_checks(globals())
