"""End without freeing plans in shared memory, as a drop-in's users do; by MPI's end or Python's."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.planner import compile_plan
from collplan.specs import PlanSpec

comm = MPI.COMM_WORLD
n_nodes = int(sys.argv[1])
spec = PlanSpec.model_validate(
    {
        "machine": {"nodes": n_nodes, "ranks_per_node": comm.size // n_nodes},
        "collective": {"kind": "allreduce", "count": 100, "datatype": "float64", "op": "sum"},
        "decomposition": "hierarchical",
        "transport": "shared",
    }
)
plan = compile_plan(spec)
send, recv = np.full(100, comm.rank, float), np.empty(100)
first, second = bind(plan, comm, send, recv), bind(plan, comm, send, recv)
first()
second()
first.free()
assert (recv == comm.size * (comm.size - 1) / 2).all()
print("passed")
if "finalize" in sys.argv:
    MPI.Finalize()
