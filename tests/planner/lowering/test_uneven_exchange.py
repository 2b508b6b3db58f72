"""Exchanges whose blocks differ in size: every form, proved, run, and rank by rank."""

from __future__ import annotations

import random

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import Op
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.specs import PlanSpec
from looping import looped
from oracle import check_result, gaps, random_counts
from rank_programs import assert_equal

MACHINES = {
    "two": {"nodes": 2, "ranks_per_node": [3, 2]},
    "alone": {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2, "rank_order": "cyclic"},
    "even": {"nodes": 4, "ranks_per_node": 2},
    "single": {"nodes": 3, "ranks_per_node": 1},
    "one": {"ranks_per_node": 4},
}
FORMS = {
    "leaders": {"name": "hierarchical", "form": "staged"},
    "all": {"name": "full_lane", "form": "staged"},
    "peers": {"name": "full_lane", "form": "node_aware"},
    "matrix": {"name": "full_lane", "form": "matrix"},
}
PASSES = (
    [],
    ["coalesce_requests"],
    [{"name": "coalesce_requests", "staging": "layout"}],
    ["coalesce_requests", "double_buffer"],
)


def spec_of(machine, form, counts, passes=(), **fields):
    collective = {"kind": "alltoallv", "counts": counts, "datatype": "int32", **fields}
    return PlanSpec.model_validate(
        {
            "machine": MACHINES[machine],
            "collective": collective,
            "decomposition": FORMS[form],
            "transport": "shared",
            "passes": passes,
        }
    )


@pytest.mark.many
@looped("passes", PASSES)
@looped("form", FORMS)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_form_moves_blocks_of_any_size(machine, form, passes):
    rng = random.Random(f"{machine}{form}{passes}")
    per_node = MACHINES[machine]["ranks_per_node"]
    n_ranks = sum(per_node) if isinstance(per_node, list) else 0
    n_ranks = n_ranks or per_node * MACHINES[machine].get("nodes", 1)
    for in_place in (False, True):
        counts = random_counts(rng, "alltoall", n_ranks, in_place)
        places = gaps(rng, "alltoall", counts, in_place)
        spec = spec_of(machine, form, counts, passes, in_place=in_place, **places)
        plan = compile_plan(spec, is_proved=False)
        verify(plan)
        check_result(plan)
        if not passes:
            for rank in range(n_ranks):
                assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))


@pytest.mark.quick
@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_sent_where_nothing_is_to_be_sent(form):
    counts = np.zeros((8, 8), int)
    counts[1, 6] = 5
    plan = compile_plan(spec_of("even", form, counts), is_proved=False)
    assert measure(plan).n_messages == 1
    assert (plan.op == Op.COPY).sum() == 2, "the sender stages, the receiver copies out"
    verify(plan)
    check_result(plan)
    assert compile_plan(spec_of("even", form, np.zeros((8, 8), int))).n_tasks == 0


def test_equal_blocks_make_the_messages_of_alltoall():
    counts = np.full((8, 8), 3)
    for form in FORMS:
        uneven = spec_of("even", form, counts)
        even = uneven.model_dump(mode="json") | {
            "collective": {"kind": "alltoall", "count": 3, "datatype": "int32"}
        }
        plan, regular = compile_plan(uneven), compile_plan(PlanSpec.model_validate(even))
        assert measure(plan).n_messages == measure(regular).n_messages
        assert plan.n_tasks == regular.n_tasks
        assert (plan.buffer_sizes == regular.buffer_sizes).all()
