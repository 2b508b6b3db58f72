"""Plans that cannot be made or bound on one rank: all ranks run natively and say why.

usage: drop_in_failures.py [SECTION...]
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import collplan
from drop_in_calls import RANK, SIZE, WORLD, following, run_checks
from tables_everywhere import planning_table, reproducing_table

STAGES = {
    "compile": "collplan.preload.teams.compile_plan",
    "write": "collplan.preload.teams.portable",
    "load": "collplan.preload.teams.reduction_library",
}
"""Functions that each rank calls between a request and its plan."""
ERRORS = (
    ModuleNotFoundError("import of numba halted;\nNone in sys.modules"),
    MemoryError(),
    collplan.CollplanError("refused"),
)


@contextmanager
def failing(stage: str, culprit: int, error: Exception) -> Iterator[None]:
    """Let a stage fail on one rank."""
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
    return following(table, native_calls=0)


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
        assert culprit != RANK or words in row["why"], (stage, row)
        assert "\n" not in row["why"], row
        # What was not to blame goes on by plans.
        sums(comm, 64)
        assert comm.stats().as_dict()["planned_calls"] == 1, (stage, str(comm.stats()))
        comm.Free()


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


@contextmanager
def said_by_the_library() -> Iterator[list[bytes]]:
    """Put what this process writes to standard error into a list."""
    found: list[bytes] = []
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield found
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            found.append(file.read())


def check_results_that_no_plan_makes_reproducible_are_native_and_said_to_be(_: Any) -> None:
    table = reproducing_table(SIZE, "placements", is_native=True)
    comm = following(table)
    refused = collplan.CollplanError("refused")
    with said_by_the_library() as said, failing("compile", 0, refused):
        for _turn in range(2):
            sums(comm)
    (row,) = comm.stats().as_dict()["rows"]
    assert (row["planned"], row["calls"]) == (False, 2), row
    lines = said[0].splitlines()
    if RANK:
        assert not lines, lines
    else:
        (line,) = lines
        assert line.startswith(b"collplan: allreduce: no plan can run here: "), line
        assert b"results are not reproducible as the table asks" in line, line
    comm.Free()


def check_a_table_that_is_none_is_refused_on_all_ranks(_: Any) -> None:
    for table in (5, 0.5, ["table.yaml"], {"version": 1}):
        kind = type(table).__name__
        with pytest.raises(collplan.CollplanError, match=f"table: is a {kind}; give a TuningTable"):
            collplan.Comm(WORLD, table=table)  # type: ignore[arg-type]


if __name__ == "__main__":
    run_checks(globals())
