"""Defaults of MPI libraries as rows of comparisons."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.executors.cost.simulator import simulate
from collplan.libraries.decisions import DECIDING, decide, decided_kinds, title_of
from collplan.planner import compile_plan
from collplan.reports.comparison import to_json
from collplan.select.comparison import compare
from collplan.select.library_defaults import case_of, method_of
from collplan.specs import PlanSpec

MACHINES: dict[str, dict[str, Any]] = {
    "one": {"ranks_per_node": 6, "numa_domains": 2},
    "several": {"nodes": 3, "ranks_per_node": 4, "lanes": 2},
    "spread": {"nodes": 7, "ranks_per_node": 1},
}


def spec_of(kind: str, count: int = 30_000, nodes: str = "several", **fields: Any) -> PlanSpec:
    machine = MACHINES[nodes]
    collective: dict[str, Any] = {"kind": kind, **fields}
    n_ranks = machine.get("nodes", 1) * machine["ranks_per_node"]
    if kind in ("gatherv", "scatterv", "allgatherv", "reduce_scatter"):
        collective["counts"] = [count // n_ranks + i for i in range(n_ranks)]
    elif kind == "alltoallv":
        collective["counts"] = [[count // n_ranks**2 + i for i in range(n_ranks)]] * n_ranks
    elif kind != "barrier":
        collective["count"] = count
    return PlanSpec.model_validate({"machine": machine, "collective": collective})


@pytest.mark.many
@pytest.mark.parametrize("nodes", MACHINES)
@pytest.mark.parametrize("library", DECIDING)
@pytest.mark.filterwarnings("ignore:passes:UserWarning")
def test_what_libraries_run_has_plans_or_a_remark(library: str, nodes: str) -> None:
    n_plans = 0
    for kind in decided_kinds(library):
        for count in (0, 40, 3_000, 50_000):
            spec = spec_of(kind, count, nodes)
            decision = decide(library, case_of(spec))
            assert decision is not None
            method = method_of(library, decision, spec)
            if method is None:
                assert decision.remark
                continue
            assert compile_plan(spec.with_method(method)).n_ranks == spec.machine.n_ranks
            n_plans += 1
    assert n_plans > 3 * len(decided_kinds(library))


def test_cases_have_the_bytes_of_blocks_or_vectors() -> None:
    assert case_of(spec_of("bcast", 100)).n_bytes("vector") == 800
    assert case_of(spec_of("allgather", 100)).n_bytes("block") == 800
    assert case_of(spec_of("allgather", 100)).n_bytes("total") == 9_600
    counts = sum(100 // 12 + i for i in range(12))
    assert case_of(spec_of("allgatherv", 100)).n_bytes("total") == 8 * counts
    assert case_of(spec_of("alltoall", 100)).n_bytes("block") == 800
    assert case_of(spec_of("bcast", nodes="several")).nodes == "several"
    assert case_of(spec_of("bcast", nodes="spread")).nodes == "spread"


def test_components_run_what_the_library_runs_for_them() -> None:
    spec = spec_of("allreduce", 100)
    decision = decide("mpich", case_of(spec))
    assert decision is not None
    method = method_of("mpich", decision, spec)
    assert method is not None
    assert method.decomposition.name == "hierarchical"
    plan = compile_plan(spec.with_method(method))
    phases = {(phase.role, phase.kind): phase.algorithm for phase in plan.phases}
    assert phases["lane", "allreduce"] == "rabenseifner"
    assert phases["node", "bcast"] == "linear"
    assert method.transport.shared_roles == ("node",)


@pytest.mark.long
def test_comparisons_price_what_every_library_runs() -> None:
    specs = [spec_of("bcast", count) for count in (100, 10_000)]
    comparison = compare(specs)
    titles = [title_of(library) for library in DECIDING]
    assert list(comparison.defaults) == titles
    for library, title in zip(DECIDING, titles, strict=True):
        for spec in specs:
            size = spec.collective.count * 8
            found = comparison.defaults[title][size]
            decision = decide(library, case_of(spec))
            assert decision is not None
            assert found.runs == str(decision)
            assert found.method is not None
            plan = compile_plan(spec.with_method(found.method))
            assert found.makespan_s == pytest.approx(simulate(plan).makespan_s)
            best_s = comparison.makespans[comparison.leading[size], size]
            assert comparison.gains_over(title)[size] == pytest.approx(found.makespan_s / best_s)
    rows = to_json(comparison)["libraries"]["Open MPI 5.0.x"]
    assert [row["bytes"] for row in rows] == [800, 80_000]
    assert rows[1]["runs"] == "han segment=65536"
    assert rows[1]["method"]["decomposition"] == "hierarchical"
    assert rows[0]["gain"] >= 1.0


def test_comparisons_of_some_candidates_leave_libraries_out() -> None:
    assert not compare([spec_of("bcast", 100)], patterns=["binomial"]).defaults


def test_libraries_without_the_collective_have_no_row() -> None:
    comparison = compare([spec_of("scan", 100, "one")])
    assert list(comparison.defaults) == ["MPICH 4.x", "Open MPI 5.0.x"]


def test_what_takes_too_long_to_simulate_keeps_its_closed_form(monkeypatch: Any) -> None:
    monkeypatch.setattr("collplan.select.library_defaults.MAX_TASKS", 0)
    found = compare([spec_of("alltoall", 333)]).defaults["Open MPI 5.0.x"][2_664]
    known = found.makespan_s is not None
    assert known != (found.estimate_s is not None)
    assert found.time_s is not None
