"""Algorithms by role: what specs say is taken, what nothing takes is refused in a line."""

from __future__ import annotations

import pytest

from collplan.api.compiling import compile_spec
from collplan.executors.cost import simulate
from collplan.planner.algorithms import registry
from collplan.planner.collective.bounds import lower_bounds
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering import select
from collplan.planner.lowering.program import program_of
from collplan.planner.lowering.select import HOP_BYTES, LONG_BYTES
from collplan.specs import parse_spec
from oracle import REGULAR, make_spec

MACHINE = {"nodes": 2, "ranks_per_node": 3, "lanes": 2}


def fitting(*kinds):
    """Return the names of algorithms of any of some collectives, as messages list them."""
    found = {one.name for kind in kinds for one in registry.of(kind) if not one.is_packed}
    return ", ".join(sorted(found))


def listed(kind):
    """Return the names of all algorithms of a collective, as messages list them."""
    return ", ".join(one.name for one in registry.of(kind))


def working(kind, n_ranks):
    """Return the names of algorithms that work on a number of ranks, as messages list them."""
    return " or ".join(f"'{one.name}'" for one in registry.legal(kind, n_ranks, commutative=True))


def phases(kind, algorithms="auto", decomposition="full_lane", count=12, **fields):
    """Return the labels of a plan's phases, local steps left out."""
    spec = make_spec(
        kind, algorithms, 0, MACHINE, decomposition=decomposition, count=count, **fields
    )
    return [phase.name for phase in compile_spec(spec).phases if not phase.is_local]


FORMS = {
    "bcast": ("lane bcast, node bcast",
              "node scatter, lane bcast, node allgather",
              "column bcast, row bcast"),
    "gather": ("node gather, lane gather",
               "lane gather, node gather",
               "row gather, column gather"),
    "scatter": ("lane scatter, node scatter",
                "node scatter, lane scatter",
                "column scatter, row scatter"),
    "reduce": ("node reduce, lane reduce",
               "node reduce_scatter_block, lane reduce, node gather",
               "row reduce, column reduce"),
    "allgather": ("node gather, lane allgather, node bcast",
                  "lane allgather, node allgather",
                  "row allgather, column allgather"),
    "allreduce": ("node reduce, lane allreduce, node bcast",
                  "node reduce_scatter_block, lane allreduce, node allgather",
                  "row allreduce, column allreduce"),
    "reduce_scatter_block": ("node reduce, lane reduce_scatter_block, node scatter",
                             "node reduce_scatter_block, lane reduce_scatter_block",
                             "column reduce_scatter_block, row reduce_scatter_block"),
    "scan": ("node reduce, lane exscan, node scan, node bcast",
             "node reduce_scatter_block, lane exscan, node scan, node allgather",
             "row scan, column exscan, row bcast"),
    "exscan": ("node reduce, lane exscan, node exscan, node bcast",
               "node reduce_scatter_block, lane exscan, node exscan, node allgather",
               "row exscan, column exscan, row bcast"),
    "alltoall": ("node gather, lane alltoall, node scatter",
                 "node alltoall, lane alltoall",
                 "row alltoall, column alltoall"),
}  # fmt: skip
"""Hierarchical, full-lane, and over a mesh."""


@pytest.mark.parametrize("kind", [kind for kind in REGULAR if kind != "barrier"])
def test_phases_are_the_papers_components(kind):
    mesh = {"name": "mesh", "shape": [2, 3]}
    for decomposition, form in zip(("hierarchical", "full_lane", mesh), FORMS[kind], strict=True):
        labels = phases(kind, decomposition=decomposition)
        assert ", ".join(label.partition("/")[0] for label in labels) == form


def test_a_name_goes_to_all_of_a_role_that_know_it():
    chosen = {"node": "ring", "lane": "rabenseifner"}
    assert phases("allreduce", chosen) == [
        "node reduce_scatter_block/ring", "lane allreduce/rabenseifner", "node allgather/ring"
    ]  # fmt: skip
    assert phases("bcast", {"node": "ring"}) == [
        "node scatter/binomial", "lane bcast/binomial", "node allgather/ring"
    ]  # fmt: skip


