"""Calls of every collective on drop-ins that run all by plans, and checks made of them.

A program of checks has functions ``check_…(comm)``, each of which gets a new drop-in. Each is a
case of the pool; all run as ``mpiexec -n 3 python drop_in.py``, or those that are named after it.
"""

from __future__ import annotations

import runpy
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

import collplan
from folders import PROGRAMS
from tables_everywhere import planning_table

if TYPE_CHECKING:
    from collections.abc import Mapping

WORLD: MPI.Intracomm = MPI.COMM_WORLD
"""The native communicator of the ranks that check; `run_check` sets it for a case of the pool."""
SIZE, RANK = WORLD.size, WORLD.rank
KINDS = {
    "bcast": ("recv", "root"),
    "gather": ("send", "blocks_recv", "root"),
    "scatter": ("blocks_send", "recv", "root"),
    "allgather": ("send", "blocks_recv"),
    "alltoall": ("blocks_send", "blocks_recv"),
    "reduce": ("send", "recv", "op", "root"),
    "allreduce": ("send", "recv", "op"),
    "reduce_scatter_block": ("blocks_send", "recv", "op"),
    "scan": ("send", "recv", "op"),
    "exscan": ("send", "recv", "op"),
}
"""Arguments of a collective's call; `blocks` has one per rank."""


_kept: list[Any] = []


def planning(native_s: float = 4e-3, **options: Any) -> Any:
    """Return a drop-in on all ranks that runs all by plans, from the first call on.

    By its table, native calls take `native_s`, and plans half of it or less.
    """
    return following(planning_table(SIZE, native_s=native_s), **{"native_calls": 0, **options})


def following(table: Any, **options: Any) -> Any:
    """Return a drop-in on all ranks with a handle of its own, as calls on WORLD are native."""
    return collplan.Comm(WORLD.Dup(), table=table, **{"force": True, **options})


def arguments(kind: str, sendbuf: Any, recvbuf: Any, op: MPI.Op, root: int) -> list[Any]:
    """Return what a collective's method takes, in its order."""
    given = [recvbuf] if kind == "bcast" else [sendbuf, recvbuf]
    given += [op] if "op" in KINDS[kind] else []
    given += [root] if "root" in KINDS[kind] else []
    return given


def buffers(kind: str, count: int, dtype: Any, salt: int = 0) -> tuple[Any, Any]:
    """Return a send buffer that is this rank's own, and a receive buffer nobody wrote."""
    sends = count * (SIZE if "blocks_send" in KINDS[kind] else 1)
    receives = count * (SIZE if "blocks_recv" in KINDS[kind] else 1)
    sendbuf = (np.arange(sends) * 7 + 3 * RANK + 1 + salt).astype(dtype)
    return sendbuf, np.full(receives, RANK + 1 + salt, dtype)


def compositions() -> tuple[MPI.Op, MPI.Op]:
    """Return two operations that compose linear maps; a drop-in can be told of ``compose``."""

    def combine(left: Any, right: Any, out: Any) -> None:
        out[...] = left.real * right.real + 1j * (left.imag * right.real + right.imag)

    def reduce(left: Any, right: Any, _: MPI.Datatype) -> None:
        a, b = np.frombuffer(left, complex), np.frombuffer(right, complex)
        combine(a, b.copy(), b)

    collplan.register_operation("compose", combine, commutative=False)
    return MPI.Op.Create(reduce, commute=False), MPI.Op.Create(reduce, commute=False)


def kept(buffer: Any) -> Any:
    """Return a buffer that outlives calls in flight, as mpi4py does not keep it."""
    _kept.append(buffer)
    return buffer


def run_checks(program: Mapping[str, Any]) -> None:
    """Run a program's checks, or those that its command line names."""
    for name in sys.argv[1:] or [name for name in program if name.startswith("check_")]:
        _check(program, name)
    if RANK == 0:
        print("passed", flush=True)


def run_check(comm: MPI.Intracomm, program: str, name: str) -> None:
    """Run one check of a program on the ranks of `comm`."""
    global WORLD, SIZE, RANK
    WORLD, SIZE, RANK = comm, comm.size, comm.rank
    # Anew for each case: programs compute what they compare with from these three.
    _check(runpy.run_path(str(PROGRAMS / program), run_name="checks"), name)


def _check(program: Mapping[str, Any], name: str) -> None:
    comm = program.get("drop_in", planning)()
    program[name](comm)
    comm.Free()
