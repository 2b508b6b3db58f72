"""Machines: where ranks live, presets, and what does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from collplan.specs import Machine
from collplan.specs.errors import FieldError
from collplan.specs.machines.network import Network


def test_block_order_fills_node_after_node() -> None:
    machine = Machine(nodes=2, ranks_per_node=4, lanes=2, numa_domains=2)
    assert machine.rank_to_node == (0, 0, 0, 0, 1, 1, 1, 1)
    assert machine.rank_to_local == (0, 1, 2, 3, 0, 1, 2, 3)
    assert machine.rank_to_lane == (0, 1, 0, 1, 0, 1, 0, 1)
    assert machine.rank_to_core == machine.rank_to_local
    assert machine.rank_to_numa == (0, 0, 1, 1, 0, 0, 1, 1)


def test_cyclic_order_passes_full_nodes_by() -> None:
    machine = Machine(nodes=3, ranks_per_node=[3, 1, 2], rank_order="cyclic")
    assert machine.rank_to_node == (0, 1, 2, 0, 2, 0)
    assert machine.rank_to_local == (0, 0, 0, 1, 1, 2)


def test_explicit_order_is_taken_as_it_is() -> None:
    machine = Machine(nodes=2, ranks_per_node=[1, 2], rank_order=[1, 0, 1])
    assert machine.rank_to_node == (1, 0, 1)
    assert machine.rank_to_local == (0, 0, 1)


def test_uneven_domains_are_contiguous_blocks_of_cores() -> None:
    machine = Machine(ranks_per_node=5, cores=5, numa_domains=2)
    assert machine.rank_to_numa == (0, 0, 0, 1, 1)


def test_cached_properties_change_neither_hash_nor_equality() -> None:
    machine, twin = Machine(nodes=2, ranks_per_node=3), Machine(nodes=2, ranks_per_node=3)
    before = hash(machine)
    assert machine.rank_to_lane
    assert hash(machine) == before
    assert machine == twin


def test_replace_checks_and_forgets_what_was_cached() -> None:
    machine = Machine(nodes=2, ranks_per_node=3)
    assert machine.n_ranks == 6
    assert machine.replace(ranks_per_node=4).n_ranks == 8
    with pytest.raises(FieldError, match="more ranks than cores"):
        machine.replace(cores=2)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ranks_per_node": 64, "cores": 48}, "ranks_per_node is 64, cores is 48; raise cores"),
        ({"nodes": 3, "ranks_per_node": [1, 2]}, "lists 2 nodes, nodes is 3"),
        ({"ranks_per_node": 0}, "0 ranks on a node; give 1 or more"),
        ({"nodes": 2, "ranks_per_node": [1, 0]}, "0 ranks on a node"),
        ({"ranks_per_node": True}, "True is not a number of ranks"),
        ({"numa_domains": 2}, "numa_domains is 2, a node has 1 cores"),
        ({"lanes": 0}, "0 is too small"),
        ({"lanes": 2**15}, "32768 is too large; give 32767 or less"),
        ({"lanes": "100Mbit"}, "'100Mbit' is not a number of lanes; give one, or a list"),
        ({"lanes": []}, "0 rates; give one for each of 1 to 32767 lanes"),
        ({"lanes": ["100Mbit", "fast"]}, "'fast' is not a rate"),
        ({"lanes": ["100Mbit", "0bit"]}, "'0bit' is out of range; give 1 to"),
        ({"lanes": ["100Mbit", 10**7]}, "10000000 has no unit; give bits or bytes per second"),
        ({"rank_order": "blok"}, "block, cyclic, or a list"),
        ({"rank_order": [0, 0]}, "lists 2 ranks, the machine has 1"),
        ({"rank_order": [1]}, "names node 1, nodes is 1"),
        ({"nodes": 2, "rank_order": [0, 0]}, "puts 2 ranks on node 0, ranks_per_node says 1"),
        ({"rank_order": [-1]}, "-1 is not a node"),
        ({"nodes": 2**16, "ranks_per_node": 2}, "131072 ranks; at most 65536"),
    ],
)
def test_what_does_not_fit_names_both_values(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Machine.model_validate(fields)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_every_order_places_each_rank_once(ranks_per_node: list[int], data: st.DataObject) -> None:
    block = Machine(nodes=len(ranks_per_node), ranks_per_node=ranks_per_node)
    order = data.draw(st.one_of(st.just("cyclic"), st.permutations(block.rank_to_node).map(list)))
    machine = block.replace(rank_order=order)
    places = list(zip(machine.rank_to_node, machine.rank_to_local, strict=True))
    assert sorted(places) == [
        (node, local) for node, n in enumerate(ranks_per_node) for local in range(n)
    ]


def test_lanes_are_a_number_or_rates() -> None:
    same = Machine(ranks_per_node=3, lanes=2)
    assert (same.n_lanes, same.lane_rates, same.lane_slowness) == (2, (1, 1), (1.0, 1.0))
    machine = Machine.model_validate({"ranks_per_node": 3, "lanes": ["100Mbit", "25Mbit"]})
    assert machine.lanes == machine.lane_rates == (100_000_000, 25_000_000)
    assert (machine.n_lanes, machine.lane_slowness) == (2, (1.0, 4.0))
    assert machine.rank_to_lane == same.rank_to_lane == (0, 1, 0)
    assert Machine.model_validate_json(machine.model_dump_json()) == machine
    assert machine.model_dump()["lanes"] == ["100Mbit", "25Mbit"]


def test_rates_of_lanes_set_the_bandwidth_of_the_network() -> None:
    def per_byte(**fields: object) -> float:
        return Machine.model_validate(fields).network.network.G_ns_per_byte

    assert per_byte(lanes=2) == 0.08
    assert per_byte(lanes=["10Gbit", "10Gbit"]) == 0.8
    assert per_byte(lanes=["50Gbit", "200Gbit"]) == 0.04
    assert per_byte(lanes=["10Gbit"], network={"network": {"L_ns": 5}}) == 0.8
    assert per_byte(lanes=["10Gbit"], network=Network(burst_bytes=8)) == 0.8
    # What MPI gets of a rate is measured.
    assert per_byte(lanes=["10Gbit"], network={"network": {"G_ns_per_byte": 0.9}}) == 0.9
    assert per_byte(preset="hydra", lanes=["100Gbit", "100Gbit"]) == 0.08
    twins = Machine.model_validate({"lanes": ["10Gbit", "10Gbit"]})
    assert twins.replace(lanes=("10Gbit", "5Gbit")).network == twins.network


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"lanes": ["10Gbit"], "network": {"network": {"G_ns_per_byte": 0.08}}},
            "fastest lane is 10Gbit, network.network.G_ns_per_byte is 0.08, which is 100 Gbit/s",
        ),
        ({"preset": "hydra", "lanes": ["25Gbit", "25Gbit"]}, "fastest lane is 25Gbit"),
        ({"lanes": ["1Gbit"], "network": {"network": {"G_ns_per_byte": 0}}}, "which is no limit"),
    ],
)
def test_rates_that_contradict_the_network_are_refused(
    fields: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=f"lanes contradict the network: the .*{words}"):
        Machine.model_validate(fields)
