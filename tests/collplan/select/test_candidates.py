"""Candidates: every family, and the forms that a machine has a use for."""

from __future__ import annotations

from typing import Any

import pytest

import collplan.select.candidates as candidates_module
from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.select.candidates import (
    FAMILIES,
    all_forms,
    name_of,
)
from collplan.select.comparison import compare
from collplan.select.estimate import estimate
from collplan.specs import PlanSpec
from comparing import MACHINES, spec_of

TORUS = {"kind": "torus", "dimensions": [2, 2]}


def test_candidates_are_of_every_family() -> None:
    spec = spec_of("allreduce", MACHINES["lanes"])
    forms = all_forms(spec)
    assert {form.method.decomposition.name for form in forms} == set(FAMILIES)
    assert len({form.name for form in forms}) == len(forms)
    shapes = {form.method.decomposition.shape for form in forms} - {None}
    assert {len(shape) for shape in shapes if shape} == {2, 3}
    names = {form.name for form in forms}
    assert {"ring", "hierarchical", "multi_leader 2", "full_lane lane=ring"} <= names
    assert "scan" not in names
    assert "full_lane transpose" in {f.name for f in all_forms(spec_of("scan", MACHINES["lanes"]))}
    reduces = spec_of("reduce", MACHINES["lanes"])
    assert "full_lane gather" in {form.name for form in all_forms(reduces)}


def test_algorithms_of_many_messages_are_known() -> None:
    def n_messages(kind: str, name: str, p: int) -> int:
        plan = compile_plan(spec_of(kind, {"nodes": p}, 64, algorithms=name), is_proved=False)
        return int((plan.op == 0).sum())

    for kind in registry.kinds():
        for one in registry.of(kind):
            if one.is_packed:
                continue  # Its messages depend on the topology.
            few, many = n_messages(kind, one.name, 16), n_messages(kind, one.name, 32)
            is_quadratic = many > 3.2 * few
            advice = f"{kind}/{one.name}: state per_pair exactly if its messages grow as p²"
            assert is_quadratic == (one.per_pair > 0), advice
            if is_quadratic:
                most = one.per_pair * 32 * 31
                assert most <= many <= 1.1 * most
                spec = spec_of(kind, {"nodes": 32}, 64, algorithms=one.name)
                assert estimate(spec, max_tasks=100)[0].n_tasks == 2 * most


@pytest.mark.quick
@pytest.mark.parametrize(
    "machine",
    [
        {"nodes": 5, "ranks_per_node": 4, "lanes": 2, "rank_order": "cyclic"},
        {"nodes": 3, "ranks_per_node": 8, "lanes": 4, "numa_domains": 2},
        {"nodes": 12},
        # There are fewer hosts than a mesh of three dimensions has nodes.
        {"nodes": 4, "ranks_per_node": 2, "network": {"topology": TORUS}},
    ],
)
@pytest.mark.parametrize("count", [0, 3])
def test_forms_of_alltoall_are_those_of_all_nodes(
    machine: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of("alltoall", machine, count)
    found = all_forms(spec)
    monkeypatch.setattr(candidates_module, "_on_few_nodes", lambda spec, chosen: (spec, chosen))
    assert found == all_forms(spec)


@pytest.mark.long
def test_shared_memory_is_tried_wherever_ranks_share_a_node() -> None:
    spec = spec_of("allreduce", MACHINES["lanes"], 60_000)
    comparison = compare([spec])
    names = comparison.specs.keys()
    assert {"ring shared", "full_lane shared", "full_lane lane=ring shared"} <= names
    assert "full_lane pipelined shared 16KiB" in names
    # The same by messages is another plan, which takes another time.
    name, size = "full_lane lane=ring", 240_000
    both = compare([spec], patterns=[name, f"{name} shared"]).makespans
    for one in (name, f"{name} shared"):
        time_s = simulate(compile_plan(comparison.specs[one])).makespan_s
        assert both.get((one, size), time_s) == time_s
    assert len(set(both.values())) == len(both)
    alone = compare([spec_of("allreduce", {"nodes": 4}, 60_000)], seconds=0)
    assert not any("shared" in name for name in alone.specs)
    said = compare(
        [PlanSpec.model_validate({**spec.model_dump(), "transport": "shared"})], seconds=0
    )
    assert not any("shared" in name for name in said.specs)


UNEVEN: dict[str, Any] = {"nodes": 3, "ranks_per_node": 5, "lanes": 3}


def balanced_in(machine: dict[str, Any], kind: str) -> set[str]:
    """Return the names of balanced decompositions."""
    spec = spec_of(kind, machine)
    names = {name_of(form.method.decomposition) for form in all_forms(spec)}
    return {name for name in names if "balanced" in name}


@pytest.mark.parametrize("kind", ["bcast", "allgather", "alltoall", "scan"])
def test_shares_are_balanced_where_lanes_would_carry_more_or_less(kind: str) -> None:
    plain = {"full_lane balanced", "multi_leader 3 balanced"}
    if kind == "scan":
        plain |= {"full_lane transpose balanced", "multi_leader 3 transpose balanced"}
    assert balanced_in(UNEVEN, kind) == plain
    for even in (UNEVEN | {"ranks_per_node": 6}, UNEVEN | {"lanes": 1}, UNEVEN | {"lanes": 7}):
        assert balanced_in(even, kind) == set()
    assert (
        balanced_in(UNEVEN | {"ranks_per_node": 6, "lanes": ["100Gbit", "100Gbit", "50Gbit"]}, kind)
        >= plain
    )


@pytest.mark.parametrize("kind", ["allgather", "bcast"])
def test_parts_between_nodes_are_packed_into_links_where_there_are_some(kind: str) -> None:
    ring: dict[str, Any] = {"topology": {"kind": "torus", "dimensions": [4]}}
    machine = {"nodes": 4, "ranks_per_node": 2}

    def packed(machine: dict[str, Any]) -> set[str]:
        return {f.name for f in all_forms(spec_of(kind, machine)) if "packed" in f.name}

    # A group of several ranks of a node would share the links of its node.
    assert packed(machine) == set()
    assert packed(machine | {"network": ring}) == {
        "full_lane lane=packed",
        "hierarchical lane=packed",
    }
    assert "packed" in packed({"nodes": 4, "network": ring})


def test_leaders_are_as_many_on_every_lane() -> None:
    def leaders(machine: dict[str, Any]) -> set[int | None]:
        chosen = [form.method.decomposition for form in all_forms(spec_of("bcast", machine))]
        return {one.leaders for one in chosen if one.shares == "equal"} - {None}

    assert leaders({"nodes": 2, "ranks_per_node": 7, "lanes": 2}) == {2, 6}
    assert leaders({"nodes": 2, "ranks_per_node": 13, "lanes": 2}) == {2, 4, 12}
    assert leaders({"nodes": 2, "ranks_per_node": [3, 11], "lanes": 3}) == {3, 9}
    assert leaders({"nodes": 2, "ranks_per_node": 8, "lanes": 2}) == {2, 4}
