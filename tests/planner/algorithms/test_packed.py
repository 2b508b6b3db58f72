"""Tests of algorithms that are packed into links: proofs and results on many fabrics."""

from __future__ import annotations

import random

import pytest

from collplan.planner import compile_plan
from collplan.planner.errors import AlgorithmError
from collplan.planner.packing.schedule import KINDS
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.specs import PlanSpec
from collplan.specs.collectives.collective import COLLECTIVES
from linked_machines import boxes, machine_on, random_fabric, torus
from oracle import VECTORS, check_result, drawn_counts, make_spec, with_counts
from rank_programs import assert_equal


def spec_on(machine, kind, *, root=0, count=7, blocks=None, **more):
    chosen = "packed" if blocks is None else {"name": "packed", "blocks": blocks}
    return make_spec(
        kind, chosen, machine.n_ranks, machine, root=root, count=count, datatype="int32", op="sum",
        **more,
    )  # fmt: skip


def is_right(spec, order=None):
    plan = compile_plan(spec, is_proved=False)
    verify(plan)
    check_result(plan, order=order)
    return plan


FABRICS = [torus(1), torus(2), torus(5), torus(3, 3), torus(4, 2, wrap=False), boxes(2, 3),
           *map(random_fabric, range(4))]  # fmt: skip


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("machine", FABRICS, ids=range(len(FABRICS)))
def test_results_on_fabrics(kind, machine):
    rng = random.Random(f"{kind}{machine.nodes}")
    roots = range(machine.nodes) if "root" in COLLECTIVES[kind].model_fields else [0]
    for turn, root in enumerate(roots):
        for count in (0, 1, 7, machine.nodes + 1):
            blocks = None if kind == "alltoall" else (None, 1, 3)[(turn + count) % 3]
            in_place = (turn + count) % 2 == 1
            is_right(spec_on(machine, kind, root=root, count=count, blocks=blocks,
                             in_place=in_place), order=rng)  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in VECTORS if kind in KINDS])
def test_blocks_of_unlike_sizes(kind):
    for machine in (torus(3, 2), boxes(2, 3)):
        for distribution in ("linear", "spike", "sparse"):
            counts = drawn_counts(distribution, kind, machine.nodes)
            is_right(with_counts(spec_on(machine, kind, root=1, count=1), counts))


@pytest.mark.quick
@pytest.mark.parametrize("kind", KINDS)
def test_one_ranks_program_is_the_plans_restriction(kind):
    spec = spec_on(torus(3, 2), kind, root=2)
    plan = compile_plan(spec)
    for rank in range(6):
        assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))


@pytest.mark.quick
@pytest.mark.parametrize("decomposition", ["hierarchical", "full_lane"])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_decompositions_across_nodes(kind, decomposition):
    topology = {"kind": "torus", "dimensions": [3, 2], "bandwidth": "1GB/s", "lanes": "shared"}
    machine = machine_on(topology, ranks_per_node=2, lanes=2)
    spec = spec_on(machine, kind, root=5).replace(decomposition=decomposition, algorithms="auto")
    roles = {phase.role for phase in compile_plan(spec).phases if phase.role.endswith("lane")}
    assert roles
    plan = is_right(spec.replace(algorithms=dict.fromkeys(roles, "packed")))
    assert {phase.algorithm for phase in plan.phases if phase.role in roles} == {"packed"}


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["allgather", "allreduce", "reduce_scatter_block", "alltoall"])
@pytest.mark.parametrize("form", ["full_lane", "hierarchical"])
def test_groups_with_schedules_of_their_own(kind, form):
    tree = {"kind": "fat_tree", "down": [4, 3], "oversubscription": 4, "bandwidth": "1GB/s"}
    wanted = spec_on(machine_on(tree), kind, count=96).replace(
        decomposition={"name": form, "by": "group"}, algorithms="auto"
    )
    roles = {one.role for one in compile_plan(wanted).phases if one.role.endswith("lane")}
    is_right(wanted.replace(algorithms=dict.fromkeys(roles, "packed")))


def test_messages_wait_for_those_before_them_on_their_link():
    plan = compile_plan(spec_on(torus(5), "allgather"))
    for row in range(plan.n_tasks):
        task = plan.task(row)
        earlier = [
            other
            for other in range(row)
            if (plan.op[other], plan.rank[other], plan.peer[other])
            == (plan.op[row], plan.rank[row], plan.peer[row])
        ]
        if task.op.name == "SEND" and earlier:
            assert earlier[-1] in task.after


def test_what_it_cannot_do_is_one_line():
    for machine, kind, more, message in (
        ({"nodes": 4}, "bcast", {}, "bcast/packed: the machine has no topology with links into"),
        (machine_on({"kind": "torus", "dimensions": [2], "bandwidth": "1GB/s"}, ranks_per_node=2),
         "bcast", {}, "bcast/packed: two ranks of a group are on one node"),
        (torus(4), "bcast", {"algorithms": {"name": "packed", "blocks": 0}},
         "algorithms.blocks: 0 is not an integer of at least 1"),
        (torus(4), "allgather", {"algorithms": {"name": "packed", "radix": 2}},
         "algorithms.radix: allgather/packed has no such option; its options are blocks"),
    ):  # fmt: skip
        document = {
            "machine": machine,
            "collective": {"kind": kind, "count": 8, "datatype": "int32"},
            "algorithms": "packed",
            **more,
        }
        with pytest.raises(AlgorithmError) as raised:
            compile_plan(PlanSpec.model_validate(document))
        assert str(raised.value).startswith(message)
        assert "\n" not in str(raised.value)