def test_a_kind_of_a_role_has_its_own():
    chosen = {"node": "ring", "node/reduce_scatter": "pairwise", "lane": "auto"}
    assert phases("allreduce", chosen) == [
        "node reduce_scatter_block/pairwise",
        "lane allreduce/recursive_doubling",
        "node allgather/ring",
    ]
    by_full_name = {"node/reduce_scatter_block": "pairwise", "node/allgather": "auto"}
    assert phases("allreduce", by_full_name)[::2] == [
        "node reduce_scatter_block/pairwise", "node allgather/bruck"
    ]  # fmt: skip


def test_options_go_to_the_components_algorithm():
    spec = make_spec(
        "bcast", {"lane": {"name": "knomial", "radix": 5}}, 0, {"nodes": 5, "ranks_per_node": 2},
        decomposition="hierarchical", count=4,
    )  # fmt: skip
    plan = compile_spec(spec)
    sends = [task for task in plan.tasks() if task.op.name == "SEND" and task.rank == 0]
    assert [task.peer for task in sends if task.peer % 2 == 0] == [2, 4, 6, 8]


def test_nested_roles_are_joined_by_dots():
    machine = {"nodes": 2, "ranks_per_node": 4, "numa_domains": 2}
    nested = {"name": "full_lane", "node": {"name": "full_lane", "by": "numa"}}
    chosen = {"node.lane": "linear", "node.node/allgather": "ring", "lane": "chain"}
    spec = make_spec("bcast", chosen, 0, machine, decomposition=nested, count=8)
    labels = [phase.name for phase in compile_spec(spec).phases]
    assert "node.lane scatter/linear" in labels
    assert "node.node allgather/ring" in labels
    assert "lane bcast/chain" in labels


def test_auto_takes_few_rounds_for_short_and_few_bytes_for_long_shares():
    """The data of a component counts: the share of a lane, not the vector."""
    lanes = 3
    assert phases("allreduce", count=lanes * (LONG_BYTES - 1), datatype="int8") == [
        "node reduce_scatter_block/circulant", "lane allreduce/recursive_doubling",
        "node allgather/bruck",
    ]  # fmt: skip
    long = {"count": lanes * LONG_BYTES, "datatype": "int8"}
    assert phases("allreduce", **long) == [
        "node reduce_scatter_block/ring", "lane allreduce/ring", "node allgather/ring"
    ]  # fmt: skip
    op = {"name": "sum", "commutative": False}
    assert phases("allreduce", **long, op=op) == [
        "node reduce_scatter_block/pairwise", "lane allreduce/rabenseifner", "node allgather/ring"
    ]  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("op", [True, False], ids=["commutative", "ordered"])
@pytest.mark.parametrize("kind", ["allreduce", "bcast"])
def test_long_vectors_of_which_ranks_have_short_parts_take_few_rounds(kind: str, op: bool) -> None:
    """A part of 1 KiB is worth one of p rounds, a shorter one is not; blocks are never cut."""
    size = 100
    rounds = {
        "allreduce": ("ring", "circulant") if op else ("rabenseifner",) * 2,
        "bcast": ("scatter_allgather", "binomial"),
    }[kind]
    fields = {"op": {"name": "sum", "commutative": op}} if kind == "allreduce" else {}
    for less, name in enumerate(rounds):
        machine = {"nodes": size, "ranks_per_node": 1}
        count = HOP_BYTES * size - less
        spec = make_spec(kind, "auto", 0, machine, count=count, datatype="int8", **fields)
        (phase,) = compile_spec(spec, rank=1).phases
        assert phase.algorithm == name
    blocks = make_spec("allgather", "auto", 0, machine, count=LONG_BYTES, datatype="int8")
    assert compile_spec(blocks, rank=1).phases[0].algorithm == "ring"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("decomposition", "algorithms", "message"),
    [
        ("full_lane", "ring",
         "algorithms: ring is one algorithm, full_lane takes one per role; write {node: ring} or "
         "auto"),
        ({"name": "mesh", "shape": [2, 3]}, "ring",
         "algorithms: ring is one algorithm, mesh(shape=2x3) takes one per role; "
         "write {row: ring} or auto"),
        ("full_lane", {"socket": "ring"},
         "algorithms.socket: this plan has no such role; its roles are node, lane"),
        ("full_lane", {"socket": "auto"},
         "algorithms.socket: this plan has no such role; its roles are node, lane"),
        ("full_lane", {"node": "rang"},
         "algorithms.node: rang fits none of allgather, reduce_scatter_block; use one of "
         f"{fitting('allgather', 'reduce_scatter_block')} or auto"),
        ("full_lane", {"lane": "bruck"},
         "algorithms.lane: bruck fits none of allreduce; use one of "
         f"{fitting('allreduce')} or auto"),
        ("full_lane", {"node/bcast": "binomial"},
         "algorithms.node/bcast: node has no bcast in this plan; "
         "use node/allgather or node/reduce_scatter_block"),
        ("full_lane", {"node/bcast": "auto"},
         "algorithms.node/bcast: node has no bcast in this plan; "
         "use node/allgather or node/reduce_scatter_block"),
        ("full_lane", {"lane/allreduce": "bruck"},
         f"algorithms: allreduce has no 'bruck'; use one of {listed('allreduce')} or auto"),
        ("full_lane", {"node": "bruk", "node/allgather": "bruck"},
         "algorithms.node: bruk fits none of reduce_scatter_block; use one of "
         f"{fitting('reduce_scatter_block')} or auto"),
        ("full_lane", {"lane": "ring", "lane/allreduce": "auto"},
         "algorithms.lane: each collective of lane has its own algorithm already; "
         "leave lane out"),
        ("full_lane", {"node": "recursive_doubling"},
         "allgather/recursive_doubling: 3 ranks is not a power of two; "
         f"use {working('allgather', 3)}"),
        ("full_lane", {"node": {"name": "ring", "radix": 2}},
         "algorithms.radix: reduce_scatter_block/ring has no such option; it has none"),
        ("guideline", {"node": "ring"},
         "algorithms.node: this plan has no such role; its roles are world"),
    ],
    ids=str,
)  # fmt: skip
def test_what_nothing_takes_is_refused(decomposition, algorithms, message):
    with pytest.raises(AlgorithmError) as raised:
        phases("allreduce", algorithms, decomposition)
    assert str(raised.value) == message


