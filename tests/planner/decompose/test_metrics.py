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

import pytest

from collplan.planner import compile_plan
from collplan.planner.arrays.logarithms import ceil_log2
from collplan.planner.decompose import draft
from collplan.planner.metrics import measure
from collplan.specs.collectives.collective import COLLECTIVES
from looping import looped
from oracle import AFFINE, REGULAR, make_spec

KINDS = [kind for kind in REGULAR if kind != "barrier"]
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
    given = {"datatype": "int8", "count": n_nodes * n * 2, "root": root} | fields
    spec = make_spec(kind, "auto", 0, machine, decomposition=decomposition, **given)
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


@pytest.mark.quick
@pytest.mark.parametrize("kind", KINDS)
@looped("n_nodes, n", SIZES)
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


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
@looped("n_nodes, n", SIZES)
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


@looped("kind", ["scan", "exscan"])
@looped("n_nodes, n", SIZES)
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


GATHERED = {"name": "full_lane", "form": "gather"}


def roots_of(n_nodes, n):
    return sorted({0, n // 2, n * (n_nodes // 2), n_nodes * n - 1})


@looped("n_nodes, n", [*SIZES, (1, 4), (1, 5)])
def test_gathered_reduces_bring_the_root_all_vectors_of_its_node(n_nodes, n):
    """Of each other rank there a whole vector, and a share through its own lane."""
    c = n_nodes * n * 2
    through_lane = c // n if n_nodes > 1 else 0
    out = c if n_nodes > 1 else 0
    for root in roots_of(n_nodes, n):
        rounds = full_lane("reduce", n_nodes, n, FEWEST_ROUNDS, root, GATHERED).n_rounds
        in_node = ceil_log2(n)
        assert rounds == (2 * in_node + ceil_log2(n_nodes) if n_nodes > 1 else in_node)
        counted = full_lane("reduce", n_nodes, n, FEWEST_BYTES, root, GATHERED)
        assert counted.bytes_received_per_rank == (n - 1) * c + through_lane
        assert counted.bytes_sent_per_rank == c
        assert counted.bytes_sent_per_node == counted.bytes_received_per_node == out
        assert counted.scratch_bytes_per_rank <= n * c


@looped("n_nodes, n", SIZES)
def test_gathered_reduces_in_order_bring_shares_of_both_sides(n_nodes, n):
    """The paper's (n - 1)(c + c/n), and the root's own share, where all nodes are on one side."""
    c = n_nodes * n * 2
    for root in roots_of(n_nodes, n):
        n_sides = 1 if root // n in (0, n_nodes - 1) else 2
        counted = full_lane(
            "reduce", n_nodes, n, FEWEST_BYTES, root, GATHERED, datatype="uint64", op=AFFINE
        )
        extra = n_sides * (c // n)
        assert counted.bytes_received_per_rank == 8 * ((n - 1) * (c + extra) + extra)
        assert counted.bytes_received_per_node == 8 * n_sides * c


@pytest.mark.quick
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
