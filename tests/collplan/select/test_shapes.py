"""Shapes of decompositions: numbers of leaders, levels of a network, balanced shares, meshes."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.select.shapes import (
    balanced_shapes,
    leader_numbers,
    leaders_on_all_lanes,
    mesh_shapes,
    network_shapes,
    through_leaders,
)
from collplan.specs import Machine
from comparing import spec_of


def machine(nodes: int, per_node: int = 1, **fields: Any) -> Machine:
    return Machine.model_validate({"nodes": nodes, "ranks_per_node": per_node, **fields})


@pytest.mark.quick
@pytest.mark.parametrize(
    ("lanes", "fullest", "expected"),
    [(1, 8, [2, 4]), (2, 8, [2, 4]), (3, 8, [2, 3, 4, 6]), (2, 5, [2, 4]), (2, 2, []), (1, 1, [])],
)
def test_numbers_of_leaders_share_out_the_node_or_the_lanes(
    lanes: int, fullest: int, expected: list[int]
) -> None:
    assert leader_numbers(lanes, fullest) == expected


def test_leaders_on_all_lanes_follow_their_rates() -> None:
    same = leaders_on_all_lanes(machine(2, 8, lanes=2))
    unlike = leaders_on_all_lanes(machine(2, 8, lanes=["100Gbit", "50Gbit"]))
    assert [shape["leaders"] for shape in same] == [2, 4]
    assert [shape["leaders"] for shape in unlike] == [2, 3, 6]
    assert leaders_on_all_lanes(machine(2, 8)) == []


def test_balanced_shares_are_for_lanes_that_would_carry_different_loads() -> None:
    even, uneven = ({"nodes": 2, "ranks_per_node": n, "lanes": 2} for n in (4, 5))
    assert balanced_shapes(spec_of("allreduce", even)) == []
    found = balanced_shapes(spec_of("allreduce", uneven))
    assert [shape.get("leaders") for shape in found] == [None, 2, 4]
    assert {shape["shares"] for shape in found} == {"balanced"}
    many = {"nodes": 60, "ranks_per_node": 5, "lanes": 2}
    assert balanced_shapes(spec_of("alltoall", many)) == []  # too many pairs to cut


@pytest.mark.quick
@pytest.mark.parametrize(
    ("nodes", "per_node", "expected"),
    [
        (4, 4, [(4, 4), (4, 2, 2), (2, 2, 4), (2, 4, 2)]),
        (36, 32, [(36, 32), (32, 36), (36, 8, 4), (6, 6, 32), (9, 16, 8)]),
        (3, 5, [(3, 5), (5, 3)]),
        (1, 6, [(3, 2)]),
        (7, 1, []),
    ],
)
def test_meshes_hold_all_ranks(nodes: int, per_node: int, expected: list[tuple[int, ...]]) -> None:
    spec = spec_of("allreduce", {"nodes": nodes, "ranks_per_node": per_node})
    assert mesh_shapes(spec) == expected


def test_levels_of_a_network_nest_down_to_the_nodes() -> None:
    dragonfly = {"kind": "dragonfly", "groups": 4, "routers": 2, "hosts": 2}
    shapes = network_shapes(machine(16, 2, network={"topology": dragonfly}))
    found = [shape for shape in shapes if shape["name"] == "full_lane"]
    node = {"name": "full_lane", "by": "node"}
    switch = {"name": "full_lane", "by": "switch", "node": node}
    assert found == [
        {"name": "full_lane", "by": "switch"},
        switch,
        {"name": "full_lane", "by": "group"},
        {"name": "full_lane", "by": "group", "node": switch},
    ]


def test_levels_with_the_places_of_another_are_left_out() -> None:
    tree = {"kind": "fat_tree", "down": [4, 4]}  # a group for each switch
    shapes = network_shapes(machine(16, network={"topology": tree}))
    assert [(shape["name"], shape["by"]) for shape in shapes] == [
        ("hierarchical", "group"),
        ("full_lane", "group"),
    ]
    assert network_shapes(machine(16)) == []


def test_decompositions_through_leaders_have_all_forms_of_the_kind() -> None:
    spec = spec_of("scan", {"nodes": 2, "ranks_per_node": 4, "numa_domains": 2})
    found = [(one.name, one.by, one.form) for one in through_leaders(spec)]
    places = [
        ("hierarchical", "node"),
        ("full_lane", "node"),
        ("multi_leader", "node"),
        ("hierarchical", "numa"),
        ("full_lane", "numa"),
    ]
    assert found == [(*place, form) for form in (None, "transpose") for place in places]
