"""Choices over topologies: auto simulates, and comparisons prune nothing that might win."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.executors.cost.simulator import simulate
from collplan.planner.compiler import compile_plan
from collplan.select.auto import SIMULATED, candidates, resolve
from collplan.select.comparison import compare
from collplan.select.estimate import estimate
from collplan.specs import PlanSpec, parse_spec

TREE: dict[str, Any] = {"kind": "fat_tree", "down": [4, 4], "oversubscription": 4}


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
    times = [makespan(one.spec) for one in candidates(wanted)[:SIMULATED]]
    assert makespan(resolve(wanted)) == min(times)


@pytest.mark.usefixtures("priced_once")
@pytest.mark.parametrize("contention", ["hybrid", "fluid"])
@pytest.mark.long
def test_comparisons_prune_no_winner(contention: str) -> None:
    wanted = spec(65536, topology=TREE, contention=contention)
    everything = compare([wanted], prune=False)
    pruned = compare([wanted])
    best = min(everything.makespans.values())
    assert min(pruned.makespans.values()) == best


def test_bounds_hold_with_lanes_in_order_only() -> None:
    for contention in ("hybrid", "fluid"):
        wanted = spec(65536, topology=TREE, contention=contention)
        flat = wanted.replace(decomposition="flat", algorithms="ring")
        (found,) = estimate(flat)
        assert (found.bound_s > 0) == (contention == "hybrid")
        assert found.bound_s <= makespan(flat)
