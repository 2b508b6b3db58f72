"""Candidates beside computation run by the code that runs in programs that follow the table."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.measure.run import case_for_spec
from collplan.specs import PlanSpec, parse_spec
from collplan.tune.trial import Beside
from tables_everywhere import table_of_one

COMPUTATION_S = 1e-3


def spec_of(ranks: int, **more: Any) -> PlanSpec:
    collective = {"kind": "allreduce", "count": 1000}
    machine = {"ranks_per_node": ranks}
    return parse_spec({"machine": machine, "collective": collective, **more})


@pytest.mark.ranks(3)
def test_a_candidate_runs_by_its_plan_beside_a_computation(comm: Any) -> None:
    spec = spec_of(comm.size, algorithms="linear")
    case = case_for_spec(spec, comm)
    beside = Beside(comm, COMPUTATION_S, None, lambda name: table_of_one(spec, COMPUTATION_S))
    run = beside.follow("linear", case)
    case.fill()
    begin = time.perf_counter()
    run()
    assert time.perf_counter() - begin > COMPUTATION_S / 2
    with case.natively() as native:
        native()
    assert np.allclose(case.recvbuf[: case.n_received], case.native_recvbuf[: case.n_received])
    run.free()


@pytest.mark.ranks(2)
def test_a_candidate_whose_calls_stay_native_is_refused_on_all_ranks(comm: Any) -> None:
    """Ranks allocate shared memory together, which a non-blocking call cannot do."""
    spec = spec_of(comm.size, transport="shared")
    beside = Beside(comm, COMPUTATION_S, None, lambda name: table_of_one(spec, COMPUTATION_S))
    with pytest.raises(UnsupportedPlanError, match="calls stay native: "):
        beside.follow("shared", case_for_spec(spec, comm))
    comm.Barrier()
