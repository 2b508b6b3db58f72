"""Bind a plan whose shared memory the system promises and has no room for."""

from unittest.mock import patch

import pytest
from mpi4py import MPI

import collplan

comm = MPI.COMM_WORLD
spec = {
    "machine": {"ranks_per_node": comm.size},
    "collective": {"kind": "allreduce", "count": 2_000_000},
    "transport": "shared",
}
plan = collplan.compile(collplan.parse_spec(spec), rank=comm.rank)
# As if another program had taken the room since it was looked at.
with (
    patch("collplan.executors.mpi.engine.node_memory._require_room"),
    pytest.raises(collplan.CollplanError, match="node cannot be had") as caught,
):
    collplan.bind(plan, comm)
assert "(it is full)" in str(caught.value), caught.value
print("passed", flush=True)
