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
>>> collplan.verify(plan)
>>> plan.n_ranks
4
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collplan.compiling import compile_spec as compile
    from collplan.dropin import Comm
    from collplan.executors.cost import simulate
    from collplan.executors.local import run_local
    from collplan.executors.mpi import bind
    from collplan.planner.collective.operations import register_operation
    from collplan.planner.draw import draw
    from collplan.planner.errors import PlanError
    from collplan.planner.formats.networkx import to_networkx
    from collplan.planner.formats.npz import load as load_plan
    from collplan.planner.formats.npz import save as save_plan
    from collplan.planner.formats.text import to_text
    from collplan.planner.plan.plan import Plan
    from collplan.planner.verify import verify
    from collplan.specs import (
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
    "CollplanError": ("collplan.specs", "CollplanError"),
    "Comm": ("collplan.dropin", "Comm"),
    "Link": ("collplan.specs", "Link"),
    "Machine": ("collplan.specs", "Machine"),
    "Network": ("collplan.specs", "Network"),
    "Plan": ("collplan.planner.plan.plan", "Plan"),
    "PlanError": ("collplan.planner.errors", "PlanError"),
    "PlanSpec": ("collplan.specs", "PlanSpec"),
    "SpecError": ("collplan.specs", "SpecError"),
    "bind": ("collplan.executors.mpi", "bind"),
    "compile": ("collplan.compiling", "compile_spec"),
    "draw": ("collplan.planner.draw", "draw"),
    "load_plan": ("collplan.planner.formats.npz", "load"),
    "load_spec": ("collplan.specs", "load_spec"),
    "numpy_dtype": ("collplan.specs", "numpy_dtype"),
    "parse_spec": ("collplan.specs", "parse_spec"),
    "register_operation": ("collplan.planner.collective.operations", "register_operation"),
    "run_local": ("collplan.executors.local", "run_local"),
    "save_plan": ("collplan.planner.formats.npz", "save"),
    "simulate": ("collplan.executors.cost", "simulate"),
    "to_networkx": ("collplan.planner.formats.networkx", "to_networkx"),
    "to_text": ("collplan.planner.formats.text", "to_text"),
    "verify": ("collplan.planner.verify", "verify"),
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
    "draw",
    "load_plan",
    "load_spec",
    "numpy_dtype",
    "parse_spec",
    "register_operation",
    "run_local",
    "save_plan",
    "simulate",
    "to_networkx",
    "to_text",
    "verify",
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
