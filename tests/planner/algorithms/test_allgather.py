"""Rounds, bytes and messages of allgathers with a radix, and of those that go by nodes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms.building_blocks.factors import mixed_factors
from collplan.planner.errors import AlgorithmError
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import Op
from looping import SIZES, looped
from oracle import make_spec
from schedules import counted

RADIXES = (2, 3, 4, 7, 100)


@pytest.mark.many
@looped("p", SIZES)
@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter_block"])
def test_runs_grow_by_the_radix(kind: str, p: int) -> None:
    for radix in RADIXES:
        n_rounds = sum(min(radix - 1, -(-p // radix**k) - 1) for k in range(6) if radix**k < p)
        found = counted(kind, "bruck", p, 3, radix=radix)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (n_rounds, 3 * (p - 1))


@pytest.mark.many
@looped("p", SIZES)
@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter_block"])
def test_groups_of_every_factor_exchange_all_they_have(kind: str, p: int) -> None:
    for radix in RADIXES:
        n_rounds = sum(factor - 1 for factor in mixed_factors(p, radix))
        found = counted(kind, "recursive_multiplying", p, 3, radix=radix)
        assert (found.n_rounds, found.bytes_sent_per_rank) == (n_rounds, 3 * (p - 1))


def test_radix_2_exchanges_the_runs_of_recursive_doubling() -> None:
    chosen = {"name": "recursive_multiplying", "radix": 2}
    one, other = (
        compile_plan(make_spec("allgather", algorithms, 16, count=3))
        for algorithms in (chosen, "recursive_doubling")
    )
    for column in ("rank", "peer", "elements", "round"):
        assert np.array_equal(getattr(one, column), getattr(other, column))


@looped("per_node", range(1, 7))
@looped("n_nodes", [1, 2, 3, 4, 6, 9])
def test_nodes_are_reached_in_the_fewest_messages(n_nodes: int, per_node: int) -> None:
    """Of both radixes: as many as a node has ranks, as published, and one more."""
    machine = {"nodes": n_nodes, "ranks_per_node": per_node}
    for radix in {max(2, per_node), per_node + 1}:
        chosen = {"name": "locality_bruck", "radix": radix}
        spec = make_spec("allgather", chosen, 0, machine, count=3, datatype="int8")
        plan = compile_plan(spec)
        sends = np.flatnonzero(plan.op == Op.SEND)
        node = np.arange(n_nodes * per_node) // per_node
        far = sends[node[plan.rank[sends]] != node[plan.peer[sends]]]
        held = list(itertools.takewhile(lambda h: h < n_nodes, (radix**k for k in range(9))))
        most = int(np.bincount(plan.rank[far], minlength=1).max())
        assert most <= len(held)
        blocks = np.bincount(plan.rank[far], plan.elements[far], minlength=1).max() / 3
        wanted = [sum(min(h, n_nodes - j * h) for h in held if j * h < n_nodes)
                  for j in range(1, radix)]  # fmt: skip
        assert blocks == per_node * max(wanted)
        inside = (per_node - 1).bit_length()
        assert measure(plan).n_rounds <= inside * (len(held) + 1) + len(held)


def test_runs_of_ranks_that_share_a_node_come_from_the_machine() -> None:
    for machine, same in (
        ({"nodes": 3, "ranks_per_node": 4}, {"ranks_per_node": 4}),
        ({"nodes": 3, "ranks_per_node": [2, 4, 2]}, {"ranks_per_node": 2}),
        ({"nodes": 3, "ranks_per_node": 2, "rank_order": "cyclic"}, {"ranks_per_node": 1}),
    ):
        one, other = (
            compile_plan(make_spec("allgather", {"name": "locality_bruck", **options}, 0, machine,
                                   count=2))
            for options in ({}, same)
        )  # fmt: skip
        for column in ("rank", "peer", "elements", "round"):
            assert np.array_equal(getattr(one, column), getattr(other, column))


def test_ranks_that_are_no_whole_nodes_are_refused() -> None:
    chosen = {"name": "locality_bruck", "ranks_per_node": 3}
    with pytest.raises(
        AlgorithmError,
        match=r"^algorithms\.ranks_per_node: 8 ranks are not nodes of 3; leave it out, or give a "
        "number that divides them$",
    ):
        compile_plan(make_spec("allgather", chosen, 8, count=2))
