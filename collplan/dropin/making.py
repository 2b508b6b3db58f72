"""Functions that make plans, and machine code that plans need.

Importing this module takes longer than all other modules of the drop-in together, so it is imported
when plans may be made.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.engine.in_flight import load_machine_code
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.executors.mpi.together import first_alone
from collplan.planner.compiler.compile import compile_plan
from collplan.programs.compiling_together import compile_together
from collplan.specs import PlanSpec, parse_spec
from collplan.tune.predictions import predict

__all__ = ["compile_together", "load_all", "predict"]

_COUNT: Final = 64


def load_all(comm: MPI.Intracomm) -> None:
    """Load the machine code that plans need; collective.

    Raises
    ------
    Exception
        On all ranks, if loading fails on any rank.
    """
    # Rank 0 compiles missing machine code, which the other ranks then find in the cache.
    RollCall(comm, None, "load machine code").together(lambda: first_alone(comm, _load))


def _load() -> None:
    """Compile a plan for several ranks, then bind and run a plan for this rank only."""
    compile_plan(_allreduce(4), rank=0)
    buffers = np.zeros(_COUNT, np.uint8), np.empty(_COUNT, np.uint8)
    with bind(compile_plan(_allreduce(1)), MPI.COMM_SELF, *buffers) as bound:
        bound()
    load_machine_code()
    # Ranks that share memory also access words of other ranks outside the compiled loop.
    word = np.zeros(1, np.int64)
    entry("write_word")(word.ctypes.data, 1)
    entry("read_word")(word.ctypes.data)


def _allreduce(n_ranks: int) -> PlanSpec:
    collective = {"kind": "allreduce", "count": _COUNT, "datatype": "uint8"}
    return parse_spec({"machine": {"ranks_per_node": n_ranks}, "collective": collective})
