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

from collplan.planner.plan.views import make_views_in

if TYPE_CHECKING:
    from collplan.api.binding import bind as bind
    from collplan.api.compiling import compile_spec as compile  # noqa: F401
    from collplan.api.examining import compare as compare
    from collplan.api.examining import draw as draw
    from collplan.api.examining import simulate as simulate
    from collplan.api.examining import verify as verify
    from collplan.api.rank_view import RankView as RankView
    from collplan.dropin.communicators import Comm as Comm
    from collplan.executors.local import run_local as run_local
    from collplan.planner.collective.operations import register_operation as register_operation
    from collplan.planner.compiler.folded import unfold as unfold
    from collplan.planner.errors import PlanError as PlanError
    from collplan.planner.formats.dask import to_dask as to_dask
    from collplan.planner.formats.networkx import to_networkx as to_networkx
    from collplan.planner.formats.npz import load, save
    from collplan.planner.formats.text import to_text as to_text
    from collplan.planner.formats.text_read import from_text as from_text
    from collplan.planner.plan.plan import Plan as Plan
    from collplan.specs import CollplanError as CollplanError
    from collplan.specs import Link as Link
    from collplan.specs import Machine as Machine
    from collplan.specs import Network as Network
    from collplan.specs import PlanSpec as PlanSpec
    from collplan.specs import ProgramSpec
    from collplan.specs import SpecError as SpecError
    from collplan.specs import load_spec as load_spec
    from collplan.specs import numpy_dtype as numpy_dtype
    from collplan.specs import parse_spec as parse_spec
    from collplan.tables.table import load_table as load_table
    from collplan.tune.one_collective import tune as tune

    load_plan, save_plan, Program = load, save, ProgramSpec

__version__ = "0.1.0"

_HOMES: Final = {
    "CollplanError": "collplan.specs.CollplanError",
    "Comm": "collplan.dropin.communicators.Comm",
    "Link": "collplan.specs.Link",
    "Machine": "collplan.specs.Machine",
    "Network": "collplan.specs.Network",
    "Plan": "collplan.planner.plan.plan.Plan",
    "PlanError": "collplan.planner.errors.PlanError",
    "PlanSpec": "collplan.specs.PlanSpec",
    "Program": "collplan.specs.ProgramSpec",
    "RankView": "collplan.api.rank_view.RankView",
    "SpecError": "collplan.specs.SpecError",
    "bind": "collplan.api.binding.bind",
    "compare": "collplan.api.examining.compare",
    "compile": "collplan.api.compiling.compile_spec",
    "draw": "collplan.api.examining.draw",
    "from_text": "collplan.planner.formats.text_read.from_text",
    "load_plan": "collplan.planner.formats.npz.load",
    "load_spec": "collplan.specs.load_spec",
    "load_table": "collplan.tables.table.load_table",
    "numpy_dtype": "collplan.specs.numpy_dtype",
    "parse_spec": "collplan.specs.parse_spec",
    "register_operation": "collplan.planner.collective.operations.register_operation",
    "run_local": "collplan.executors.local.run_local",
    "save_plan": "collplan.planner.formats.npz.save",
    "simulate": "collplan.api.examining.simulate",
    "to_dask": "collplan.planner.formats.dask.to_dask",
    "to_networkx": "collplan.planner.formats.networkx.to_networkx",
    "to_text": "collplan.planner.formats.text.to_text",
    "tune": "collplan.tune.one_collective.tune",
    "unfold": "collplan.planner.compiler.folded.unfold",
    "verify": "collplan.api.examining.verify",
}
"""The public names, and what each stands for."""

__all__ = list(_HOMES)

make_views_in("collplan.reports.notebook")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        from collplan.specs.errors import suggest

        hint = "" if name.startswith("_") else suggest(name, _HOMES).rstrip()
        hint = hint or "dir(collplan) lists the public names"
        raise AttributeError(f"module 'collplan' has no attribute {name!r}; {hint}")
    module, _, attribute = _HOMES[name].rpartition(".")
    value = getattr(import_module(module), attribute)
    return globals().setdefault(name, value)  # the import has set `tune`, which can be called


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
