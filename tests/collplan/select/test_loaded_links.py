"""Loads of links in estimates, and in the choices of auto and compare."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.api.compiling import compile_spec
from collplan.executors.cost import simulate
from collplan.executors.cost.link_use import LinkUse
from collplan.select.candidates import MAPPED, all_forms
from collplan.select.comparison import compare
from collplan.select.estimate import estimate
from collplan.select.search import search
from collplan.specs import parse_spec

SLOW = {"kind": "dragonfly", "groups": 4, "routers": 2, "hosts": 2,
        "bandwidth": ["100Gbit", "100Gbit", "5Gbit"]}  # fmt: skip


def scattered(kind: str, **fields: Any) -> Any:
    hosts = [0, 4, 8, 12, 1, 5, 9, 13]
    machine = {"nodes": 8, "placement": hosts, "network": {"topology": SLOW}}
    collective = {"kind": kind, "count": 65536, "datatype": "uint8"}
    return parse_spec({"machine": machine, "collective": collective, **fields})


def busiest_s(spec: Any) -> float:
    """Return how long the busiest link takes for its bytes."""
    timeline = simulate(compile_spec(spec, idle=[]))
    assert timeline.routes is not None
    return float(LinkUse(timeline.routes).busy_ns.max()) / 1e9


@pytest.mark.quick
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner"])
def test_no_estimate_is_below_the_time_of_the_busiest_link(algorithm):
    spec = scattered("allreduce", algorithms=algorithm)
    (found,) = estimate(spec)
    assert found.price_s >= found.bound_s >= 0.99 * busiest_s(spec)
    network = spec.machine.network
    plain = spec.machine.replace(network=network.replace(topology=None), placement=None)
    (without,) = estimate(spec.replace(machine=plain))
    assert found.price_s > 2 * without.price_s


@pytest.mark.many
@pytest.mark.parametrize("kind", ["allreduce", "allgather", "bcast"])
def test_auto_relieves_the_busiest_link(kind):
    chosen = search(scattered(kind, decomposition="auto"))[0].spec
    if kind == "allreduce":
        assert chosen.decomposition.levels == {"group"}
    assert busiest_s(chosen) < 0.7 * busiest_s(scattered(kind, decomposition="flat"))


def test_compare_has_candidates_by_group_and_switch_and_with_mapped_ranks():
    names = [form.name for form in all_forms(scattered("allreduce"))]
    assert {"hierarchical group", "full_lane group", "full_lane group pipelined",
            f"ring {MAPPED}", f"rabenseifner {MAPPED}"} <= {*names}  # fmt: skip
    comparison = compare([scattered("allreduce")], patterns=["ring*", "hierarchical group"])
    assert {"ring", f"ring {MAPPED}", "hierarchical group"} <= {*comparison.specs}
    assert comparison.specs[f"ring {MAPPED}"].passes[0].name == "map_ranks"


def test_without_a_topology_nothing_is_mapped():
    spec = parse_spec(
        {"machine": {"nodes": 8}, "collective": {"kind": "allreduce", "count": 65536}}
    )
    assert not [
        form.name for form in all_forms(spec) if MAPPED in form.name or "group" in form.name
    ]
