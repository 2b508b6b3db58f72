"""Plans that fold, and reasons why others do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collplan.planner.compiler.folded import compile_folded
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError, AsymmetricError
from collplan.planner.lowering.program import program_of
from collplan.planner.lowering.symmetry import Symmetries
from collplan.planner.verify import verify
from collplan.select.candidates import all_forms
from collplan.specs import PlanSpec
from tiers import briefly

MACHINE = {"nodes": 4, "ranks_per_node": 2, "lanes": 2}
RING = {"collective": {"kind": "allreduce", "count": 16}, "algorithms": "ring"}


def spec_of(**fields: Any) -> PlanSpec:
    return PlanSpec.model_validate({"machine": MACHINE, **RING, **fields})


@pytest.mark.quick
@pytest.mark.parametrize(
    ("fields", "kind", "turns"),
    [
        ({}, "shift", [[0, 16, 4]]),
        ({"decomposition": "full_lane", "algorithms": {"lane": "ring"}}, "shift",
         [[0, 8, 2], [8, 8, 2]]),
        ({"collective": {"kind": "allgather", "count": 3}}, "shift", []),
        ({"collective": {"kind": "alltoall", "count": 3}, "algorithms": "linear"}, "shift",
         [[0, 24, 6]]),
        ({"collective": {"kind": "alltoall", "count": 3}, "algorithms": "pairwise"}, "xor",
         [[0, 24, 6]]),
        ({"collective": {"kind": "allgather", "count": 3}, "algorithms": "neighbor_exchange"},
         "shift", []),
        ({"collective": {"kind": "barrier"}, "algorithms": "dissemination"}, "shift", []),
        ({"algorithms": {"name": "circulant", "blocks": 2}}, "shift", [[0, 8, 2], [8, 8, 2]]),
    ],
)  # fmt: skip
def test_a_plan_folds_by_a_motion(fields: Any, kind: str, turns: list[list[int]]) -> None:
    plan = compile_folded(spec_of(**fields))
    assert plan.folding is not None
    assert (plan.folding.motion.kind, plan.n_copies, plan.n_ranks) == (kind, 4, 2)
    assert plan.folding.turns.tolist() == turns
    verify(plan)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"machine": {"ranks_per_node": 8}}, "one node has nothing to repeat"),
        ({"machine": {"nodes": 2, "ranks_per_node": [3, 1]}}, "ranks_per_node differs"),
        ({"machine": MACHINE | {"rank_order": "cyclic"}}, "rank_order"),
        ({"collective": {"kind": "allreduce", "count": 17}}, "17 elements are not divided by 8"),
        ({"algorithms": "recursive_doubling",
          "machine": {"nodes": 3}}, "the rounds of recursive_doubling differ"),
        ({"passes": ["split_tree"]}, "passes.split_tree"),
        ({"algorithms": "rabenseifner"}, "the rounds of rabenseifner differ"),
        ({"collective": {"kind": "bcast", "count": 16}, "algorithms": "binomial"}, "its root"),
        ({"collective": {"kind": "gather", "count": 16}, "algorithms": "linear"}, "other sizes"),
        ({"collective": {"kind": "alltoall", "count": 3}, "decomposition": "guideline",
          "algorithms": {"world": "ring"}}, "moves blocks of alltoall in another order"),
        ({"decomposition": "hierarchical", "algorithms": {"lane": "ring"},
          "collective": {"kind": "allgather", "count": 512},
          "machine": {"nodes": 8, "ranks_per_node": 8, "lanes": 4}}, "a phase divides a vector"),
        ({"collective": {"kind": "alltoall", "count": 3}, "algorithms": "auto",
          "decomposition": {"name": "full_lane", "form": "staged"},
          "transport": "shared"}, "shared memory"),
    ],
)  # fmt: skip
def test_what_differs_between_nodes_is_named(fields: Any, why: str) -> None:
    with pytest.raises(AsymmetricError, match=why):
        compile_folded(spec_of(**fields))


@pytest.mark.many
@pytest.mark.parametrize("kind", ["allreduce", "allgather", "alltoall", "bcast"])
@pytest.mark.parametrize(("nodes", "count"), [(4, 32), (3, 24), (4, 33)])
def test_what_folds_may_fold_by_the_groups_of_two_nodes(kind: str, nodes: int, count: int) -> None:
    machine = {"nodes": nodes, "ranks_per_node": 4, "lanes": 2}
    spec = PlanSpec.model_validate(
        {"machine": machine, "collective": {"kind": kind, "count": count}}
    )
    of_two = np.flatnonzero(np.isin(np.arange(nodes * 4) // 4, [0, nodes // 2]))
    n_folded = 0
    for form in briefly(all_forms(spec), f"of two nodes {kind} {nodes} {count}"):
        chosen = form.of(spec)
        try:
            program = program_of(draft(chosen, only_ranks=of_two, is_rough=True))
            compile_folded(chosen)
        except AlgorithmError:
            continue
        assert Symmetries().may_fold(program, nodes // 2), form.name
        n_folded += 1
    assert bool(n_folded) == (kind != "bcast")


@pytest.mark.many
@pytest.mark.parametrize("kind", ["allreduce", "allgather", "reduce_scatter_block"])
@pytest.mark.parametrize("machine", [(8, 4, 2), (6, 6, 3)])
def test_what_two_nodes_show_to_fold_does(kind: str, machine: tuple[int, int, int]) -> None:
    """Vectors that a node divides, and whose chunks move between nodes, are told from others."""
    nodes, per_node, lanes = machine
    count = nodes * per_node * (4 if kind == "allreduce" else 1)
    spec = PlanSpec.model_validate({
        "machine": {"nodes": nodes, "ranks_per_node": per_node, "lanes": lanes},
        "collective": {"kind": kind, "count": count},
    })  # fmt: skip
    of_two = np.flatnonzero(np.isin(np.arange(nodes * per_node) // per_node, [0, nodes // 2]))
    told, known = {True: 0, False: 0}, Symmetries()
    forms = briefly(all_forms(spec), f"of two nodes {kind} {machine}")
    for form in forms:
        chosen, folds = form.of(spec), True
        try:
            program = program_of(draft(chosen, only_ranks=of_two, is_rough=True))
            compile_folded(chosen)
        except AsymmetricError:
            folds = False
        except AlgorithmError:
            continue
        half = nodes // 2
        found = known.may_fold(program, half) and not known.divides_what_moves(program, half)
        assert found == folds, form.name
        told[folds] += 1
    assert min(told.values()) > len(forms) // 40
