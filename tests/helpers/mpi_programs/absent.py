"""A rank that stops coming in the middle of a bind; the others say so, in the job that goes on."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import collplan
from collplan.executors.mpi.errors import StallError
from collplan.executors.mpi.stall import timed_collectives as roll_call
from collplan.executors.mpi.stall.timed_collectives import RollCall

LIMIT_S = 0.6
comm = MPI.COMM_WORLD
culprit = comm.size - 1
said: list[str] = []
wait = RollCall.wait
n_waits = 0
last = sys.maxsize


class GoneError(Exception):
    """The culprit comes no further."""


def count(self: RollCall, request: MPI.Request) -> None:
    global n_waits
    n_waits += 1
    if comm.rank == culprit and n_waits > last:
        raise GoneError
    wait(self, request)


def go_on(_comm: MPI.Intracomm, reason: str) -> StallError:
    return StallError(reason)


# The standstill is real; only its end is not, or there could be but one in a job.
patched: Any = roll_call
patched.end_job = go_on
patched.say = lambda _rank, lines: said.extend(lines)
patched.GRACE_S, patched.VERDICT_S = 0.4, 0.2
RollCall.wait = count  # type: ignore[method-assign]

spec = {
    "machine": {"ranks_per_node": comm.size, "cores": comm.size + 1},
    "collective": {"kind": "bcast", "count": 500, "datatype": "int32"},
    "transport": "shared",
    "passes": [{"name": "place_progress"}],
}
plan = collplan.compile(collplan.parse_spec(spec), rank=comm.rank)


def bind(among: MPI.Intracomm, timeout_s: float) -> collplan.BoundPlan:
    # One rank's limit has to do for all; the others have to answer it.
    return collplan.bind(
        plan,
        among,
        None,
        np.zeros(500, np.int32),
        progress="thread",
        cores=[0] * (comm.size + 1),
        timeout_s=timeout_s if comm.rank == 0 else None,
    )


comms = [comm.Dup() for _ in range(5)]
bind(comms.pop(), 60).free()
n_waits = 0
with bind(comms.pop(), 60) as bound:
    n_in_bind = n_waits
    bound()
# The first wait is that by which ranks learn of each other's limits.
for last in (2, n_in_bind // 2, n_in_bind - 2):
    n_waits = 0
    comm.Barrier()
    try:
        bind(comms.pop(), LIMIT_S)
    except GoneError:
        assert comm.rank == culprit
    except StallError as stall:
        assert comm.rank != culprit
        said.append(str(stall))
    else:
        raise AssertionError(f"bind went on without rank {culprit} after {last} steps")
    if comm.rank == 0:
        line, error = said
        words = rf"waited .* s to bind the plan; rank {culprit} did not reach this call"
        assert re.fullmatch(words, line)
        assert error.endswith("s to bind the plan"), error
        said.clear()
comm.Barrier()
if comm.rank == 0:
    print(f"passed: {n_in_bind} steps", flush=True)
comm.Barrier()
# What was begun and never ended must not keep the job.
comm.Abort(0)
