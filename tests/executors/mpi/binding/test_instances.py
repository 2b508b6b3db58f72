"""Programs in flight that cannot begin: their requests complete with an error."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.instances import LocalProgram
from collplan.executors.mpi.host.cores import ranks_per_core
from collplan.planner import compile_plan
from collplan.planner.plan.plan import Plan
from collplan.programs.compiling_together import own_communicator
from collplan.specs import parse_spec

COUNT = 100
LIMIT_S = 20.0


def plan_of(comm: Any, transport: str) -> Plan:
    fields = {"kind": "allreduce", "count": COUNT}
    machine = {"ranks_per_node": comm.size}
    spec = {"machine": machine, "collective": fields, "transport": transport}
    return compile_plan(parse_spec(spec), rank=comm.rank)


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.ones(COUNT), np.zeros(COUNT)


def addresses(pair: tuple[np.ndarray, np.ndarray]) -> tuple[int, int]:
    return MPI.Get_address(pair[0]), MPI.Get_address(pair[1])


def complete(request: MPI.Request) -> int:
    """Return the error class of a request that completes within the limit."""
    end = time.monotonic() + LIMIT_S
    try:
        while not request.Test():
            assert time.monotonic() < end, "the request never completes"
            time.sleep(1e-3)
    except MPI.Exception as error:
        return int(error.Get_error_class())
    return MPI.SUCCESS


@pytest.mark.ranks(2)
def test_a_start_that_mpi_refuses_completes(comm: Any) -> None:
    """Its request has the error of MPI, and so have those of later starts."""
    own = own_communicator(comm)
    own.Set_errhandler(MPI.ERRORS_RETURN)
    ranks_per_core(own)
    program = LocalProgram(plan_of(comm, "messages"), own)
    pair = arrays()
    copy = program.take(*addresses(pair))
    peers = copy._engine._memory.tasks["peer"]
    peers[peers >= 0] = comm.size + 7
    for _ in range(2):
        assert complete(copy.start(0)) == MPI.ERR_RANK
