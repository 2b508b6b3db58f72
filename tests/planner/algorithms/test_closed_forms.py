"""Closed forms against the simulator: they put algorithms in about the same order."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.api.compiling import compile_spec
from collplan.executors.cost import simulate
from collplan.planner.algorithms import registry
from collplan.planner.algorithms.closed_forms import (
    Traffic,
    best_blocks,
    blocks_ns,
    owners_ns,
    ring_ns,
    straight_ns,
)
from collplan.planner.decompose import draft
from collplan.planner.lowering.traffic import traffic_of
from collplan.specs import Network, PlanSpec, parse_spec
from looping import looped

REGRET = 3.5
"""Most that the algorithm with the least closed form takes, in times of the best."""
MACHINE = {"preset": "hydra", "nodes": 3, "ranks_per_node": [6, 4, 6]}


def spec_of(kind: str, distribution: str, total: int, algorithm: str = "auto") -> PlanSpec:
    counts = {"distribution": distribution, "total": total, "seed": 3}
    collective = {"kind": kind, "counts": counts, "datatype": "int32"}
    document = {"machine": MACHINE, "collective": collective, "algorithms": algorithm}
    return parse_spec(document)


@looped("total", [256, 1 << 13, 1 << 18])
@looped("distribution", ["uniform", "spike", "sparse"])
@pytest.mark.parametrize("kind", ["allgatherv", "reduce_scatter", "alltoallv"])
def test_the_least_closed_form_is_near_the_best(kind: str, distribution: str, total: int) -> None:
    stated = [one for one in registry.of(spec_of(kind, distribution, total).collective.planned_kind)
              if one.unlike_ns is not None]  # fmt: skip
    assert len(stated) > 1
    times = {
        one.name: simulate(compile_spec(spec_of(kind, distribution, total, one.name))).makespan_s
        for one in stated
    }
    (phase,) = compile_spec(spec_of(kind, distribution, total)).phases
    assert phase.algorithm in times
    assert times[phase.algorithm] <= REGRET * min(times.values())


def test_more_bytes_take_more_blocks_up_to_a_limit() -> None:
    network = Network()
    found = []
    for n_bytes in (0, 10_000, 1_000_000, 10**9):
        counts = np.zeros(12, dtype=np.int64)
        counts[3] = n_bytes
        traffic = Traffic(counts, np.arange(12), network.node, network.network)
        found.append(best_blocks(traffic, 3))
        assert n_bytes < 10_000 or blocks_ns(traffic) < ring_ns(traffic)
    assert found[0] == 1
    assert found == sorted(found)
    assert found[-1] == 16 * 3


def test_traffic_is_that_of_the_group_with_the_most_bytes() -> None:
    spec = spec_of("allgatherv", "linear", 1000).replace(decomposition={"name": "full_lane"})
    lanes = [one for one in draft(spec).components if one.role == "lane"]
    traffic = traffic_of(lanes[0], spec.machine, 4)
    assert traffic.size in (2, 3)
    assert traffic.crowd == pytest.approx(6 / 2)
    starts = lanes[0].groups.indptr[:-1]
    assert traffic.total == 4 * int(np.add.reduceat(lanes[0].given.totals, starts).max())


@looped("seed", range(20))
def test_blocks_for_owners_take_as_long_as_the_same_blocks_for_each_pair(seed: int) -> None:
    rng, network = np.random.default_rng(seed), Network()
    size = int(rng.integers(1, 12))
    n_bytes, node = rng.integers(0, 4, size) * 1000, np.sort(rng.integers(0, 4, size))
    links = {"near": network.node, "far": network.network}
    for_owners = Traffic(n_bytes, node, **links)
    for_pairs = Traffic(np.broadcast_to(n_bytes, (size, size)), node, **links)
    assert owners_ns(for_owners) == pytest.approx(straight_ns(for_pairs), rel=1e-12)
