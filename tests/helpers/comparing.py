"""Specs to compare candidates of."""

from __future__ import annotations

from typing import Any

from collplan.select.compared import Comparison
from collplan.select.comparison import compare
from collplan.specs import COLLECTIVES, Machine, PlanSpec

MACHINES: dict[str, dict[str, Any]] = {
    "lanes": {"nodes": 3, "ranks_per_node": 4, "lanes": 2},
    "one node": {"ranks_per_node": 6, "numa_domains": 2},
    "dealt": {"nodes": 2, "ranks_per_node": [3, 2], "rank_order": "cyclic"},
}


def spec_of(kind: str, machine: dict[str, Any], count: int = 16, **fields: Any) -> PlanSpec:
    collective: dict[str, Any] = {"kind": kind, "count": count, "datatype": "int32"}
    if COLLECTIVES[kind].has_edges:
        size = Machine.model_validate(machine).n_ranks
        collective["graph"] = {"grid": [size], "periodic": True}
    return PlanSpec.model_validate(
        {
            "machine": machine,
            "collective": {"kind": kind} if kind == "barrier" else collective,
            **fields,
        }
    )


def compare_sizes(
    kind: str, machine: dict[str, Any], counts: tuple[int, ...], **options: Any
) -> Comparison:
    return compare([spec_of(kind, machine, count) for count in counts], **options)
