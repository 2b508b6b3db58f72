"""Alltoalls whose design is left to the planner."""

from __future__ import annotations

from collplan.api.compiling import compile_spec
from collplan.executors.cost import simulate
from collplan.specs import PlanSpec

MACHINES = {
    "emulated": {"preset": "emulated"},
    "uneven": {"nodes": 4, "ranks_per_node": [4, 2, 3, 1], "lanes": 2},
    "hydra": {"preset": "hydra", "nodes": 4, "ranks_per_node": 4},
    "cyclic": {"nodes": 4, "ranks_per_node": 4, "rank_order": "cyclic", "numa_domains": 2},
    "5x3": {"nodes": 5, "ranks_per_node": 3, "lanes": 2},
    "one per node": {"nodes": 8, "ranks_per_node": 1},
    "one node": {"ranks_per_node": 8},
    "one rank": {"ranks_per_node": 1},
}


def auto(machine, count=4, *, in_place=False, **fields):
    collective = {"kind": "alltoall", "count": count, "datatype": "int8", "in_place": in_place}
    given = {
        "machine": MACHINES.get(machine, machine),
        "collective": collective,
        "decomposition": "auto",
    }
    return PlanSpec.model_validate(given | fields)


def makespan_s(spec):
    return simulate(compile_spec(spec, idle=[])).makespan_s
