"""Choices over topologies: auto simulates, and comparisons prune nothing that might win."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.executors.cost.simulator import simulate
from collplan.planner.compiler.compile import compile_plan
from collplan.select.auto import resolve
from collplan.select.comparison import compare
from collplan.select.estimate import estimate
from collplan.select.search import search
from collplan.specs import PlanSpec, parse_spec

TREE: dict[str, Any] = {
    "kind": "fat_tree",
    "down": [4, 4],
    "oversubscription": 4,
    "bandwidth": "100Gbit",
}
AT_ONCE = {"g_ns": 0, "G_ns_per_byte": 0}
"""Lanes that take no time, so that messages share all links of their routes."""


def spec(count: int, **network: Any) -> PlanSpec:
    machine = {"nodes": 16, "network": network}
    collective = {"kind": "allreduce", "count": count, "datatype": "int32", "op": "sum"}
    return parse_spec({"machine": machine, "collective": collective, "decomposition": "auto"})


def makespan(chosen: PlanSpec) -> float:
    return simulate(compile_plan(chosen)).makespan_s


@pytest.mark.long
@pytest.mark.parametrize("count", [16, 65536])
def test_auto_takes_the_best_of_what_it_simulates(count: int) -> None:
    wanted = spec(count, topology=TREE)
    times = [makespan(one.spec) for one in search(wanted) if one.is_simulated]
    assert makespan(resolve(wanted)) == min(times)


@pytest.mark.usefixtures("priced_once")
@pytest.mark.parametrize("network", [{}, AT_ONCE], ids=["lanes", "at once"])
@pytest.mark.long
def test_comparisons_prune_no_winner(network: dict[str, Any]) -> None:
    wanted = spec(65536, topology=TREE, network=network)
    everything = compare([wanted], prune=False)
    pruned = compare([wanted])
    best = min(everything.makespans.values())
    assert min(pruned.makespans.values()) == best


def test_bounds_hold_over_topologies() -> None:
    for network in ({}, AT_ONCE):
        wanted = spec(65536, topology=TREE, network=network)
        flat = wanted.replace(decomposition="flat", algorithms="ring")
        (found,) = estimate(flat)
        assert found.bound_s > 0
        assert found.bound_s <= makespan(flat)
