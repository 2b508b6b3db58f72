"""``decomposition: auto``: the best design of alltoalls, by closed forms, and eager segments."""

from __future__ import annotations

import random

import pytest

from auto_alltoalls import MACHINES, auto, makespan_s
from collplan.api.compiling import compile_spec
from collplan.emulate.cluster import Cluster, parse_rate
from collplan.emulate.machine import emulated_machine
from collplan.executors.cost import simulate
from collplan.planner.collective.bounds import lower_bounds
from collplan.planner.compiler.ranks import needs_all_ranks
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.select.alltoall_designs import DESIGNS
from collplan.select.auto import resolve
from collplan.select.candidates import sliced
from collplan.select.search import search
from collplan.select.sweep import price
from collplan.specs import PlanSpec, parse_spec
from oracle import VECTORS, check_result
from rank_programs import assert_equal
from tiers import briefly


@pytest.mark.many
@pytest.mark.parametrize("count", [1, 1024, 65536])
@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "one rank"])
def test_auto_is_within_five_percent_of_the_best_design(machine, count):
    spec = auto(machine, count)
    best = min(makespan_s(design.of(spec)) for design in DESIGNS.values())
    assert makespan_s(spec) <= 1.05 * best


@pytest.mark.many
@pytest.mark.parametrize(("count", "in_place"), [(0, False), (1, True), (3, False), (300, True)])
@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "hydra"])
def test_what_auto_chooses_is_right(machine, count, in_place):
    plan = compile_spec(auto(machine, count, in_place=in_place), idle=[], is_proved=False)
    verify(plan)
    check_result(plan, order=random.Random(count), seed=count)


def test_the_chosen_spec_says_everything():
    chosen = resolve(auto("5x3", 1))
    assert chosen.decomposition.name != "auto"
    assert str(chosen.transport) == "shared"
    long = resolve(auto("5x3", 1 << 20))
    assert (long.decomposition.name, str(long.transport), long.passes) == ("flat", "messages", ())


@pytest.mark.parametrize("machine", ["one rank", "one per node"])
def test_memory_is_shared_only_where_ranks_share_a_node(machine):
    for candidate in search(auto(machine)):
        assert str(candidate.spec.transport) == "messages"


def test_passes_and_transport_that_are_named_stay():
    passes_given = (["prioritize"], ["coalesce_requests", "double_buffer"], ["segment"])
    for passes in passes_given:
        spec = auto("one per node", passes=passes)
        for candidate in search(spec):
            assert candidate.spec.passes == spec.passes
        verify(compile_spec(spec, idle=[], is_proved=False))
    transports = ("shared", {"node": "messages"}, {"node": "shared"})
    for transport in briefly(transports, "transports that stay"):
        spec = auto("5x3", transport=transport)
        for candidate in search(spec):
            assert candidate.spec.transport == spec.transport
        verify(compile_spec(spec, idle=[], is_proved=False))
    assert draft(resolve(auto("5x3", transport={"node": "messages"}))).exchange is None
    coalesced = resolve(auto("5x3", passes=["coalesce_requests"]))
    assert coalesced.decomposition.form == "node_aware"


def test_passes_that_nothing_takes_say_why():
    with pytest.raises(AlgorithmError, match="split_lanes: rewrites the blueprint, but coalesce_"):
        compile_spec(auto("5x3", passes=["coalesce_requests", "split_lanes"]), idle=[])


@pytest.mark.long
def test_1600_ranks_are_priced_without_their_pairs():
    """Every rank has 1,599 blocks to send, and a plan of flat exchanges 5 million tasks."""
    short, long = (resolve(auto("vsc3", count)) for count in (1, 1 << 20))
    assert short.decomposition.name != "flat"
    assert (long.decomposition.name, str(long.algorithms)) in [
        ("flat", "pairwise"),
        ("flat", "linear"),
    ]


@pytest.mark.many
@pytest.mark.parametrize("kind", ["bcast", "allreduce", "allgather"])
def test_segments_are_eager_where_longer_ones_wait_for_a_handshake(kind: str) -> None:
    """On emulated clusters, segments of 32 KiB took up to 1.35 times longer than of 16 KiB."""
    machine = emulated_machine(Cluster(4, 4, 2, parse_rate("100Mbit")))
    count = (1 << 20) // (16 if kind == "allgather" else 1)
    collective = {"kind": kind, "count": count, "datatype": "int32"}
    spec = PlanSpec.model_validate(
        {"machine": machine, "collective": collective, "decomposition": "auto"}
    )
    chosen = resolve(spec)
    plan = compile_spec(chosen, idle=[])
    limit = machine.network.eager_limit_bytes
    assert 0 < plan.itemsize * plan.elements[plan.crosses].max() <= limit
    assert chosen.passes[0].name == "segment"


@pytest.mark.parametrize("kind", ["bcast", "reduce", "allreduce", "scan", "exscan"])
def test_a_ranks_own_part_is_that_of_the_plan(kind: str) -> None:
    """In slices, whose lengths differ, as 4 nodes of 4 ranks share an odd count."""
    spec = large(kind, 4, 4, (1 << 20) + 17).replace(
        decomposition="full_lane", passes=sliced(9, are_eager=True)
    )
    plan = compile_spec(spec, idle=[])
    for rank in (0, 5, 15):
        assert_equal(restrict(plan, rank), compile_spec(spec, rank=rank, idle=[]))


