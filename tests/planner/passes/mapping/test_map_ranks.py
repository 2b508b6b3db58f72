"""Ranks mapped to positions: proved, fewer bytes between groups, nothing else changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collplan.api.compiling import compile_spec
from collplan.executors.cost import simulate
from collplan.executors.cost.link_use import LinkUse
from collplan.planner.algorithms import registry
from collplan.planner.plan.plan import Op
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.topology import fabric_of
from collplan.planner.topology.levels import rank_places
from collplan.planner.verify import verify
from collplan.specs import CollplanError, Machine, parse_spec
from looping import looped, naming
from oracle import AFFINE, check_result, make_spec
from rank_programs import assert_equal
from tiers import briefly

DRAGONFLY = {"kind": "dragonfly", "groups": 3, "routers": 2, "hosts": 4}
ROOTED = ("bcast", "reduce", "gather", "scatter")
COMBINING = ("reduce", "allreduce", "reduce_scatter_block", "scan", "exscan")
MAPPED = [{"name": "map_ranks"}]


def scattered(nodes, per_node=1):
    """Return a machine whose nodes follow each other in no order of groups."""
    hosts = [(7 * i) % 24 for i in range(nodes)]
    return {
        "nodes": nodes, "ranks_per_node": per_node, "placement": hosts,
        "network": {"topology": DRAGONFLY},
    }  # fmt: skip


def bytes_between(plan, machine, level="group"):
    place = rank_places(Machine.model_validate(machine), level)
    crosses = (plan.op == Op.SEND) & (place[plan.rank] != place[plan.peer])
    return int(plan.elements[crosses].sum())


def both(kind, algorithm, machine, **fields):
    """Return the spec and the plan without the pass, and with it."""
    specs = [make_spec(kind, algorithm, 0, machine, passes=p, **fields) for p in ([], MAPPED)]
    return [(spec, compile_spec(spec, idle=[])) for spec in specs]


@pytest.mark.many
@pytest.mark.parametrize("kind", registry.kinds())
def test_every_algorithm_computes_the_same_over_no_more_bytes_between_groups(kind):
    for number, algorithm in briefly(enumerate(registry.of(kind)), f"mapped {kind}"):
        roots = (number % 8, 7 - number % 8) if kind in ROOTED else (6,)
        for nodes, root in (*((8, root) for root in roots), (13, 11)):
            if algorithm.refusal(nodes, True, True) is not None:
                continue
            machine = scattered(nodes)
            with naming(algorithm.name, nodes, root):
                (_, plain), (spec, mapped) = both(
                    kind, algorithm.name, machine, count=19, root=root, in_place=root % 2 == 0
                )
                verify(mapped)
                check_result(mapped, spec)
                assert bytes_between(mapped, machine) <= bytes_between(plain, machine)


@looped("count", [0, 1, 5, 16])
@pytest.mark.parametrize("kind", ["bcast", "allreduce", "allgather", "reduce_scatter_block"])
def test_short_vectors_and_few_ranks(kind, count):
    for nodes in (1, 2, 3, 11):
        for spec, plan in both(kind, "auto", scattered(nodes), count=count, root=nodes - 1):
            verify(plan)
            check_result(plan, spec)


def test_a_ring_enters_every_group_once():
    machine = scattered(16)
    (_, plain), (_, mapped) = both("allgather", "ring", machine, count=4)
    before, after = (bytes_between(plan, machine) for plan in (plain, mapped))
    n_groups, n_steps = 3, 15
    assert before > after == 4 * n_groups * n_steps


def test_the_bytes_between_groups_of_a_small_case_are_the_fewest_of_all():
    """Of doubling on 8 ranks in groups of 4, one dimension of the cube crosses, the one that
    moves the fewest blocks."""
    machine = {**scattered(8), "placement": [0, 8, 1, 9, 2, 10, 3, 11]}
    (_, plain), (_, mapped) = both("allgather", "recursive_doubling", machine, count=1)
    assert bytes_between(mapped, machine) == 8
    assert bytes_between(plain, machine) == 8
    turned = {**machine, "placement": [0, 1, 2, 3, 8, 9, 10, 11]}
    (_, plain), (_, mapped) = both("allgather", "recursive_doubling", turned, count=1)
    assert (bytes_between(plain, turned), bytes_between(mapped, turned)) == (32, 8)


def test_every_component_of_a_decomposition_is_mapped():
    machine = scattered(12, per_node=2)
    fields: dict[str, Any] = {"count": 48, "decomposition": "full_lane"}
    algorithms = {"lane": "ring"}
    (_, plain), (spec, mapped) = both("allreduce", algorithms, machine, **fields)
    verify(mapped)
    check_result(mapped, spec)
    assert bytes_between(mapped, machine) < bytes_between(plain, machine)
    # Across nodes, each lane is a ring of its own; inside nodes nothing changes.
    inside = [plan.elements[(plan.op == Op.SEND) & ~plan.crosses].sum() for plan in (plain, mapped)]
    assert inside[0] == inside[1]


@pytest.mark.quick
@pytest.mark.parametrize("kind", COMBINING)
def test_operands_in_rank_order_keep_their_positions(kind):
    fields: dict[str, Any] = {"count": 18, "root": 4, "in_place": True}
    if kind not in ("scan", "exscan"):
        fields |= {"op": AFFINE, "datatype": "uint64"}
    spec = make_spec(kind, "auto", 0, scattered(9), passes=MAPPED, **fields)
    idle: list[str] = []
    plan = compile_spec(spec, idle=idle)
    line = "passes.map_ranks: it changes nothing in this plan; it needs an algorithm whose"
    assert [one.startswith(line) for one in idle] == [True]
    check_result(plan, spec)


def test_of_a_decomposition_what_combines_nothing_is_mapped_all_the_same():
    machine = scattered(12, per_node=2)
    fields = {"count": 48, "op": AFFINE, "datatype": "uint64", "decomposition": "guideline"}
    (_, plain), (spec, mapped) = both("allreduce", "auto", machine, **fields)
    verify(mapped)
    check_result(mapped, spec)
    assert bytes_between(mapped, machine) < bytes_between(plain, machine)


@pytest.mark.many
@pytest.mark.parametrize("kind", ["allgather", "allreduce", "bcast", "alltoall", "scatter"])
@pytest.mark.parametrize(
    "decomposition", ["flat", "full_lane", {"name": "hierarchical", "by": "group"}]
)
def test_one_ranks_program_is_the_plans_restriction(kind, decomposition):
    machine = scattered(7, per_node=2)
    spec = make_spec(
        kind, "auto", 0, machine, count=21, root=5, passes=MAPPED, decomposition=decomposition
    )
    plan = compile_spec(spec, idle=[])
    for rank in range(len(kind) % 4, plan.n_ranks, 4):
        assert_equal(restrict(plan, rank), compile_spec(spec, rank=rank, idle=[]))


def test_blocks_of_their_own_sizes_go_with_their_ranks():
    machine = scattered(9)
    counts = [0, 5, 1, 0, 9, 2, 2, 7, 3]
    for kind in ("allgatherv", "gatherv", "scatterv"):
        collective = {"kind": kind, "counts": counts, "datatype": "int32"}
        if kind != "allgatherv":
            collective["root"] = 7
        spec = parse_spec({"machine": machine, "collective": collective, "passes": ["map_ranks"]})
        plan = compile_spec(spec, idle=[], is_proved=False)
        verify(plan)
        check_result(plan, spec)


def test_without_a_topology_it_says_what_is_missing():
    spec = make_spec("bcast", "auto", 4, passes=MAPPED, count=3)
    with pytest.raises(CollplanError) as caught:
        compile_spec(spec)
    assert str(caught.value) == (
        "passes.map_ranks: machine.network has no topology by which ranks are near or far; give "
        "one, or leave the pass out"
    )


def test_a_torus_is_mapped_by_boxes():
    torus = {"kind": "torus", "dimensions": [4, 4]}
    hosts = np.random.default_rng(4).permutation(16).tolist()
    machine = {"nodes": 16, "network": {"topology": torus}, "placement": hosts}
    (_, plain), (spec, mapped) = both("allreduce", "rabenseifner", machine, count=64)
    verify(mapped)
    check_result(mapped, spec)
    fabric = fabric_of(Machine.model_validate(machine))
    assert fabric is not None

    def link_elements(plan):
        rows = np.flatnonzero(plan.op == Op.SEND)
        ends = (plan.rank[rows].astype(np.int64), plan.peer[rows].astype(np.int64))
        begin, _ = fabric.node_routes(*ends)
        return int((np.diff(begin) * plan.elements[rows]).sum())

    assert link_elements(mapped) < link_elements(plain)


@pytest.mark.parametrize("algorithm", ["recursive_doubling", "rabenseifner", "ring", "circulant"])
def test_no_order_of_ranks_makes_the_busiest_link_busier(algorithm):
    hosts = np.random.default_rng(7).permutation(1056)[:64].tolist()
    topology = {"kind": "dragonfly", "groups": 33, "routers": 8, "hosts": 4}
    machine = {"nodes": 64, "placement": hosts, "network": {"topology": topology}}
    spans, busiest = [], []
    for _, plan in both("allreduce", algorithm, machine, count=1 << 16, datatype="uint8"):
        timeline = simulate(plan)
        assert timeline.routes is not None
        spans.append(timeline.makespan_s)
        busiest.append(LinkUse(timeline.routes).busy_ns.max())
    assert busiest[1] <= busiest[0]
    assert spans[1] <= spans[0]
