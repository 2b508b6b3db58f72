"""Counts equal documented formulas and never beat a bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.algorithms.building_blocks.bine import ways
from collplan.planner.algorithms.building_blocks.factors import greatest_product
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import Op
from collplan.specs.collectives.collective import COLLECTIVES
from looping import SIZES, looped
from oracle import make_spec, with_counts

C = 48 * 5
"""Elements; 2, 3, 4, 6, 8, 12 and 16 ranks divide it."""


def metrics(kind, algorithm, p, count=C, **kwargs):
    return measure(compile_plan(make_spec(kind, algorithm, p, count=count, datatype="int8",
                                          **kwargs)))  # fmt: skip


@pytest.mark.many
@looped("p", [2, 3, 4, 6, 8, 12, 16])
def test_rounds_and_bytes_are_as_documented(p):
    log, is_power = ceil_log2(p), p & (p - 1) == 0
    formulas = {
        # (kind, algorithm): (rounds, bytes sent by the busiest rank)
        ("bcast", "linear"): (p - 1, (p - 1) * C),
        ("bcast", "chain"): (p - 1, C),
        ("bcast", "binomial"): (log, log * C),
        ("bcast", "scatter_allgather"): (None, None),
        ("gather", "linear"): (p - 1, C),
        ("gather", "binomial"): (log, None),
        ("scatter", "linear"): (p - 1, (p - 1) * C),
        ("scatter", "binomial"): (log, (p - 1) * C),
        ("reduce", "binomial"): (log, C),
        ("reduce", "chain"): (p - 1, C),
        ("allgather", "ring"): (p - 1, (p - 1) * C),
        ("allgather", "bruck"): (log, (p - 1) * C),
        ("allreduce", "ring"): (2 * (p - 1), 2 * (p - 1) * C // p),
        ("allreduce", "reduce_bcast"): (2 * log, None),
        ("allreduce", "circulant"): (2 * log, 2 * (p - 1) * C // p),
        ("reduce_scatter_block", "linear"): (p - 1, (p - 1) * C),
        ("reduce_scatter_block", "ring"): (p - 1, (p - 1) * C),
        ("reduce_scatter_block", "pairwise"): (p - 1, (p - 1) * C),
        ("reduce_scatter_block", "circulant"): (log, (p - 1) * C),
        ("scan", "chain"): (p - 1, C),
        ("scan", "recursive_doubling"): (log, None),
        ("exscan", "recursive_doubling"): (log, None),
        ("alltoall", "linear"): (p - 1, (p - 1) * C),
        ("alltoall", "pairwise"): (p - 1, (p - 1) * C),
        ("alltoall", "bruck"): (log, None),
        ("barrier", "dissemination"): (log, 0),
    }
    if is_power:
        formulas |= {
            ("allgather", "recursive_doubling"): (log, (p - 1) * C),
            ("allreduce", "recursive_doubling"): (log, log * C),
            ("allreduce", "rabenseifner"): (2 * log, 2 * (p - 1) * C // p),
            ("reduce_scatter_block", "recursive_halving"): (log, (p - 1) * C),
        }
    else:
        formulas[("allreduce", "recursive_doubling")] = (floor_log2(p) + 2, None)
    if p % 2 == 0:
        formulas[("allgather", "neighbor_exchange")] = (p // 2, (p - 1) * C)
    for (kind, algorithm), (rounds, sent) in formulas.items():
        counted = metrics(kind, algorithm, p)
        assert rounds is None or counted.n_rounds == rounds, (kind, algorithm)
        assert sent is None or counted.bytes_sent_per_rank == sent, (kind, algorithm)


@pytest.mark.many
@looped("p", [*range(1, 18), 31, 32, 33, 48])
def test_blocks_on_circulant_graphs_take_the_fewest_rounds(p):
    log = ceil_log2(p)
    for n in (1, 3, 8):
        circulant = {"name": "circulant", "blocks": n}
        n_rounds = n - 1 + log if p > 1 else 0
        found = metrics("bcast", circulant, p, root=p // 3)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (n_rounds, n_rounds * C // n)
        found = metrics("reduce", circulant, p, root=p // 3)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (n_rounds, C * (p > 1))
        if p > 20 and n > 1:
            continue
        found = metrics("allgather", circulant, p, count=24)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (n_rounds, (p - 1) * 24)


@pytest.mark.many
@looped("p", [*range(1, 18), 31, 32, 33])
@looped("kind", ["gather", "scatter"])
def test_trees_by_size_take_the_fewest_rounds(kind, p):
    """Lighter runs move, so that equal blocks make the binomial tree of rank 0."""
    found = metrics(kind, "size_tree", p)
    plain = metrics(kind, "binomial", p)
    assert found.n_rounds == plain.n_rounds == ceil_log2(p)
    if p & (p - 1) == 0:
        assert found.bytes_sent_per_rank == plain.bytes_sent_per_rank
    counts = np.random.default_rng(p).integers(1, 100, p)
    for root in {0, p // 2, p - 1}:
        spec = with_counts(
            make_spec(kind, "size_tree", p, root=root, datatype="int8", count=1), counts
        )
        found = measure(compile_plan(spec))
        assert found.n_rounds == ceil_log2(p)
        if kind == "scatter":
            assert found.bytes_sent_per_rank == counts.sum() - counts[root]


@pytest.mark.many
@looped("p", [*range(1, 18), 27, 32, 64])
def test_bruck_moves_a_block_once_per_digit(p):
    rng = np.random.default_rng(p)
    for radix in (2, 3, 8, 64):
        n_rounds, span, times = 0, 1, np.zeros(p, dtype=int)
        while span < p:
            n_rounds += min(radix - 1, -(-p // span) - 1)
            times += np.arange(p) // span % radix > 0
            span *= radix
        bruck = {"name": "bruck", "radix": radix}
        found = metrics("alltoall", bruck, p, count=3)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (n_rounds, 3 * times.sum())
        if p > 32:
            continue
        counts = rng.integers(1, 9, (p, p))
        spec = with_counts(make_spec("alltoall", bruck, p, datatype="int8", count=1), counts)
        plan = compile_plan(spec)
        assert measure(plan).n_rounds == n_rounds
        far = (np.arange(p) - np.arange(p)[:, None]) % p
        assert plan.elements[plan.op == Op.SEND].sum() == (counts * times[far]).sum()


@pytest.mark.many
@looped("p", SIZES)
def test_vectors_are_exchanged_once_per_other_rank_of_a_factor(p):
    for radix in (2, 4, 7, 64):
        chosen = {"name": "recursive_multiplying", "radix": radix}
        found = greatest_product(p, radix)
        n_rounds, is_folded = sum(found) - len(found), math.prod(found) < p
        for count in (5, 3):
            counted = metrics("allreduce", chosen, p, count=count)
            assert counted.n_rounds == n_rounds + 2 * is_folded
            assert counted.bytes_sent_per_rank == (n_rounds + is_folded) * count


@looped("p", SIZES)
def test_signals_take_a_round_per_digit_of_the_radix(p):
    for radix in (2, 3, 8, 64):
        n_rounds = sum(min(radix - 1, -(-p // radix**k) - 1) for k in range(6) if radix**k < p)
        counted = metrics("barrier", {"name": "dissemination", "radix": radix}, p, count=None)
        assert (counted.n_rounds, counted.bytes_sent_per_rank) == (n_rounds, 0)


@pytest.mark.many
@looped("p", SIZES)
@pytest.mark.long
def test_blocks_that_spread_by_hops_take_as_many_rounds_as_their_trees(p):
    log = ceil_log2(p)
    half = max(1, (1 << log) // 2)
    wanted = {"sparbit": log}
    for asked in (1, 2, 7, 8, 64):
        together = 1 << (min(asked, half).bit_length() - 1)
        rounds = together.bit_length() - 1 + min((1 << log) // together, p) - 1
        wanted["pat", asked] = rounds
    for key, n_rounds in wanted.items():
        chosen = key if key == "sparbit" else {"name": key[0], "aggregation": key[1]}
        for kind, count in (("allgather", 5), ("reduce_scatter_block", 1)):
            found = metrics(kind, chosen, p, count=count)
            assert found.n_rounds == n_rounds, (kind, key)
            assert found.bytes_sent_per_rank == (p - 1) * count


@pytest.mark.many
@looped("p", SIZES)
def test_bine_trees_and_butterflies_take_the_fewest_rounds(p):
    log = ceil_log2(p)
    for count in (p, 5 * p):
        wanted = {
            "bcast": (log, log * count),
            "reduce": (log, (p > 1) * count),
            "gather": (log, p // 2 * count),
            "scatter": (log, (p - 1) * count),
        }
        if p % 2 == 0 or p == 1:
            wanted |= {
                "allgather": (log, (p - 1) * count),
                "reduce_scatter_block": (log, (p - 1) * count),
                "allreduce": (2 * log, 2 * (p - 1) * count // p),
                "alltoall": (log, sum(map(len, ways(p))) * count),
            }
        for kind, rounds_and_bytes in wanted.items():
            if kind == "alltoall" and p > 32:
                continue
            found = metrics(kind, "bine", p, count=count)
            assert (found.n_rounds, found.bytes_sent_per_rank) == rounds_and_bytes, kind


@pytest.mark.many
@pytest.mark.long
@pytest.mark.parametrize("machine", [
    {"ranks_per_node": 7},
    {"nodes": 4, "ranks_per_node": 2, "lanes": 2},
    {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2},
    {"nodes": 3, "ranks_per_node": [5, 5, 2], "lanes": 3},
    {"nodes": 2, "ranks_per_node": [1, 6], "lanes": 4},
    {"nodes": 2, "ranks_per_node": 4, "rank_order": "cyclic", "lanes": 2},
    {"nodes": 3, "ranks_per_node": [4, 1, 2], "rank_order": "cyclic", "lanes": 2},
])  # fmt: skip
def test_no_plan_beats_a_bound(machine):
    for kind in registry.kinds():
        n_ranks = make_spec(kind, "auto", 0, machine, count=1).machine.n_ranks
        for algorithm in registry.legal(kind, n_ranks, commutative=True):
            for root in (0, n_ranks - 1) if COLLECTIVES[kind].is_rooted else (0,):
                counted = metrics(kind, algorithm.name, 0, count=24, root=root, machine=machine)
                busiest = max(counted.bytes_sent_per_lane, counted.bytes_received_per_lane)
                assert counted.lane_bytes == busiest
                bounds = counted.bounds.to_json()
                assert bounds.pop("argument")
                assert bounds.pop("time_s") == pytest.approx(bounds["lane_bytes"] * 0.08e-9)
                for name, bound in bounds.items():
                    assert getattr(counted, name) >= bound, (kind, algorithm.name, name)


def test_nodes_and_lanes_are_counted_apart():
    machine = {"nodes": 2, "ranks_per_node": 4, "lanes": 2}
    counted = metrics("alltoall", "linear", 8, count=3, machine=machine)
    assert counted.bytes_sent_per_rank == 7 * 3
    assert counted.bytes_sent_per_node == counted.bytes_received_per_node == 4 * 4 * 3
    assert counted.bytes_sent_per_lane == counted.bytes_received_per_lane == 4 * 4 * 3 // 2
    assert counted.queue_pairs_per_node == counted.posted_sends_per_node == 16
    assert counted.n_messages == 8 * 7


def test_scratch_is_what_the_plan_allocates():
    counted = metrics("reduce", "linear", 8)
    assert counted.scratch_bytes_per_rank == 2 * C, "two landing slots, however many ranks"
    assert metrics("allreduce", "ring", 8).scratch_bytes_per_rank == 0


def test_nothing_to_move_has_no_bound():
    for kind in ("bcast", "allreduce", "alltoall"):
        counted = metrics(kind, "auto", 5, count=0)
        assert counted.n_rounds == counted.bounds.n_rounds == 0
        assert counted.bounds.lane_bytes == counted.bounds.time_s == 0
        assert counted.bounds.argument == "nothing has to move"
