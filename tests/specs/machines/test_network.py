"""Networks of the presets, whole and changed in part."""

import pytest
from pydantic import ValidationError

from collplan.emulate.cluster import Cluster
from collplan.emulate.machine import emulated_machine
from collplan.specs import Machine, Network, preset_names


@pytest.mark.parametrize(
    ("name", "nodes", "ranks_per_node", "lanes", "numa_domains"),
    [
        ("hydra", 36, 32, 2, 2),
        ("vsc3", 100, 16, 2, 2),
        ("knl64", 1, 64, 1, 1),
        ("skylake48", 1, 48, 1, 2),
        ("ohio-a", 16, 56, 1, 2),
        ("ohio-b", 16, 80, 1, 2),
        ("emulated", 4, 4, 2, 1),
        ("leonardo", 64, 4, 4, 1),
        ("lumi", 64, 8, 4, 4),
        ("marenostrum5", 64, 4, 4, 2),
        ("fugaku", 96, 4, 6, 4),
        ("fat-tree-2to1", 64, 1, 1, 1),
    ],
)
def test_presets_are_the_papers_machines(
    name: str, nodes: int, ranks_per_node: int, lanes: int, numa_domains: int
) -> None:
    machine = Machine.model_validate(name)
    shape = (machine.nodes, machine.ranks_per_node, machine.lanes, machine.numa_domains)
    assert shape == (nodes, ranks_per_node, lanes, numa_domains)
    assert name in preset_names()


def test_the_preset_of_an_emulated_cluster_is_what_emulation_says_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collplan.emulate.machine.n_cores", lambda: 2)
    cluster = Cluster(nodes=4, ranks_per_node=4, lanes=2, rate_bits_per_s=10**8)
    assert Machine.model_validate("emulated") == emulated_machine(cluster)


def test_preset_fields_can_be_changed_down_to_one_parameter() -> None:
    hydra = Machine.model_validate("hydra")
    changed = Machine.model_validate(
        {"preset": "hydra", "nodes": 4, "network": {"network": {"L_ns": 7}}}
    )
    assert changed.n_ranks == 128
    assert changed.network.network == hydra.network.network.replace(L_ns=7)
    assert changed.network.numa == hydra.network.numa


def test_unknown_preset_lists_the_valid_ones() -> None:
    with pytest.raises(ValidationError, match=r"did you mean 'hydra'.*vsc3"):
        Machine.model_validate("hydr")


@pytest.mark.parametrize(
    ("name", "kind", "n_hosts"),
    [
        ("leonardo", "dragonfly", 23 * 180),
        ("lumi", "dragonfly", 24 * 124),
        ("marenostrum5", "fat_tree", 7 * 160),
        ("fugaku", "torus", 24 * 23 * 24 * 12),
        ("fat-tree-2to1", "fat_tree", 1024),
    ],
)
def test_presets_have_topologies(name: str, kind: str, n_hosts: int) -> None:
    topology = Machine.model_validate(name).network.topology
    assert topology is not None
    assert (topology.kind, topology.n_hosts) == (kind, n_hosts)


def test_a_topology_is_changed_in_part_or_exchanged() -> None:
    change = {"preset": "lumi", "network": {"topology": {"routing": "valiant", "seed": 4}}}
    lumi = Machine.model_validate(change).network.topology
    assert (lumi.groups, lumi.routing, lumi.seed) == (24, "valiant", 4)
    torus = {"kind": "torus", "dimensions": [8, 8]}
    changed = Machine.model_validate({"preset": "lumi", "network": {"topology": torus}})
    assert changed.network.topology.n_hosts == 64


def test_files_of_earlier_versions_state_the_only_contention() -> None:
    assert Network.model_validate({"contention": "hybrid"}) == Network()
    with pytest.raises(ValidationError, match="contention is no longer a field; leave it out"):
        Network.model_validate({"contention": "fluid"})
