"""Winners in sentences: sizes that one candidate leads together, by how much, and why."""

from __future__ import annotations

import pytest

from collplan.reports.words import explain, limit, winners
from collplan.select.candidates import call_of
from collplan.select.compared import Comparison, Pruned
from collplan.select.comparison import compare
from collplan.specs import PlanSpec


def spec(count: int = 64, **method: object) -> PlanSpec:
    return PlanSpec.model_validate(
        {
            "machine": {"nodes": 2, "ranks_per_node": 4, "lanes": 2},
            "collective": {"kind": "allreduce", "count": count, "datatype": "int32"},
            **method,
        }
    )


def compared(counts: tuple[int, ...]) -> Comparison:
    patterns = ["flat", "full_lane*", "MPI_I*"]
    return compare([spec(count) for count in counts], patterns=patterns)


@pytest.mark.long
def test_each_run_of_sizes_is_a_sentence() -> None:
    comparison = compared((16, 64, 1 << 20, 1 << 21))
    lines = list(winners(comparison))
    names = list(dict.fromkeys(comparison.leading.values()))
    assert [line.partition(" wins ")[0] for line in lines] == names
    last, size = lines[-1], 1 << 23
    name = comparison.leading[size]
    time = comparison.makespans[name, size]
    native = comparison.makespans[comparison.call, size] / time
    assert "8 MiB" in last
    assert f"{time / comparison.bounds[size].time_s:.3g} times the bound" in last
    assert f"{native:.2f} times as fast as {comparison.call}" in last
    assert explain(name, comparison.specs[name]) in last


def test_times_that_do_not_differ_are_not_called_faster() -> None:
    comparison = compared((1 << 20,))
    (size,) = comparison.sizes
    comparison.makespans["other", size] = comparison.makespans[comparison.leading[size], size]
    (line,) = winners(comparison)
    assert line.startswith(f"{comparison.leading[size]} is one of the fastest at 4 MiB (")
    assert ", as fast as other" in line
    assert "1.00 times" not in line


def test_a_leader_that_may_be_beaten_is_no_winner() -> None:
    comparison = compared((16,))
    (size,) = comparison.sizes
    del comparison.best[size]
    comparison.rivals[size] = [Pruned("other", size, "time", 0.0, 0.0, 0)]
    (line,) = winners(comparison)
    assert "is the best of those simulated at 64 B" in line


def test_names_are_explained() -> None:
    one = spec(decomposition="full_lane", algorithms={"lane": "ring"}, transport={"node": "shared"})
    text = explain("full_lane lane=ring", one)
    assert "every rank of a node talks to other nodes" in text
    assert "lane: ring" in text
    assert "shared memory" in text
    assert explain(call_of(one.collective.kind), one).startswith("MPI's own non-blocking call")


def test_decompositions_of_graphs_share_messages() -> None:
    graph = {"kind": "neighbor_alltoall", "graph": {"grid": [8], "periodic": True}, "count": 3}
    one = spec(decomposition="full_lane")
    one = PlanSpec.model_validate(one.model_dump(mode="json") | {"collective": graph})
    assert "divide its messages" in explain("full_lane", one)


def test_the_limit_of_a_plan_is_its_busiest_resource_or_the_main_part_of_its_time() -> None:
    cost = {"lanes": [], "cores": [], "breakdown": {"compute": 3.0, "latency": 1.0}}
    assert limit(cost | {"makespan_ns": 4.0}).startswith("75% of its critical path is ")
    lanes = [{"node": 1, "lane": i, "utilisation": share} for i, share in ((0, 0.97), (1, 0.0))]
    cores = [{"node": 0, "core": 2, "utilisation": 1.0}]
    busy = limit(cost | {"makespan_ns": 4.0, "lanes": lanes, "cores": cores})
    assert busy == "it is limited by lane 0 of node 1, 97% busy; it uses 1 of 2 lanes"
    alone = limit(cost | {"makespan_ns": 4.0, "cores": cores})
    assert alone == "it is limited by core 2 of node 0, 100% busy"
