"""Tests of the vertices at the ends of links."""

from __future__ import annotations

import pytest

from collplan.planner.packing.link_ends import link_ends
from collplan.planner.topology import fabric_of
from linked_machines import boxes, machine_on, torus


@pytest.mark.parametrize(("lanes", "n_vertices"), [("planes", 2 * 8), ("shared", 2 * 4 + 4)])
def test_lanes_have_their_own_hosts_and_share_switches_if_they_share_the_network(lanes, n_vertices):
    tree = {"kind": "fat_tree", "down": [2, 2], "bandwidth": "1GB/s", "lanes": lanes}
    fabric = fabric_of(machine_on(tree, lanes=2))
    ends = link_ends(fabric)
    assert ends.n_vertices == n_vertices
    assert len(set(ends.host.ravel())) == 8


@pytest.mark.quick
@pytest.mark.parametrize("machine", [torus(3, 3), torus(2, 5, wrap=False), boxes(2, 3)], ids=str)
def test_routes_lead_from_vertex_to_vertex(machine):
    fabric = fabric_of(machine)
    ends = link_ends(fabric)
    for one in range(machine.nodes):
        for other in range(machine.nodes):
            _, links = fabric.routes([one], [other])
            at = ends.host[0, one]
            for link in links:
                assert ends.tail[link] == at
                at = ends.head[link]
            assert at == ends.host[0, other]


def test_given_routes_state_no_ends():
    graph = {
        "kind": "graph", "hosts": 2, "links": [{"bandwidth": "1GB/s"}],
        "routes": [[None, [0]], [[0], None]],
    }  # fmt: skip
    assert link_ends(fabric_of(machine_on(graph))) is None
