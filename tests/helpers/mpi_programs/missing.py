"""A rank that is missing in some way; the last rank is the culprit.

Arguments: case, way to reduce, time limit.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import collplan
from collplan.executors.mpi.world import join_world
from mpi_plans import reduction

comm = join_world()
case, way, limit_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
is_culprit = comm.rank == comm.size - 1
AGES_S = 600


def plan_of(count: int, transport: str = "messages") -> collplan.Plan:
    spec = {
        "machine": {"ranks_per_node": comm.size},
        "collective": {"kind": "allreduce", "count": count, "datatype": "int32"},
        "algorithms": "ring",
        "transport": transport,
    }
    return collplan.compile(collplan.parse_spec(spec), rank=comm.rank)


def bind(count: int = 64, transport: str = "messages") -> collplan.BoundPlan:
    buffers = np.ones(count, np.int32), np.zeros(count, np.int32)
    plan = plan_of(count, transport)
    # One rank's time limit has to do for all.
    timeout_s = None if is_culprit else limit_s
    return collplan.bind(plan, comm, *buffers, operation=reduction(way, "sum"), timeout_s=timeout_s)


def never_starts(transport: str = "messages") -> None:
    bound = bind(transport=transport)
    bound()
    if is_culprit:
        time.sleep(AGES_S)
    bound.start()
    if comm.rank == 0:
        while not bound.test():
            time.sleep(0.001)
    bound.wait()


def never_binds() -> None:
    if is_culprit:
        time.sleep(AGES_S)
    bind()


def never_frees() -> None:
    bound = bind()
    bound()
    if is_culprit:
        time.sleep(AGES_S)
    bound.free()


def never_completes_before_an_allocation() -> None:
    """A root has nothing to wait for, but for others to have read its memory."""
    spec = {
        "machine": {"ranks_per_node": comm.size},
        "collective": {"kind": "bcast", "count": 64, "datatype": "int32"},
        "transport": "shared",
    }
    plan = collplan.compile(collplan.parse_spec(spec), rank=comm.rank)
    vector = np.zeros(64, np.int32)
    bound = collplan.bind(plan, comm, recvbuf=vector, timeout_s=limit_s)
    if is_culprit:
        time.sleep(AGES_S)
    bound()
    bound.allocate()


def is_killed() -> None:
    bound = bind()
    bound()
    if is_culprit:
        os.kill(os.getpid(), signal.SIGKILL)
    bound()


def is_killed_among_native_calls() -> None:
    bound = bind()
    bound()
    if is_culprit:
        os.kill(os.getpid(), signal.SIGSEGV)
    comm.Barrier()
    bound.free()


def is_interrupted() -> None:
    """An interrupt comes out of a wait, which may then be taken up again."""
    bound = bind()
    pids = comm.allgather(os.getpid())
    if is_culprit:
        time.sleep(0.3)
        os.kill(pids[0], signal.SIGINT)
        comm.recv(source=0)
        bound()
    elif comm.rank == 0:
        try:
            bound()
        except KeyboardInterrupt:
            comm.send(None, dest=comm.size - 1)
            bound.wait()
            print("passed: interrupted, then completed", flush=True)
    else:
        bound()
    bound.free()


plan_of(64)
# On a busy machine ranks come up seconds apart, which is not what is limited here.
comm.Barrier()
{
    "never_starts": never_starts,
    "never_starts_shared": lambda: never_starts("shared"),
    "never_binds": never_binds,
    "never_frees": never_frees,
    "never_completes": never_completes_before_an_allocation,
    "is_killed": is_killed,
    "is_killed_among_native_calls": is_killed_among_native_calls,
    "is_interrupted": is_interrupted,
}[case]()
