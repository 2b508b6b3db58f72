"""Corrupted folded plans: verify judges them as it judges the plans of all ranks."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import PlanError
from collplan.planner.plan.plan import Plan
from collplan.planner.verify import verify
from collplan.planner.verify.travel import BY_SHIFT, BY_XOR, Rules, turned
from collplan.specs import PlanSpec
from mutations import CORRUPTIONS, corrupt
from unfolding import unfold

CASES = [
    ("allreduce", "ring"), ("allgather", "ring"), ("allgather", "linear"),
    ("allgather", "neighbor_exchange"), ("alltoall", "linear"), ("alltoall", "pairwise"),
    ("reduce_scatter_block", "ring"), ("barrier", "dissemination"), ("allreduce", "ring sliced"),
]  # fmt: skip
MACHINES = [(3, 1), (3, 2), (2, 2), (4, 2)]
"""Nodes, and ranks per node."""


def folded(kind: str, algorithm: str, nodes: int, per_node: int) -> Plan | None:
    n_ranks = nodes * per_node
    count = {"allreduce": 2 * n_ranks, "barrier": None}.get(kind, 3)
    algorithm, *is_sliced = algorithm.split()
    passes = [{"name": "slice_vector", "slices": 2}] if is_sliced else []
    collective = {"kind": kind} if count is None else {"kind": kind, "count": count}
    machine = {"nodes": nodes, "ranks_per_node": per_node, "lanes": per_node}
    if algorithm == "neighbor_exchange" and per_node % 2:
        return None
    return compile_folded(PlanSpec.model_validate(
        {"machine": machine, "collective": collective, "algorithms": algorithm, "passes": passes}
    ))  # fmt: skip


def verdict(plan: Plan) -> str:
    try:
        verify(plan)
    except PlanError as error:
        return type(error).__name__
    return "proved"


def full_lane(nodes: int, per_node: int) -> Plan:
    """Return a folded plan whose partial sums wrap around inside nodes: they are no intervals."""
    n_ranks = nodes * per_node
    machine = {"nodes": nodes, "ranks_per_node": per_node, "lanes": per_node}
    return compile_folded(PlanSpec.model_validate({
        "machine": machine, "collective": {"kind": "allreduce", "count": 2 * n_ranks},
        "decomposition": "full_lane", "algorithms": {"node": "ring", "lane": "circulant"},
    }))  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("nodes", [3, 4])
def test_a_corrupted_full_lane_plan_is_judged_as_the_plan_of_all_ranks(nodes: int) -> None:
    plan, rng, verdicts = full_lane(nodes, 4), random.Random(nodes), Counter[str]()
    assert verdict(plan) == verdict(unfold(plan)) == "proved"
    for name in CORRUPTIONS:
        changed = corrupt(plan, name, rng)
        if changed is not None:
            found = verdict(changed)
            assert found == verdict(unfold(changed)), name
            verdicts[found] += 1
    assert len(verdicts) > 4


def test_a_plan_on_thousands_of_nodes_is_proved_and_its_corruptions_are_found() -> None:
    plan, rng = full_lane(2048, 8), random.Random(1)
    verify(plan)
    for name in ("drop_message", "drop_local_task"):
        changed = corrupt(plan, name, rng)
        assert changed is not None
        assert verdict(changed) != "proved"


@pytest.mark.many
@pytest.mark.parametrize(("kind", "algorithm"), CASES)
def test_a_corrupted_plan_is_judged_as_the_plan_of_all_ranks(kind: str, algorithm: str) -> None:
    verdicts = Counter[str]()
    rng = random.Random(f"{kind} {algorithm}")
    for turn, machine in enumerate(MACHINES):
        plan = folded(kind, algorithm, *machine)
        if plan is None:
            continue
        assert verdict(plan) == verdict(unfold(plan)) == "proved"
        for name in sorted(CORRUPTIONS)[turn % 2 :: 2]:
            changed = corrupt(plan, name, rng)
            if changed is not None:
                found = verdict(changed)
                assert found == verdict(unfold(changed)), (machine, name)
                verdicts[found] += 1
    assert verdicts.total() > 30
    assert len(verdicts) > 4


def test_elements_turn_in_their_range_and_stay_outside_of_all_ranges() -> None:
    """Ranges of three blocks of two elements, and of four blocks of one."""
    turns = np.array([[4, 6, 2], [20, 4, 1]])
    for motion, apart, targets in (
        (BY_SHIFT, 1, {3: 3, 4: 6, 7: 9, 9: 5, 10: 10, 19: 19, 20: 21, 23: 20, 24: 24}),
        (BY_XOR, 1, {3: 3, 4: 6, 7: 5, 10: 10, 20: 21, 23: 22, 24: 24}),
    ):
        rules = Rules(4, True, np.zeros(0, np.int64), motion, 1, turns, False, True)
        turned_elements = {one: turned.py_func(one, rules, apart) for one in targets}
        assert turned_elements == targets
