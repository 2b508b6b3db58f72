"""Trees of switches in Slurm's ``topology.conf``, and the places of their hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collplan.specs import load_spec
from collplan.specs.errors import SpecError
from collplan.specs.loading import load_machine
from collplan.specs.topology.conf import first_hosts, read_switches

CONF = """
# A cluster
SwitchName=leaf0 Nodes=node[001-004] LinkSpeed=100
switchname = leaf1 \\
  nodes = node[005-006],fat1
SwitchName=spine Switches=leaf[0-1]
"""
THREE_LEVELS = """
SwitchName=leaf0 Nodes=n[00-01]
SwitchName=leaf1 Nodes=n02
SwitchName=leaf2 Nodes=n[04-05]
SwitchName=top Switches=agg[0-1]
SwitchName=agg0 Switches=leaf[0,2]
SwitchName=agg1 Switches=leaf1
"""


def read(folder: Path, text: str) -> dict[str, object]:
    path = folder / "topology.conf"
    path.write_text(text)
    return read_switches(path)


def machine_of(folder: Path, topology: str, nodes: int, names: str) -> Path:
    path = folder / "machine.yaml"
    placement = f'{{nodelist: "{names}", topology_conf: topology.conf}}'
    path.write_text(f"nodes: {nodes}\nnetwork: {{topology: {topology}}}\nplacement: {placement}\n")
    return path


def test_a_topology_yaml_has_the_same_switches(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    tree = """
- topology: other
  flat: true
- topology: all
  cluster_default: true
  tree:
    switches:
      - {switch: top, children: "agg[0-1]"}
      - {switch: leaf0, nodes: "n[00-01]"}
      - {switch: leaf1, nodes: n02}
      - {switch: leaf2, nodes: "n[04-05]"}
      - {switch: agg0, children: "leaf[0,2]"}
      - {switch: agg1, children: leaf1}
"""
    path.write_text(tree)
    assert read_switches(path) == read(tmp_path, THREE_LEVELS)
    blocks = """
- topology: racks
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b1, nodes: "n[01-02]"}
      - {block: b0, nodes: "n[03-04]"}
