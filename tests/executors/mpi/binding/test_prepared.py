"""Requests that one rank refuses before it meets the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.prepared import Wish, prepare
from collplan.executors.mpi.errors import BindError, UnsupportedPlanError
from collplan.executors.mpi.program import calls
from collplan.planner import compile_plan
from collplan.planner.rewrite.rank_program import restrict
from oracle import make_spec


def test_counts_of_calls_are_checked_before_ranks_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the root has a count that is too large; the others would wait for it."""
    monkeypatch.setattr(calls, "LARGEST_COUNT", 7)
    plan = compile_plan(make_spec("allgather", "native", 2, count=4, datatype="int32"))
    comm: Any = SimpleNamespace(
        rank=0, size=2, Is_inter=lambda: False, Get_attr=MPI.COMM_SELF.Get_attr
    )
    claim, prepared = prepare(plan, comm, (None, None), Wish("caller"))
    assert prepared is None
    assert isinstance(claim.error, UnsupportedPlanError)
    assert "calls MPI with 8 elements, more than the 7 that a call takes" in str(claim.error)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout_s": True}, "timeout_s is True, must be above 0 s"),
        ({"timeout_s": np.True_}, "timeout_s is np.True_, must be above 0 s"),
        ({"cores": [False]}, "cores[0] is False; use the number of a processor"),
        ({"cores": [np.False_]}, "cores[0] is np.False_; use the number of a processor"),
        ({"timeout_s": 1, "cores": [np.int64(0)]}, ""),
    ],
)
def test_truth_values_are_no_numbers(options: dict[str, Any], words: str) -> None:
    plan = compile_plan(make_spec("allreduce", "ring", 1, count=8, datatype="int32"))
    claim, prepared = prepare(plan, MPI.COMM_SELF, (None, None), Wish("caller", **options))
    if not words:
        assert (claim.error, claim.limit_s) == (None, 1)
        return
    assert prepared is None
    assert claim.limit_s is None
    assert isinstance(claim.error, BindError)
    assert words in str(claim.error)


def test_the_program_of_another_rank_is_refused() -> None:
    plan = compile_plan(make_spec("allreduce", "ring", 2, count=8, datatype="int32"))
    comm: Any = SimpleNamespace(
        rank=0, size=2, Is_inter=lambda: False, Get_attr=MPI.COMM_SELF.Get_attr
    )
    claim, prepared = prepare(restrict(plan, 1), comm, (None, None), Wish("caller"))
    assert prepared is None
    assert "holds the program of rank 1, this is rank 0" in str(claim.error)
