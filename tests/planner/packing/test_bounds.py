"""Tests of bounds of collectives on topologies: no plan is faster."""

from __future__ import annotations

import numpy as np
import pytest

from collplan import compile as compiled
from collplan.executors.cost import simulate
from collplan.planner.algorithms.registry import registry
from collplan.planner.packing.bounds import cut_bound
from collplan.specs import PlanSpec
from linked_machines import boxes, machine_on, random_fabric, torus

COLLECTIVES = (
    "allgather", "allreduce", "alltoall", "bcast", "gather", "reduce", "reduce_scatter_block",
    "scatter",
)  # fmt: skip


def collective_of(kind, count=60000, **more):
    has_op = kind.startswith(("reduce", "allreduce"))
    return {"kind": kind, "count": count, "datatype": "int8", **more} | (
        {"op": "sum"} if has_op else {}
    )


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_no_plan_is_faster(kind):
    for seed in range(12):
        machine = random_fabric(seed)
        root = (
            {"root": machine.nodes - 1} if kind in ("bcast", "reduce", "gather", "scatter") else {}
        )
        collective = collective_of(kind, **root)
        spec = PlanSpec.model_validate({"machine": machine, "collective": collective})
        ns, what = cut_bound(machine, spec.collective)
        assert ns > 0
        assert what
        for one in registry.legal(kind, machine.nodes, True, has_topology=True):
            plan = compiled(spec.replace(algorithms=one.name))
            assert simulate(plan).makespan_ns >= ns * (1 - 1e-9), (seed, one.name)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_packed_plans_of_direct_fabrics_are_near_the_bound(kind):
    most = {"alltoall": 1.2, "bcast": 1.1, "reduce": 1.1}.get(kind, 1.02)
    count = 64_000_000 if kind in ("bcast", "reduce") else 4_000_000
    for machine in (torus(4, 4), torus(3, 3, 3), torus(2, 2, 2, 2)):
        spec = PlanSpec.model_validate(
            {
                "machine": machine,
                "collective": collective_of(kind, count),
                "algorithms": "packed",
            }
        )
        ratio = simulate(compiled(spec)).makespan_ns / cut_bound(machine, spec.collective)[0]
        assert 1 - 1e-9 <= ratio <= most


def test_cuts_are_named():
    grid = torus(4, 4, wrap=False)
    for kind, what in (
        ("allgather", "900000 B into node"),
        ("reduce_scatter_block", "900000 B out of node"),
        ("bcast", "60000 B"),
    ):
        spec = PlanSpec.model_validate({"machine": grid, "collective": collective_of(kind)})
        assert what in cut_bound(grid, spec.collective)[1]


def test_an_alltoall_of_a_torus_has_the_bound_of_its_distances():
    machine = torus(4, 4)
    spec = PlanSpec.model_validate({"machine": machine, "collective": collective_of("alltoall")})
    assert cut_bound(machine, spec.collective)[0] == pytest.approx(60000 * 16 * 32 / 64)


def test_blocks_of_several_ranks_and_unlike_ones_count():
    machine = machine_on(
        {"kind": "torus", "dimensions": [3], "wrap": False, "bandwidth": "1GB/s"}, ranks_per_node=2
    )
    spec = PlanSpec.model_validate({"machine": machine, "collective": collective_of("allgather")})
    assert cut_bound(machine, spec.collective)[0] == pytest.approx(4 * 60000)
    counts = {"kind": "allgatherv", "counts": [5, 0, 1, 0, 7, 2], "datatype": "int8"}
    spec = PlanSpec.model_validate({"machine": machine, "collective": counts})
    # 10 bytes enter node 0, and 6 enter node 2.
    assert cut_bound(machine, spec.collective)[0] == pytest.approx(10)
    counts = {"kind": "alltoallv", "counts": np.arange(36).reshape(6, 6).tolist(),
              "datatype": "int8"}  # fmt: skip
    spec = PlanSpec.model_validate({"machine": machine, "collective": counts})
    table = np.arange(36).reshape(3, 2, 3, 2).sum(axis=(1, 3))
    into_last, out_of_last = table[:2, 2].sum(), table[2, :2].sum()
    assert cut_bound(machine, spec.collective)[0] >= max(into_last, out_of_last) / 2


def test_there_is_no_bound_without_links_or_data():
    for machine, collective in (
        (torus(1), collective_of("bcast")),
        (torus(4), {"kind": "barrier"}),
        (torus(4), collective_of("scan", op="sum")),
        (boxes(2, 2).replace(network=boxes(2, 2).network.replace(topology=None)),
         collective_of("bcast")),
    ):  # fmt: skip
        spec = PlanSpec.model_validate({"machine": machine, "collective": collective})
        assert cut_bound(machine, spec.collective) is None