"""
    path.write_text(blocks)
    assert read_switches(path) == {"switches": ["n[01-02]", "n[03-04]"], "upper_switches": []}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tree: 3", "is not a list of topologies"),
        ("- {topology: a, flat: true}", "has no switch or block with nodes"),
        ("- {topology: a, tree: {switches: [{nodes: n1}]}}", "has no name; give it a switch"),
        ("- {topology: a, tree: {switches: [{switch: s}]}}", "'s' has no nodes or children"),
        ("- {topology: a, tree: {switches: [{switch: s, nodes: n1}, {switch: s, nodes: n2}]}}",
         "'s' is defined twice"),
        ("- {topology: a, tree: {switches: [{switch: s, nodes: n1}, {switch: t, children: x}]}}",
         "'t' has the switch 'x' below it"),
        ("- {topology: a, tree: {switches: [{switch: s, nodes: n1}, {switch: t, children: '['}]}}",
         "'t' has children: "),
    ],
)  # fmt: skip
def test_bad_topology_yaml(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=re.escape(problem)) as raised:
        read_switches(path)
    assert "\n" not in str(raised.value)


def test_hosts_have_the_places_of_their_switches(tmp_path: Path) -> None:
    assert read(tmp_path, CONF) == {
        "switches": ["node[001-004]", "node[005-006],fat1"],
        "upper_switches": [],
    }
    tree = "{kind: fat_tree, down: [4, 2]}"
    machine = machine_of(tmp_path, tree, 3, "node[003,005],fat1")
    assert load_machine(str(machine)).node_to_host == (2, 4, 6)
    (tmp_path / "spec.yaml").write_text("machine: machine.yaml\ncollective: {kind: barrier}")
    assert load_spec(tmp_path / "spec.yaml").machine.node_to_host == (2, 4, 6)


@pytest.mark.parametrize(
    ("topology", "hosts"),
    [
        ("{kind: fat_tree, down: [2, 2, 2]}", (0, 1, 2, 3, 4)),
        ("{kind: fat_tree, down: [2, 4, 2]}", (0, 1, 2, 3, 8)),
        ("{kind: fat_tree, down: [3, 2, 2, 5]}", (0, 1, 3, 4, 6)),
        ("{kind: fat_tree, down: [2, 3]}", (0, 1, 2, 3, 4)),
        ("{kind: dragonfly, groups: 3, routers: 4, hosts: 2}", (0, 1, 2, 3, 8)),
        ("{kind: torus, dimensions: [5]}", (0, 1, 2, 3, 4)),
    ],
)
def test_switches_below_one_switch_are_in_one_group(
    topology: str, hosts: tuple[int, ...], tmp_path: Path
) -> None:
    assert read(tmp_path, THREE_LEVELS) == {
        "switches": ["n[00-01]", "n[04-05]", "n02"],
        "upper_switches": [(2, 1)],
    }
    machine = machine_of(tmp_path, topology, 5, "n[00-01,04-05,02]")
    assert load_machine(str(machine)).node_to_host == hosts


def test_roots_above_all_switches_count_as_one(tmp_path: Path) -> None:
    roots = "SwitchName=r0 Switches=agg[0-1]\nSwitchName=r1 Switches=agg[0-1]\n"
    text = THREE_LEVELS.replace("SwitchName=top Switches=agg[0-1]\n", roots)
    assert read(tmp_path, text) == read(tmp_path, THREE_LEVELS)
    above = text + "SwitchName=core Switches=r[0-1]\n"
    assert read(tmp_path, above) == read(tmp_path, THREE_LEVELS) | {
        "upper_switches": [(2, 1), (2,)]
    }
    several = "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\nSwitchName=c Switches=b\n"
    several += "SwitchName=d Switches=a\n"
    assert read(tmp_path, several) == {"switches": ["n2", "n1"], "upper_switches": [(1, 1)]}


def test_a_switch_below_no_other_is_a_group_by_itself(tmp_path: Path) -> None:
    text = THREE_LEVELS + "SwitchName=alone Nodes=n[08-09]\n"
    assert read(tmp_path, text) == {
        "switches": ["n[00-01]", "n[04-05]", "n02", "n[08-09]"],
        "upper_switches": [(2, 1, 1), (2, 1)],
    }
    machine = machine_of(tmp_path, "{kind: fat_tree, down: [2, 2, 2, 2]}", 2, "n02,n08")
    assert load_machine(str(machine)).node_to_host == (4, 8)
    two = "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\nSwitchName=c Switches=a\n"
    assert read(tmp_path, two) == {"switches": ["n1", "n2"], "upper_switches": [(1, 1)]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SwitchName=spine Switches=leaf[0-1]", "has no line with SwitchName and Nodes"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=x", "'b' has the switch 'x' below it"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "'a' is defined twice"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=[", "'b' has a list Switches: '['"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=b", "'b' has itself or a switch without"),
        (
            THREE_LEVELS.replace("agg[0-1]", "agg[0-1],leaf0"),
            "'top' is above switches of other levels than 2",
        ),
        (
            THREE_LEVELS.replace("Switches=leaf1", "Switches=leaf[0-1]"),
            "'agg1' and another switch have 'leaf0' below them",
        ),
    ],
)
def test_what_is_no_tree_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=re.escape(problem)):
        read(tmp_path, text)


def test_switches_that_do_not_fit_the_topology_are_refused(tmp_path: Path) -> None:
    read(tmp_path, THREE_LEVELS)
    machine = machine_of(tmp_path, "{kind: fat_tree, down: [2, 1, 4]}", 1, "n00")
    words = "a switch of level 2 has 2 switches below it, those of the topology have 1; make"
    with pytest.raises(SpecError, match=words):
        load_machine(str(machine))
    with pytest.raises(ValueError, match=r"upper_switches\[1\] counts 3 switches, there are 2"):
        first_hosts(3, [[2, 1], [3]], [2, 4, 8])


def test_long_words_take_no_time_in_square(tmp_path: Path) -> None:
    """It took hours for so long a word."""
    with pytest.raises(SpecError, match="has no line with SwitchName"):
        read(tmp_path, "a" * 1_000_000 + "\n" + "b " * 500_000)