def test_where_nothing_moves_there_is_nothing_to_choose():
    chosen = {"node": "ring", "lane": "ring"}
    assert phases("allreduce", chosen, count=0) == []
    alone = make_spec("allreduce", chosen, 0, {}, decomposition="full_lane", count=3)
    assert compile_spec(alone).n_tasks == 1


@pytest.mark.quick
@pytest.mark.parametrize(
    ("decomposition", "passes", "message"),
    [
        ("flat", ["split_lanes"],
         "passes.split_lanes: flat has no leaders to split; use it with decomposition: "
         "hierarchical"),
        ({"name": "mesh", "shape": [2, 3]}, ["split_lanes"],
         "passes.split_lanes: mesh(shape=2x3) has no leaders to split; use it with decomposition: "
         "hierarchical"),
        ("full_lane", ["split_lanes"],
         "passes.split_lanes: full_lane has no leaders to split; use it with decomposition: "
         "hierarchical"),
        ("hierarchical", [{"name": "split_lanes", "leaders": 4}],
         "passes.split_lanes.leaders: 4 leaders, no node has more than 3 ranks; use 1 to 3"),
        ("hierarchical", [{"name": "split_lanes", "leaders": 0}],
         "passes.split_lanes.leaders: 0 leaders, no node has more than 3 ranks; use 1 to 3"),
        ("hierarchical", [{"name": "split_lanes", "leaders": "two"}],
         "passes.split_lanes.leaders: 'two' leaders, no node has more than 3 ranks; use 1 to 3"),
        ("hierarchical", [{"name": "split_lanes", "lanes": 2}],
         "passes.split_lanes.lanes: no such option; use leaders"),
        ("hierarchical", [{"name": "segment", "max_bytes": 8}, "split_lanes"],
         "passes.split_lanes: rewrites the blueprint, but segment before it needs tasks already; "
         "put it first"),
    ],
    ids=str,
)  # fmt: skip
def test_lanes_that_cannot_be_split_say_why(decomposition, passes, message):
    with pytest.raises(AlgorithmError) as raised:
        phases("bcast", decomposition=decomposition, passes=passes)
    assert str(raised.value) == message


