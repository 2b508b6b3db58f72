"""Early loading of the modules and machine code that plans need.

Modules are loaded early because a program may later remove or replace them in ``sys.modules``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Final

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.engine.in_flight import load_machine_code
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.executors.mpi.together import first_alone
from collplan.planner import compile_plan
from collplan.specs import PlanSpec, parse_spec

_PACKAGES: Final = ("collplan", "llvmlite", "numba", "numpy")
_COUNT: Final = 64
_loaded: dict[str, ModuleType] = {}


def load_all(comm: MPI.Intracomm) -> None:
    """Import all modules that plans need, and load their machine code; collective.

    Raises
    ------
    Exception
        On all ranks, if loading fails on any rank.
    """
    # Rank 0 compiles missing machine code, which the other ranks then find in the cache.
    RollCall(comm, None, "load machine code").together(lambda: first_alone(comm, _load))
    for name, module in sys.modules.items():
        if name.partition(".")[0] in _PACKAGES and module:
            _loaded[name] = module


def _load() -> None:
    """Compile a plan for several ranks, then bind and run a plan for this rank only."""
    compile_plan(_allreduce(4), rank=0)
    buffers = np.zeros(_COUNT, np.uint8), np.empty(_COUNT, np.uint8)
    with bind(compile_plan(_allreduce(1)), MPI.COMM_SELF, *buffers) as bound:
        bound()
    load_machine_code()
    # Later calls use these modules to compile reductions that are not in the cache.
    for name in ("combine", "compiling"):
        import_module(f"collplan.executors.mpi.loop.{name}")
    # Ranks that share memory also access words of other ranks outside the compiled loop.
    word = np.zeros(1, np.int64)
    entry("write_word")(word.ctypes.data, 1)
    entry("read_word")(word.ctypes.data)


def _allreduce(n_ranks: int) -> PlanSpec:
    collective = {"kind": "allreduce", "count": _COUNT, "datatype": "uint8"}
    return parse_spec({"machine": {"ranks_per_node": n_ranks}, "collective": collective})


@contextmanager
def as_loaded() -> Iterator[None]:
    """Restore, within a context, modules that the program has removed or replaced.

    Only the modules loaded by `load_all` are restored. Cached machine code refers to modules by
    name, and numba imports some of them late.
    """
    hidden = [name for name, one in _loaded.items() if sys.modules.get(name) is not one]
    before = {name: sys.modules[name] for name in hidden if name in sys.modules}
    sys.modules.update({name: _loaded[name] for name in hidden})
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        sys.modules.update(before)
