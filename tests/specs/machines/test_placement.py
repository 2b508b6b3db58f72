"""The hosts that nodes are: lists, random choices, and Slurm's names."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pydantic import ValidationError

from collplan.specs import Machine

TREE = {"kind": "fat_tree", "down": [4, 4]}
NAMED = {
    "kind": "graph",
    "hosts": ["a1", "a2", "b1"],
    "links": [{"source": host, "target": "s"} for host in ("a1", "a2", "b1")],
}


def hosts(placement: Any, nodes: int = 4, topology: Any = TREE) -> tuple[int, ...] | None:
    fields = {"nodes": nodes, "network": {"topology": topology}, "placement": placement}
    machine = Machine.model_validate(fields)
    assert Machine.model_validate(machine.model_dump(mode="json")) == machine
    return machine.node_to_host


def test_ways_to_say_it() -> None:
    assert hosts(None) == (0, 1, 2, 3)
    assert hosts([3, 15, 0, 7]) == (3, 15, 0, 7)
    assert hosts(["b1", "a1"], 2, NAMED) == (2, 0)
    assert hosts({"nodelist": "a[1-2],b1"}, 3, NAMED) == (0, 1, 2)
    assert Machine(nodes=2).node_to_host is None


def test_names_of_switches() -> None:
    placement = {"nodelist": "n[02-04],m1", "switches": ["n[01-03]", "n04", "m[1-4]"]}
    assert hosts(placement) == (1, 2, 4, 8)
    torus = {"kind": "torus", "dimensions": [4, 4]}
    assert hosts({**placement, "switches": ["n[01-03]", "m1,n04"]}, 4, torus) == (1, 2, 4, 3)


def test_random_choices() -> None:
    for of in (None, 8):
        found = hosts({"random": 7, "of": of})
        assert found == tuple(sorted(random.Random(7).sample(range(of or 16), 4)))
        shuffled = hosts({"random": 7, "of": of, "shuffled": True})
        assert tuple(sorted(shuffled or ())) == found
    assert hosts({"random": 8}) != hosts({"random": 7})
    assert hosts({"random": 1}, 16) == tuple(range(16))


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ([0, 1], "placement: hosts names 2 hosts, nodes is 4"),
        ([0, 1, 2, 16], "placement: hosts names host 16, the topology has 16 hosts"),
        ([0, 1, 2, 2], "placement: hosts names host 2 twice"),
        ([0, 1, 2, "x"], "placement: hosts names host 'x', which the topology does not have"),
        ([0, 1, 2, -1], "-1 is not a host; give 0 to"),
        ({"random": 1, "of": 17}, "placement: of is 17, the topology has 16 hosts"),
        ({"random": 1, "of": 3}, "placement: 4 nodes of 3 hosts"),
        ({"nodelist": "n[1-4]"}, "nodelist has names, the topology's hosts have none"),
        (
            {"nodelist": "n[1-3],x", "switches": ["n[1-4]"]},
            "nodelist names host 'x', which the topology does not have",
        ),
        ({"nodelist": "n[1-", "switches": ["n1"]}, "nodelist is no list of hosts"),
        ({"nodelist": "n[1-4]", "switches": ["n[1-5]"]}, "switch 0 has 5 hosts, switches of"),
        (
            {"nodelist": "n[1-4]", "switches": ["n[1-4]", "a1", "a2", "a3", "a4"]},
            "switches have more hosts than the topology, which has 16",
        ),
        ({"of": 4}, "says no hosts; give a list of hosts"),
        ({"random": 1, "nodelist": "n1"}, "has random and nodelist; give a list of hosts"),
    ],
)
def test_mistakes(placement: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        hosts(placement)


def test_a_placement_needs_a_topology() -> None:
    with pytest.raises(ValidationError, match=r"placement needs hosts; give network\.topology"):
        Machine.model_validate({"nodes": 2, "placement": [0, 1]})