def test_lanes_are_split_where_nothing_or_a_multi_leader_was_said():
    two = [{"name": "split_lanes"}]
    split = phases("bcast", decomposition="hierarchical", passes=two)
    again = {"name": "multi_leader", "leaders": 3}
    assert split == phases("bcast", decomposition=again, passes=two) == [
        "node scatter/binomial", "lane bcast/binomial", "node allgather/bruck"
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bcast", "allreduce"])
def test_auto_takes_a_leader_a_lane_where_ranks_share_lanes_unevenly(kind: str) -> None:
    """On 3 lanes, 5 ranks that all lead put 2/5 of the bytes on two lanes, not 1/3."""
    inside = {"L_ns": 200, "o_ns": 50, "g_ns": 0, "G_ns_per_byte": 0.01}
    link = {"L_ns": 1000, "o_ns": 300, "g_ns": 100, "G_ns_per_byte": 2, "offload": True}
    memory = {"copy_ns_per_byte": 0.02, "reduce_ns_per_byte": 0.02}
    network = {"network": link, "node": inside, "numa": inside, **memory}
    machine = {"nodes": 3, "ranks_per_node": 5, "lanes": 3, "network": network}
    collective = {"kind": kind, "count": 1 << 22, "datatype": "int32"}
    spec = parse_spec({"machine": machine, "collective": collective, "decomposition": "auto"})
    assert simulate(compile_spec(spec)).makespan_s < 1.05 * lower_bounds(spec).time_s


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["bcast", "allreduce", "gather", "alltoall", "exscan"])
def test_auto_has_a_plan_for_one_rank(kind: str) -> None:
    spec = parse_spec(
        {
            "machine": {"ranks_per_node": 1},
            "collective": {"kind": kind, "count": 3, "datatype": "int32"},
            "decomposition": "auto",
        }
    )
    assert compile_spec(spec).n_ranks == 1


HYDRA = {"preset": "hydra", "nodes": 4, "ranks_per_node": 8}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kind", "distribution", "total", "algorithm"),
    [
        ("allgatherv", "spike", 1 << 18, "circulant"),
        ("allgatherv", "uniform", 256, "bruck"),
        ("allgatherv", "uniform", 1 << 18, "ring"),
        ("reduce_scatter", "spike", 1 << 18, "circulant"),
        ("alltoallv", "uniform", 256, "bruck"),
        ("alltoallv", "sparse", 256, "pairwise"),
        ("alltoallv", "uniform", 1 << 18, "pairwise"),
        ("gatherv", "spike", 256, "size_tree"),
        ("gatherv", "uniform", 256, "binomial"),
        ("scatterv", "zipf", 1 << 13, "size_tree"),
    ],
)
def test_auto_goes_by_the_sizes_of_unlike_blocks(kind, distribution, total, algorithm):
    counts = {"distribution": distribution, "total": total, "seed": 3}
    collective = {"kind": kind, "counts": counts, "datatype": "int32"}
    (phase,) = compile_spec(parse_spec({"machine": HYDRA, "collective": collective})).phases
    assert phase.algorithm == algorithm


def test_auto_cuts_long_vectors_into_more_blocks():
    found = []
    for count in (1, 3, 1000, 100_000):
        spec = make_spec("bcast", "circulant", 0, HYDRA, count=count, datatype="int32")
        (part,) = program_of(draft(spec)).parts
        found.append(part.options["blocks"])
    assert found[:2] == [1, 1]
    assert found == sorted(found)
    assert 10 < found[-1] <= 64


def test_each_rank_receives_a_limited_number_of_pieces_of_unlike_blocks(monkeypatch):
    collective = {"kind": "allgatherv", "counts": [1, 0, 1, 1_000_000]}
    algorithm = {"name": "circulant", "blocks": "auto"}
    spec = parse_spec({"machine": HYDRA | {"ranks_per_node": 1}, "collective": collective,
                       "algorithms": algorithm})  # fmt: skip
    for most_pieces, n_blocks in ((36, 3), (11, 1)):
        # Four ranks receive the three blocks that are not empty.
        monkeypatch.setattr(select, "MOST_PIECES", most_pieces)
        (part,) = program_of(draft(spec)).parts
        assert part.options["blocks"] == n_blocks


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["allreduce", "reduce_scatter_block", "allgather"])
def test_equal_parts_are_not_cut_again(kind):
    """More blocks cost rounds there, and save no bytes."""
    chosen = {"name": "circulant", "blocks": "auto"}
    plan, whole = (
        compile_spec(make_spec(kind, {**chosen, "blocks": blocks}, 5, count=500_000))
        for blocks in ("auto", 1)
    )
    assert plan.n_tasks == whole.n_tasks
    assert (plan.elements == whole.elements).all()