def large(kind: str, nodes: int, per_node: int, n_bytes: int) -> PlanSpec:
    op = {} if kind == "bcast" else {"op": "sum"}
    return PlanSpec.model_validate(
        {
            "machine": {"nodes": nodes, "ranks_per_node": per_node, "lanes": 4},
            "collective": {"kind": kind, "count": n_bytes, "datatype": "int8", **op},
            "decomposition": "auto",
        }
    )


@pytest.mark.long
@pytest.mark.parametrize(("kind", "n_bytes"), [("allreduce", 1 << 20), ("bcast", 1 << 24)])
def test_on_thousands_of_ranks_every_rank_can_compile_its_own_program(
    kind: str, n_bytes: int
) -> None:
    chosen = resolve(large(kind, 128, 56, n_bytes))
    assert not needs_all_ranks(chosen)
    assert compile_spec(chosen, rank=1).n_tasks < 30_000


def test_a_vector_takes_few_rounds_between_many_nodes_where_that_is_faster() -> None:
    """With a ring, 256 nodes take 510 rounds for parts of 2 KiB."""
    spec = large("allreduce", 256, 8, 1 << 22)
    with_rings = spec.replace(decomposition="full_lane", algorithms={"lane": "ring"})
    ours_s, rings_s = price(resolve(spec)).makespan_s, price(with_rings).makespan_s
    assert ours_s is not None
    assert rings_s is not None
    assert ours_s < 0.75 * rings_s


DISTRIBUTIONS = ("uniform", "linear", "zipf", "spike", "sparse")
SHAPES = {
    "3x5": {"nodes": 3, "ranks_per_node": 5, "lanes": 3},
    "2x7": {"nodes": 2, "ranks_per_node": 7, "lanes": 2},
    "5x3": {"nodes": 5, "ranks_per_node": 3, "lanes": 2},
    "4x4": {"nodes": 4, "ranks_per_node": 4, "lanes": ["80Mbit", "40Mbit"]},
}


@pytest.mark.many
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        *(("bcast", shape) for shape in SHAPES),
        *zip(("allreduce", "allgather", "gather", "scatter"), SHAPES, strict=True),
        *zip(("gather", "scatter", "allreduce", "allgather"), SHAPES, strict=True),
    ],
)
def test_auto_reaches_the_bound_where_lanes_do_not_divide_the_ranks(kind, shape):
    """On slow lanes, of processors that are fast."""
    blocks = 1 if kind in ("bcast", "allreduce") else SHAPES[shape]["nodes"]
    machine = SHAPES[shape] | {"network": {"network": {"G_ns_per_byte": 100, "offload": True}}}
    spec = PlanSpec.model_validate(
        {
            "machine": machine,
            "collective": {"kind": kind, "count": 400_000 // blocks},
            "decomposition": "auto",
        }
    )
    makespan_s = simulate(compile_spec(spec, idle=[])).makespan_s
    assert makespan_s <= 1.06 * lower_bounds(spec).time_s


def test_auto_has_a_plan_for_nothing_over_a_topology() -> None:
    tree = {"kind": "fat_tree", "down": [2, 2], "up": [1, 1]}
    machine = {"nodes": 4, "ranks_per_node": 2, "network": {"topology": tree}}
    for kind in ("scatter", "allreduce"):
        spec = {"machine": machine, "collective": {"kind": kind, "count": 0}}
        chosen = PlanSpec.model_validate(spec | {"decomposition": "auto"})
        assert compile_spec(chosen, idle=[]).n_tasks == 0


@pytest.mark.many
@pytest.mark.parametrize(
    ("kind", "distribution"),
    [
        pair
        for first in (0, 2)
        for pair in zip(VECTORS.values(), [*DISTRIBUTIONS, *DISTRIBUTIONS][first:], strict=False)
    ],
)
def test_unlike_blocks_have_a_plan_on_uneven_nodes(kind: str, distribution: str) -> None:
    machine = {"preset": "hydra", "nodes": 3, "ranks_per_node": [4, 1, 3]}
    total = 10 ** (1 + len(distribution) % 3)
    collective = {"kind": kind, "counts": {"distribution": distribution, "total": total}}
    spec = parse_spec({"machine": machine, "collective": collective, "decomposition": "auto"})
    plan = compile_spec(spec, is_proved=False)
    verify(plan)
    check_result(plan)


@pytest.mark.long
def test_a_spike_takes_a_fifth_of_the_time_of_the_ring_or_less() -> None:
    """36 nodes of 32 ranks: in blocks the time depends on the sum, not on p times the largest."""
    counts = {"distribution": "spike", "total": 1 << 18, "seed": 3}
    collective = {"kind": "allgatherv", "counts": counts, "datatype": "int32"}
    spec = parse_spec({"machine": {"preset": "hydra"}, "collective": collective})
    times = {
        name: simulate(compile_spec(spec.replace(algorithms=name))).makespan_s
        for name in ("ring", "circulant", "auto")
    }
    assert 5 * times["circulant"] < times["ring"]
    assert times["auto"] == times["circulant"]
