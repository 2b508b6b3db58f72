"""Plans of trees on nodes with cores to spare."""

from __future__ import annotations

from collplan.planner import Plan, compile_plan
from oracle import make_spec


def split(levels: object = "auto", **options) -> dict[str, object]:
    return {"name": "split_tree", "levels": levels, **options}


def tree_plan(kind: str, name: str, n_ranks: int, *passes, n_free: int = 2, machine=None,
              transport: str = "messages", **fields) -> Plan:  # fmt: skip
    machine = machine or {"ranks_per_node": n_ranks, "cores": n_ranks + n_free}
    fields = {"count": 8, "datatype": "int32"} | fields
    spec = make_spec(kind, name, n_ranks, machine, passes=passes, **fields)
    return compile_plan(spec.replace(transport=transport))
