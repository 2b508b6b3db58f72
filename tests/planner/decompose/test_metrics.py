"""Rounds and volumes of full-lane plans against the paper's counts; lanes split one by one.

No plan has all the rounds and all the volumes: a binomial broadcast on a lane has ⌈log N⌉ rounds
but sends its share as often from the root's node, a chain the reverse. So rounds are counted with
components of the fewest rounds, volumes with components of the fewest bytes.

References
----------
Träff, Hunold, "Decomposing MPI collectives for exploiting multi-lane communication", CLUSTER 2020,
section III.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.arrays.logarithms import ceil_log2
from collplan.planner.decompose import draft
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import COLUMNS
from collplan.specs.collective import COLLECTIVES
from oracle import make_spec

KINDS = [kind for kind in COLLECTIVES if kind != "barrier"]
FEWEST_ROUNDS = {
    "bcast": "binomial", "gather": "binomial", "scatter": "binomial", "reduce": "binomial",
    "allgather": "bruck", "allreduce": "circulant", "reduce_scatter_block": "circulant",
    "scan": "recursive_doubling", "exscan": "recursive_doubling", "alltoall": "bruck",
}  # fmt: skip
FEWEST_BYTES = {
    "bcast": "chain", "gather": "linear", "scatter": "linear", "reduce": "chain",
    "allgather": "ring", "allreduce": "ring", "reduce_scatter_block": "pairwise",
    "scan": "chain", "exscan": "chain", "alltoall": "pairwise",
}  # fmt: skip
SIZES = [(2, 2), (2, 3), (3, 2), (4, 4), (3, 4), (5, 3), (4, 1), (2, 8), (3, 5)]
"""Nodes, and ranks per node."""


def full_lane(kind, n_nodes, n, names, root=0, decomposition="full_lane", **fields):
    """Return the metrics of a full-lane plan, elements being bytes."""
    machine = {"nodes": n_nodes, "ranks_per_node": n, "lanes": 2}
    spec = make_spec(
        kind, "auto", 0, machine, decomposition=decomposition, datatype="int8",
        count=n_nodes * n * 2, root=root, **fields,
    )  # fmt: skip
    components = [part for part in draft(spec).components if not part.is_local]
    chosen = {f"{part.role}/{part.kind}": names[part.kind] for part in components}
    return measure(compile_plan(spec.replace(algorithms=chosen)))


def paper_rounds(kind, n_nodes, n):
    """Return the rounds of the components one after another."""
    in_node, across = ceil_log2(n), ceil_log2(n_nodes)
    if kind in ("bcast", "reduce"):
        return 2 * in_node + across
    if kind == "allreduce":
        return 2 * in_node + 2 * across
    return 3 * in_node + across if kind in ("scan", "exscan") else in_node + across


def most_rounds(kind, n_nodes, n):
    """Return the bound the paper states, or what follows from its components."""
    log_p = ceil_log2(n_nodes * n)
    if kind in ("bcast", "reduce"):
        return log_p + 1 + ceil_log2(n)
    if kind == "allreduce":
        return 2 * (log_p + 1)
    return log_p + 1 + (2 * ceil_log2(n) if kind in ("scan", "exscan") else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_nodes", "n"), SIZES)
def test_rounds_are_the_papers(n_nodes, n, kind):
    p = n_nodes * n
    for root in (0, n // 2, p - 1) if COLLECTIVES[kind].is_rooted else (0,):
        counted = full_lane(kind, n_nodes, n, FEWEST_ROUNDS, root)
        assert counted.n_rounds == paper_rounds(kind, n_nodes, n) <= most_rounds(kind, n_nodes, n)


@dataclass(frozen=True)
class Volume:
    """Elements the busiest rank sends and receives, and that leave and enter the busiest node."""

    sent: int
    received: int
    out: int
    into: int


def paper_volume(kind, n_nodes, n, c):
    """Return the volumes for c elements; n_nodes · n divides c.

    The paper counts bcast, allgather, allreduce; the others follow from its listings.
    """
    p, share = n_nodes * n, c // n
    others, of_others = (p - 1) * c, (p - n) * c
    return {
        # The root sends all but its share, its share, and all but its share.
        "bcast": Volume(2 * c - share, c, c, c),
        # Received: the other ranks' shares twice, and between them the root's share once.
        "reduce": Volume(c, 2 * c - share, c, c),
        "allreduce": Volume(
            2 * others // p, 2 * others // p,
            2 * (n_nodes - 1) * c // n_nodes, 2 * (n_nodes - 1) * c // n_nodes,
        ),
        "allgather": Volume(others, others, of_others, of_others),
        "reduce_scatter_block": Volume(others, others, of_others, of_others),
        "gather": Volume(n_nodes * c if n > 1 else c, others, n * c, of_others),
        "scatter": Volume(others, n_nodes * c if n > 1 else c, of_others, n * c),
        "alltoall": Volume(
            (n - 1) * n_nodes * c + (n_nodes - 1) * n * c,
            (n - 1) * n_nodes * c + (n_nodes - 1) * n * c,
            n * of_others, n * of_others,
        ),
        "scan": scan_volume(n_nodes, n, c),
        "exscan": scan_volume(n_nodes, n, c),
    }[kind]  # fmt: skip


def scan_volume(n_nodes, n, c):
    """Reduce-scatter, exscan of a share, allgather, and a node's own scan, which is a chain.

    The first node gathers nothing, the last one hands nothing on.
    """
    if n == 1:
        return Volume(c, c, c, c)
    share = c // n
    sent = 3 * c - share if n_nodes > 2 else max(2 * c, 3 * c - 2 * share)
    return Volume(sent, 3 * c - share, c, c)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_nodes", "n"), SIZES)
def test_volumes_are_the_papers(n_nodes, n, kind):
    p = n_nodes * n
    for root in (0, n // 2, p - 1) if COLLECTIVES[kind].is_rooted else (0,):
        counted = full_lane(kind, n_nodes, n, FEWEST_BYTES, root)
        assert paper_volume(kind, n_nodes, n, 2 * p) == Volume(
            counted.bytes_sent_per_rank,
            counted.bytes_received_per_rank,
            counted.bytes_sent_per_node,
            counted.bytes_received_per_node,
        )


@pytest.mark.parametrize("kind", ["scan", "exscan"])
@pytest.mark.parametrize(("n_nodes", "n"), SIZES)
def test_transposed_scans_move_less_inside_nodes(n_nodes, n, kind):
    """An alltoall of shares there and one back, instead of two phases and a whole scan."""
    form = {"name": "full_lane", "form": "transpose"}
    if kind == "scan":  # rank 0 gets nothing from an exscan, and bruck moves blocks of one size
        rounds = full_lane(kind, n_nodes, n, FEWEST_ROUNDS, decomposition=form).n_rounds
        assert rounds == 2 * ceil_log2(n) + ceil_log2(n_nodes)
    c = n_nodes * n * 2
    counted = full_lane(kind, n_nodes, n, FEWEST_BYTES, decomposition=form)
    assert counted.bytes_sent_per_rank == counted.bytes_received_per_rank == 2 * c - c // n
    assert counted.bytes_sent_per_node == counted.bytes_received_per_node == c
    there = full_lane(kind, n_nodes, n, FEWEST_BYTES)
    assert counted.bytes_received_per_rank <= there.bytes_received_per_rank


@pytest.mark.parametrize("kind", ["bcast", "allgather"])
@pytest.mark.parametrize("in_place", [False, True])
def test_nothing_is_staged(kind, in_place):
    """As in the paper's listings: no scratch, no copy but of a rank's own block."""
    counted = full_lane(kind, 3, 4, FEWEST_BYTES, in_place=in_place)
    assert counted.scratch_bytes_per_node == 0
    n_copies = counted.n_tasks - 2 * counted.n_messages
    assert n_copies == (12 if kind == "allgather" and not in_place else 0)


@pytest.mark.parametrize("kind", ["gather", "scatter"])
def test_only_the_roots_node_keeps_what_it_hands_on(kind):
    """A rank there holds a block of every node: N·c."""
    counted = full_lane(kind, 3, 4, FEWEST_BYTES, root=5)
    c = 2 * 12
    assert counted.scratch_bytes_per_rank == 3 * c
    assert counted.scratch_bytes_per_node == 3 * 3 * c


SPLIT = {"nodes": 3, "ranks_per_node": 4, "lanes": 2}


def compiled_with(kind, decomposition, passes=()):
    spec = make_spec(
        kind, "auto", 0, SPLIT, decomposition=decomposition, passes=passes, count=24, root=5
    )
    return compile_plan(spec)


def assert_same_plan(one, other):
    """Nothing but the specs differs."""
    for name in (*COLUMNS, "buffer_sizes"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert one.phases == other.phases
    assert measure(one.replace(spec=None)) == measure(other.replace(spec=None))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leaders", [1, 2, 3, 4])
def test_lanes_are_split_one_by_one(kind, leaders):
    """From one leader, which is hierarchical, to all ranks, which is full-lane."""
    by_pass = compiled_with(kind, "hierarchical", [{"name": "split_lanes", "leaders": leaders}])
    by_name = compiled_with(kind, {"name": "multi_leader", "leaders": leaders})
    assert_same_plan(by_pass, by_name)
    if leaders in (1, 4):
        name = "hierarchical" if leaders == 1 else "full_lane"
        assert_same_plan(by_pass, compiled_with(kind, name))


@pytest.mark.parametrize("kind", ["bcast", "reduce", "allreduce"])
def test_every_lane_carries_its_leaders_shares(kind):
    """Of m leaders the fullest lane has ⌈m / lanes⌉, each with a share of c / m."""
    lane_bytes, queue_pairs = {}, {}
    for leaders in (1, 2, 3, 4):
        counted = measure(compiled_with(kind, {"name": "multi_leader", "leaders": leaders}))
        lane_bytes[leaders], queue_pairs[leaders] = counted.lane_bytes, counted.queue_pairs_per_node
    alone = lane_bytes[1]
    assert lane_bytes == {1: alone, 2: alone // 2, 3: 2 * alone // 3, 4: alone // 2}
    assert queue_pairs == {m: m * queue_pairs[1] for m in lane_bytes}


@pytest.mark.parametrize("kind", ["gather", "scatter", "allgather", "alltoall"])
def test_lanes_carry_blocks_evenly(kind):
    """Leaders that serve equally many ranks carry equally much; the node as a whole the same."""
    counted = {
        leaders: measure(compiled_with(kind, {"name": "multi_leader", "leaders": leaders}))
        for leaders in (1, 2, 4)
    }
    for metrics in counted.values():
        assert metrics.bytes_sent_per_node == counted[1].bytes_sent_per_node
    assert [metrics.lane_bytes for metrics in counted.values()] == [
        counted[1].lane_bytes, counted[1].lane_bytes // 2, counted[1].lane_bytes // 2
    ]  # fmt: skip
