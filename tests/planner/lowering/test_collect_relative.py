"""Steps of a few positions, relative to them, against those that all positions' rounds have."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.algorithms import registry
from collplan.planner.algorithms.registry import KINDS, Algorithm
from collplan.planner.algorithms.rounds import Group
from collplan.planner.lowering.collect import Collected, collect
from collplan.planner.lowering.collect_relative import motions, place_steps, relative_steps
from collplan.specs.collectives.collective import traits_of
from looping import looped

SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16)
RELATIVE = {
    "allgather/bine", "allgather/bruck", "allgather/pat", "allgather/sparbit",
    "allgather/circulant", "allgather/linear", "allgather/neighbor_exchange", "allgather/ring",
    "allreduce/bine", "allreduce/census", "allreduce/circulant", "allreduce/recursive_doubling",
    "allreduce/ring", "allreduce/swing",
    "alltoall/bine", "alltoall/linear", "alltoall/pairwise",
    "barrier/dissemination", "barrier/recursive_doubling",
    "reduce_scatter_block/bine", "reduce_scatter_block/bruck",
    "reduce_scatter_block/circulant", "reduce_scatter_block/ring",
    "reduce_scatter_block/pat", "reduce_scatter_block/sparbit",
}  # fmt: skip
"""Algorithms whose positions are all alike, or all even ones and all odd ones, among others."""
ALGORITHMS = [algorithm for kind in KINDS for algorithm in registry.of(kind)]


def group_of(algorithm: Algorithm, size: int) -> Group:
    options = dict(algorithm.options or {})
    for name, value in {"blocks": 3, "ranks_per_node": 1}.items():
        if name in options:
            options[name] = value
    n_chunks, traits = algorithm.n_parts(size, options), traits_of(algorithm.kind)
    if traits.has_blocks:
        n_chunks *= size
    me = np.arange(size)
    edges = (me, (me + 1) % size) if traits.has_edges else None
    return Group(size, 0, True, np.full((1, n_chunks), 4), options, edges=edges)


def kept_sets(size: int) -> list[list[int]]:
    return [[0], [size - 1], [0, 1], list(range(size // 2, size)), list(range(size))]


def assert_same(one: Collected, other: Collected) -> None:
    assert (one.n_rounds, one.sends) == (other.n_rounds, other.sends)
    for own, others in zip(one.tables, other.tables, strict=True):
        assert own.n == others.n
        for name in own.columns:
            assert own.columns[name].array().tolist() == others.columns[name].array().tolist(), name
        for name, runs in own.runs.items():
            for column, other in zip(runs.arrays(), others.runs[name].arrays(), strict=True):
                assert column.tolist() == other.tolist(), name


@pytest.mark.many
@looped("algorithm", ALGORITHMS)
@pytest.mark.long
def test_the_rows_are_those_of_the_rounds_of_all_positions(algorithm: Algorithm) -> None:
    found = 0
    for size in SIZES:
        if algorithm.refusal(size, True, True) is not None:
            continue
        for motion in motions(size):
            for kept in kept_sets(size):
                group = group_of(algorithm, size)
                group.motion = motion
                made = relative_steps(algorithm, group)
                if made is None:
                    continue
                own = place_steps(made[0], motion, np.unique(kept))
                found += 1
                shown = np.isin(np.arange(size), kept)
                assert_same(own, collect(algorithm.steps(group_of(algorithm, size)), shown))
    assert found or f"{algorithm.kind}/{algorithm.name}" not in RELATIVE


@looped("algorithm", ALGORITHMS)
def test_settled_steps_are_the_same(algorithm: Algorithm) -> None:
    """Runs of chunks come by step, those of one step together."""
    for size in (1, 4, 8):
        if algorithm.refusal(size, True, True) is None:
            grown, settled = (collect(algorithm.steps(group_of(algorithm, size))) for _ in "12")
            for steps in settled.tables:
                steps.settle()
            assert_same(settled, grown)
            for steps in settled.tables:
                for runs in steps.runs.values():
                    owner = runs.columns["owner"].array()
                    assert (np.diff(owner) >= 0).all()
