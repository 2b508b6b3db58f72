"""collplan: plan, prove, draw, price and run MPI collectives.

Everything a script needs is here; a name is imported when it is first used,
so that ``import collplan`` costs nothing and needs no MPI.

Examples
--------
>>> import collplan
>>> spec = collplan.parse_spec({
...     "machine": {"ranks_per_node": 4},
...     "collective": {"kind": "allreduce", "count": 1024, "datatype": "int32"},
...     "algorithms": "ring",
... })
>>> plan = collplan.compile(spec)
>>> plan.verify()
>>> plan.n_ranks
4
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from executors.comm import Comm
    from executors.cost import simulate
    from executors.local import run_local
    from executors.mpi import bind
    from planner import compile_plan as compile
    from planner.errors import PlanError
    from planner.operations import register_operation
    from planner.plan import Plan
    from specs import (
        CollplanError,
        Link,
        Machine,
        Network,
        PlanSpec,
        SpecError,
        load_spec,
        numpy_dtype,
        parse_spec,
    )

__version__ = "0.1.0"

_HOMES: Final = {
    "CollplanError": ("specs", "CollplanError"),
    "Comm": ("executors.comm", "Comm"),
    "Link": ("specs", "Link"),
    "Machine": ("specs", "Machine"),
    "Network": ("specs", "Network"),
    "Plan": ("planner.plan", "Plan"),
    "PlanError": ("planner.errors", "PlanError"),
    "PlanSpec": ("specs", "PlanSpec"),
    "SpecError": ("specs", "SpecError"),
    "bind": ("executors.mpi", "bind"),
    "compile": ("planner", "compile_plan"),
    "load_spec": ("specs", "load_spec"),
    "numpy_dtype": ("specs", "numpy_dtype"),
    "parse_spec": ("specs", "parse_spec"),
    "register_operation": ("planner.operations", "register_operation"),
    "run_local": ("executors.local", "run_local"),
    "simulate": ("executors.cost", "simulate"),
}

__all__ = [
    "CollplanError",
    "Comm",
    "Link",
    "Machine",
    "Network",
    "Plan",
    "PlanError",
    "PlanSpec",
    "SpecError",
    "bind",
    "compile",
    "load_spec",
    "numpy_dtype",
    "parse_spec",
    "register_operation",
    "run_local",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'collplan' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
