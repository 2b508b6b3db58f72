"""Compilation of all machine code in advance, as ``python -m collplan.machine_code``.

Otherwise each kernel is compiled when it is first needed, which takes about a minute of processor
time for all. The types of a kernel's arguments are those of its calls, so that plans are compiled,
proved and priced here which call each of them.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.executors.cost import simulate
from collplan.executors.mpi.loop.entries import ENTRIES, entry, linkable_entry
from collplan.executors.mpi.loop.reductions import is_compiled, reduction_address
from collplan.planner.collective.operations import BUILTIN_OPERATIONS, get_operation
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.machine_code import interpreted
from collplan.planner.machine_code.object_files import PORTABLE, build_into
from collplan.planner.metrics import measure
from collplan.planner.packing.bounds import cut_bound
from collplan.planner.plan.plan import Plan
from collplan.planner.verify import verify
from collplan.preload.library import PACKAGED, library_with
from collplan.specs import PlanSpec

_LANES: Final = {"nodes": 4, "ranks_per_node": 4, "lanes": 2}
_SUM: Final = {"kind": "allreduce", "count": 64, "datatype": "int64", "op": "sum"}
_ROUNDED: Final = _SUM | {"datatype": "float64", "reproducible": "runs"}
_ALL: Final = {"kind": "allgather", "count": 16, "datatype": "int32"}
_ALLTOALL: Final = {"kind": "alltoall", "count": 64, "datatype": "int32"}
_GRAPH: Final = {
    "kind": "graph",
    "hosts": 4,
    "links": [{"source": str(i), "target": str((i + 1) % 4)} for i in range(4)],
}
_TOPOLOGIES: Final = (
    {"kind": "fat_tree", "down": [2, 2], "oversubscription": 2},
    {"kind": "torus", "dimensions": [4]},
    {"kind": "dragonfly", "groups": 2, "routers": 2, "hosts": 1},
    _GRAPH,
)
_ON_TOPOLOGIES: Final = tuple(
    {"machine": _LANES | {"network": {"topology": one}}, "collective": _ALLTOALL}
    for one in _TOPOLOGIES
)
_PACKED: Final = tuple(
    {
        "machine": {"nodes": 4, "network": {"topology": {**_TOPOLOGIES[0], "latency_ns": [1, 9]}}},
        "collective": one,
        "algorithms": "packed",
    }
    for one in (_ALL, _ALLTOALL)
)
_FOLDED: Final = {"machine": _LANES, "collective": _ROUNDED, "algorithms": "recursive_doubling"}
_SPECS: Final[tuple[dict[str, Any], ...]] = (
    {"machine": _LANES, "collective": _SUM, "decomposition": "full_lane"},
    {"machine": _LANES, "collective": _ALL, "algorithms": "circulant"},
    {"machine": _LANES, "collective": _SUM, "decomposition": "hierarchical", "transport": "shared"},
    {
        "machine": {"nodes": 3, "ranks_per_node": [3, 1, 1], "lanes": 2},
        "collective": _SUM | {"count": 9},
        "decomposition": "full_lane",
        "algorithms": {"lane": "ring"},
        "passes": [{"name": "coalesce_requests", "when": "ready"}],
    },
    {"machine": _LANES, "collective": _SUM, "algorithms": "ring", "passes": ["prioritize"]},
    {
        "machine": {"nodes": 4},
        "collective": {"kind": "bcast", "count": 1024},
        "algorithms": "binomial",
        "passes": [{"name": "segment", "max_bytes": 1024}],
    },
    {
        "machine": _LANES | {"network": {"cache_bytes": 4096, "uncached_ns_per_byte": 0.1}},
        "collective": _SUM,
    },
    {
        "machine": _LANES | {"network": {"nic": {"connections": 2, "miss_ns": 100, "warm": True}}},
        "collective": _ALLTOALL,
    },
)
"""Specs whose plans, proofs and prices call all kernels but those of topologies."""
_DTYPES: Final = ("int32", "int64", "float32", "float64")
"""Datatypes of reductions that are compiled in advance."""
_ALL_DTYPES: Final = (
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("bool", "float16", "float32", "float64", "complex64", "complex128"),
)
"""Datatypes of reductions that a package brings."""


def jobs(*, into: bool) -> list[Callable[[], object]]:
    """Return functions that compile all kernels, entry points and reductions.

    The longest come first.

    Parameters
    ----------
    into : bool
        Whether they are for a package, which has reductions of all datatypes, and libraries that
        are preloaded.
    """
    dtypes = _ALL_DTYPES if into else _DTYPES
    reductions = [
        partial(reduction_address, name, np.dtype(dtype))
        for name in BUILTIN_OPERATIONS
        for dtype in dtypes
        if is_compiled(get_operation(name), np.dtype(dtype))
    ]
    return [
        partial(use_kernels, _SPECS),
        partial(linkable_entry, "run_loop"),
        *(partial(entry, name) for name in ENTRIES),
        partial(use_kernels, _ON_TOPOLOGIES),
        partial(use_kernels, _PACKED),
        partial(use_kernels, (_FOLDED,), compile_folded),
        *(partial(library_with, *one) for one in (PACKAGED if into else ())),
        *reductions,
    ]


def use_kernels(
    specs: Sequence[dict[str, Any]], compile_it: Callable[[PlanSpec], Plan] = compile_plan
) -> None:
    """Compile, prove and price the plans of specs, so that their kernels have machine code.

    One process does it, as others would wait for the same kernels.
    """
    interpreted.SHARE = 0  # type: ignore[misc]
    for spec in map(PlanSpec.model_validate, specs):
        plan = compile_it(spec)
        verify(plan)
        simulate(plan, spec.machine.network)
        measure(plan)
        cut_bound(spec.machine, spec.collective)


def _prepare(into: Path | None) -> None:
    """Prepare a process that compiles."""
    if into is not None:
        build_into(into)


def _run(job: Callable[[], object]) -> None:
    """Run a function whose result another process cannot have."""
    job()


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile what is missing, by a process for each processor.

    With ``--into FOLDER``, the machine code of a package is made, for all processors of a kind.
    """
    parser = argparse.ArgumentParser(prog="python -m collplan.machine_code")
    parser.add_argument("--into", type=Path, help="folder for the machine code of a package")
    into = parser.parse_args(arguments).into
    if into:
        os.environ["NUMBA_CPU_NAME"], _ = PORTABLE[platform.machine()]
        os.environ["NUMBA_CPU_FEATURES"] = ""
    with ProcessPoolExecutor(
        mp_context=get_context("spawn"), initializer=_prepare, initargs=(into and into.absolute(),)
    ) as pool:
        running = [pool.submit(_run, job) for job in jobs(into=into is not None)]
        for n, done in enumerate(as_completed(running), 1):
            done.result()
            if sys.stderr.isatty():
                sys.stderr.write(f"\rcollplan: compiling machine code, {n} of {len(running)}")
    if sys.stderr.isatty():
        sys.stderr.write("\n")


if __name__ == "__main__":
    main()
