"""Lower bounds against linear algebra, against formulas, and against plans that reach them."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.collective.bounds import crossing, lower_bounds
from collplan.planner.collective.semantics import postcondition
from collplan.planner.errors import AlgorithmError
from collplan.planner.metrics import measure
from collplan.specs.collectives.collective import COLLECTIVES
from oracle import make_spec, with_counts
from tiers import briefly

KINDS = registry.kinds()
BLOCK_KINDS = ("gather", "scatter", "allgather", "reduce_scatter_block", "alltoall")
PLACES = (
    [0, 0, 1, 1, 2, 2],
    [0, 1, 0, 1, 0, 1],
    [0, 0, 0, 1, 1, 2],
    [2, 1, 0, 0, 1, 0],
    [0, 1, 2, 3, 4, 5],
    [0, 1, 1, 1, 1, 0],
)


def wanted(collective, n_ranks):
    """Return who wants which combination of contributions: ranks, and a row of 0 and 1 each."""
    held = postcondition(collective, n_ranks)
    stride = 1 + int((held.logical + held.count).max(initial=0))
    ranks, rows = [], []
    for i in range(len(held)):
        for element in range(held.count[i]):
            row = np.zeros(n_ranks * stride)
            contributors = np.arange(held.first[i], held.last[i])
            row[contributors * stride + held.logical[i] + element] = 1
            ranks.append(held.rank[i])
            rows.append(row)
    return np.array(ranks, dtype=int), np.array(rows).reshape(len(rows), n_ranks, stride)


def independent(rows):
    return int(np.linalg.matrix_rank(rows.reshape(len(rows), -1))) if rows.size else 0


@pytest.mark.quick
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("places", PLACES, ids=str)
def test_what_crosses_a_border_is_what_is_linearly_independent(kind, places):
    """A place wants combinations of what it has and what it lacks: the rank of the latter."""
    place_of = np.array(places)
    n_ranks = len(places)
    for root in range(n_ranks) if COLLECTIVES[kind].is_rooted else (0,):
        collective = make_spec(kind, "auto", n_ranks, count=2, root=root).collective
        ranks, rows = wanted(collective, n_ranks)
        bound = crossing(collective, place_of)
        for place in range(max(places) + 1):
            inside = place_of == place
            entering = rows[inside[ranks]][:, ~inside]
            leaving = rows[~inside[ranks]][:, inside]
            assert bound.into[place] == independent(entering), (root, place)
            assert bound.out[place] == independent(leaving), (root, place)


def test_blocks_of_any_size_cross_borders_as_they_are():
    places = np.array([0, 1, 1, 0, 2])
    counts, pairs = (3, 0, 2, 0, 1), tuple((i, 0, 2, i % 2, 1) for i in range(5))
    for kind in ("gather", "scatter", "allgather", "reduce_scatter_block", "alltoall"):
        spec = make_spec(kind, "auto", 5, count=1, root=4)
        collective = with_counts(spec, pairs if kind == "alltoall" else counts).collective
        ranks, rows = wanted(collective, 5)
        bound = crossing(collective, places)
        for place in range(3):
            inside = places == place
            assert bound.into[place] == independent(rows[inside[ranks]][:, ~inside]), kind
            assert bound.out[place] == independent(rows[~inside[ranks]][:, inside]), kind


@pytest.mark.quick
@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_lanes_of_equal_nodes_carry_what_formulas_say(nodes, lanes):
    n, block = 4, 3
    total, outside, k = nodes * n * block, (nodes - 1) / nodes, min(lanes, n)
    machine = {"nodes": nodes, "ranks_per_node": n, "lanes": lanes}
    elements = {
        "bcast": total,
        "reduce": total,
        "scan": total,
        "exscan": total,
        "allreduce": 2 * outside * total,
        "allgather": outside * total,
        "gather": outside * total,
        "scatter": outside * total,
        "reduce_scatter_block": outside * total,
        "alltoall": outside * total * n,
        "barrier": 0,
        "neighbor_alltoall": 2 * total,
    }
    for kind in KINDS:
        count = block if kind in BLOCK_KINDS else total
        spec = make_spec(kind, "auto", 0, machine, count=count, datatype="int16")
        bounds = lower_bounds(spec)
        expected = 0 if nodes == 1 else round(2 * elements[kind]) / k
        assert bounds.lane_bytes == np.ceil(expected), kind
        assert bounds.time_s == pytest.approx(bounds.lane_bytes * 0.08e-9), kind


@pytest.mark.quick
@pytest.mark.parametrize(("kind", "root", "ranks_per_node", "lane_bytes"), [
    ("bcast", 0, [5, 5, 2], 12),  # 24 bytes enter the last node on 2 lanes
    ("bcast", 1, [1, 4], 24),  # and the first on 1
    ("bcast", 0, [1, 4], 12),  # 24 leave the first for 2 lanes of the other
    ("scatter", 0, [1, 4], 48),  # 4 blocks of 24 leave the first for 2 lanes
    ("gather", 0, [1, 4], 96),  # and enter it on 1
    ("gather", 11, [5, 5, 2], 120),  # 10 blocks enter the root's node on 2 lanes
    ("allgather", 0, [5, 5, 2], 120),
    ("reduce", 11, [5, 5, 2], 12),
    ("allreduce", 0, [5, 5, 2], 12),
    ("allreduce", 0, [5, 5, 5, 2], 14),  # 2 * 3 * 24 bytes are received on 3 + 3 + 3 + 2 lanes
    ("reduce_scatter_block", 0, [1, 1, 8], 96),  # 2 * 10 * 24 on 1 + 1 + 3, not 216 on 3
    ("alltoall", 0, [1, 4], 96),  # 4 blocks enter the first on 1 lane
])  # fmt: skip
def test_lanes_of_unequal_nodes_carry_what_their_ranks_allow(
    kind, root, ranks_per_node, lane_bytes
):
    lanes = 2 if len(ranks_per_node) == 2 else 3
    machine = {"nodes": len(ranks_per_node), "ranks_per_node": ranks_per_node, "lanes": lanes}
    spec = make_spec(kind, "auto", 0, machine, count=24, root=root, datatype="int8")
    assert lower_bounds(spec).lane_bytes == lane_bytes


@pytest.mark.quick
@pytest.mark.parametrize(("kind", "algorithm"), [
    ("bcast", "chain"),
    ("reduce", "chain"),
    ("scan", "chain"),
    ("exscan", "chain"),
    ("gather", "linear"),
    ("scatter", "linear"),
    ("alltoall", "linear"),
])  # fmt: skip
@pytest.mark.parametrize("ranks_per_node", [[2, 2], [3, 1], [2, 2, 2]], ids=str)
def test_a_plan_reaches_the_bound(kind, algorithm, ranks_per_node):
    machine = {"nodes": len(ranks_per_node), "ranks_per_node": ranks_per_node}
    metrics = measure(compile_plan(make_spec(kind, algorithm, 0, machine, count=24)))
    assert metrics.lane_bytes == metrics.bounds.lane_bytes > 0


@pytest.mark.many
@pytest.mark.parametrize("decomposition", [
    "hierarchical",
    "full_lane",
    {"name": "multi_leader", "leaders": 2},
    {"name": "mesh", "shape": [2, 6]},
], ids=str)  # fmt: skip
def test_no_decomposition_beats_a_bound(decomposition):
    n_compiled = 0
    for ranks_per_node, order in ((4, "block"), (4, "cyclic"), ([5, 5, 2], "block")):
        machine = {
            "nodes": 3, "ranks_per_node": ranks_per_node, "lanes": 2, "rank_order": order,
        }  # fmt: skip
        for kind in KINDS:
            spec = make_spec(kind, "auto", 0, machine, count=1200, root=7)
            try:
                plan = compile_plan(spec.replace(decomposition=decomposition), is_proved=False)
            except AlgorithmError:
                continue
            n_compiled += 1
            metrics = measure(plan)
            bounds = metrics.bounds.to_json()
            del bounds["argument"], bounds["time_s"]
            for name, bound in bounds.items():
                assert getattr(metrics, name) >= bound, (kind, machine, name)
    assert n_compiled > len(KINDS)


def test_the_wires_time_is_within_the_makespan():
    machine = {"nodes": 2, "ranks_per_node": 4, "lanes": 2}
    for kind in KINDS:
        for algorithm in briefly(registry.legal(kind, 8, commutative=True), f"bounds of {kind}"):
            spec = make_spec(kind, algorithm.name, 0, machine, count=10_000)
            makespan_s = simulate(compile_plan(spec, is_proved=False)).makespan_s
            assert makespan_s >= lower_bounds(spec).time_s, (kind, algorithm.name)


@pytest.mark.quick
@pytest.mark.parametrize(("kind", "counts", "n_rounds"), [
    ("gather", (1, 0, 0, 0, 1, 0, 0, 0), 1),
    ("gather", (1, 2, 0, 0, 1, 1, 0, 0), 2),
    ("scatter", (9, 0, 0, 0, 0, 0, 0, 0), 0),
    ("allgather", (0, 0, 0, 1, 0, 0, 0, 0), 3),
    ("reduce_scatter_block", (0, 0, 0, 1, 0, 0, 0, 0), 3),
    ("reduce_scatter_block", (0,) * 8, 0),
])  # fmt: skip
def test_ranks_without_elements_cost_no_rounds(kind, counts, n_rounds):
    spec = with_counts(make_spec(kind, "linear", 8, count=1), counts)
    metrics = measure(compile_plan(spec))
    assert metrics.bounds.n_rounds == n_rounds <= metrics.n_rounds


def test_pairs_without_elements_cost_no_rounds():
    pairs = tuple(tuple(int(to in (0, rank)) for to in range(8)) for rank in range(8))
    spec = with_counts(make_spec("alltoall", "linear", 8, count=1), pairs)
    metrics = measure(compile_plan(spec))
    assert metrics.n_messages == 7, "blocks without elements are not sent"
    assert metrics.bounds.n_rounds == 3
    assert metrics.bytes_received_per_rank == metrics.bounds.bytes_received_per_rank


def test_lanes_share_in_proportion_to_their_rates():
    """100 and 25 Gbit/s carry 4 and 1 fifths: the fastest is G's."""
    spec = make_spec("bcast", "auto", 0, {"nodes": 2, "ranks_per_node": 2, "lanes": 2}, count=1000)
    unlike = spec.replace(machine=spec.machine.replace(lanes=("100Gbit", "25Gbit")))
    per_byte = spec.machine.network.network.G_ns_per_byte * 1e-9
    one, other = lower_bounds(spec), lower_bounds(unlike)
    n_bytes = 1000 * spec.collective.itemsize
    assert one.time_s == n_bytes / 2 * per_byte
    assert other.time_s == pytest.approx(n_bytes * 4 / 5 * per_byte)
    assert one.lane_bytes == other.lane_bytes
    twins = spec.replace(machine=spec.machine.replace(lanes=("100Gbit", "100Gbit")))
    assert lower_bounds(twins) == one


def test_bursts_of_slow_lanes_take_no_time_either():
    machine = {"nodes": 2, "ranks_per_node": 2, "lanes": ["30Mbit", "10Mbit"]}
    spec = make_spec("bcast", "auto", 0, machine, count=1000)
    network = spec.machine.network.replace(burst_bytes=100)
    spec = spec.replace(machine=spec.machine.replace(network=network))
    left = 1000 * spec.collective.itemsize - 2 * 100
    per_byte = network.network.G_ns_per_byte * 1e-9
    assert lower_bounds(spec).time_s == pytest.approx(left * 3 / 4 * per_byte)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "barrier"])
@pytest.mark.parametrize("form", ["flat", "full_lane", {"name": "full_lane", "shares": "balanced"}])
def test_no_plan_is_faster_on_lanes_of_different_rates(kind, form):
    machine = {"nodes": 3, "ranks_per_node": [4, 3, 5], "lanes": ["100Mbit", "40Mbit", "10Mbit"]}
    spec = make_spec(kind, "auto", 0, machine, decomposition=form, count=3000, root=1)
    assert simulate(compile_plan(spec)).makespan_s >= lower_bounds(spec).time_s
