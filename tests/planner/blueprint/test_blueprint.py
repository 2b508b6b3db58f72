"""Collectives in which only one block has elements, as simpler ones."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from collplan.planner import compile_plan
from collplan.planner.verify import verify
from collplan.specs import PlanSpec
from oracle import check_result
from tiers import briefly

DECOMPOSITIONS = {
    "full_lane": ([2, 1, 3], {"name": "full_lane"}),
    "hierarchical": ([2, 1, 3], {"name": "hierarchical"}),
    "mesh of nodes": ([4, 4], {"name": "mesh", "by": "node"}),
    "mesh": ([8], {"name": "mesh", "shape": [2, 4]}),
}


@pytest.mark.many
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_a_reduce_of_one_block_overwrites_no_input(name: str, in_place: bool) -> None:
    """Of one rank, or of two in any rows and columns, which then have one block each."""
    sizes, decomposition = DECOMPOSITIONS[name]
    fixed = {"kind": "reduce_scatter", "datatype": "int32", "op": "sum", "in_place": in_place}
    every = combinations_with_replacement(range(sum(sizes)), 2)
    for owners in briefly(every, f"owners {name} {in_place}"):
        counts = [2 * (rank in owners) for rank in range(sum(sizes))]
        document = {
            "machine": {"nodes": len(sizes), "ranks_per_node": sizes},
            "collective": {**fixed, "counts": counts},
            "decomposition": decomposition,
        }
        plan = compile_plan(PlanSpec.model_validate(document), is_proved=False)
        verify(plan)
        check_result(plan)
