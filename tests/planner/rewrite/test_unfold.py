"""Unfolded plans: the plans of all ranks, and what does not fold, as the page says it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import collplan
from collplan.executors.cost import simulate
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded, unfold
from collplan.planner.errors import AlgorithmError, AsymmetricError, MemoryLimitError
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import COLUMNS, CSR_PARTS, TABLES, Op, Plan
from collplan.planner.plan.ragged import Dependencies
from collplan.planner.verify import verify
from collplan.select.candidates import all_forms
from collplan.specs import PlanSpec
from looping import naming
from tiers import some

MACHINES = [
    (2, 1, 1), (3, 3, 2), (4, 4, 2), (16, 2, 1), (256, 1, 1), (16, 16, 4), (85, 3, 1),
]  # fmt: skip
"""Nodes, ranks per node, and lanes."""
FOLDING = ("allgather", "allreduce", "alltoall", "barrier", "reduce_scatter_block")


def spec_of(kind: str, nodes: int, per_node: int, lanes: int, **fields: Any) -> PlanSpec:
    machine = {"nodes": nodes, "ranks_per_node": per_node, "lanes": lanes}
    # Integers, which all algorithms combine.
    data = {} if kind == "barrier" else {"count": nodes * per_node, "datatype": "int64"}
    collective = {"kind": kind, **data}
    return PlanSpec.model_validate({"machine": machine, "collective": collective, **fields})


def folding_specs(
    kind: str, machine: tuple[int, int, int], turn: int, **fields: Any
) -> list[PlanSpec]:
    """Return some specs of those algorithms and decompositions that fold, others each turn."""
    spec, found = spec_of(kind, *machine, **fields), []
    for form in all_forms(spec):
        try:
            compile_folded(form.of(spec))
        except AlgorithmError:
            continue
        found.append(form.of(spec))
    step = 2 if spec.machine.n_ranks < 100 else 8
    return found[turn % min(step, len(found)) :: step]


def bytes_of(plan: Plan) -> list[tuple[str, bytes]]:
    parts = [(name, getattr(plan, name)) for name in (*COLUMNS, *TABLES)]
    for part in CSR_PARTS:
        owner = getattr(plan, part)
        parts += [(f"{part}.{name}", getattr(owner, name)) for name in owner.TYPES]
    return [(name, np.ascontiguousarray(column).tobytes()) for name, column in parts]


def assert_unfolds(spec: PlanSpec) -> None:
    folded, whole = compile_folded(spec), compile_plan(spec)
    unfolded = unfold(folded)
    assert bytes_of(unfolded) == bytes_of(whole)
    assert (unfolded.spec, unfolded.phases) == (whole.spec, whole.phases)
    # The critical path and all counts.
    assert measure(unfolded).to_json() == measure(folded).to_json()
    one, other = simulate(folded), simulate(unfolded)
    assert one.makespan_ns == other.makespan_ns
    busy_ns = np.tile(one.lane_busy_ns, (folded.n_copies, 1, 1))
    assert np.array_equal(other.lane_busy_ns, busy_ns)


@pytest.mark.many
@pytest.mark.parametrize(("machine", "kind"), list(product(MACHINES, FOLDING))[::2], ids=str)
def test_an_unfolded_plan_is_the_plan_of_all_ranks(
    kind: str, machine: tuple[int, int, int]
) -> None:
    found = folding_specs(kind, machine, MACHINES.index(machine) + FOLDING.index(kind))
    assert found
    for spec in found:
        with naming(spec):
            assert_unfolds(spec)


@pytest.mark.many
@pytest.mark.long
@pytest.mark.parametrize("transport", ["messages", "shared"])
@pytest.mark.parametrize("kind", FOLDING[:3])
def test_plans_that_passes_rewrite_unfold(kind: str, transport: str) -> None:
    passes = [
        {"name": "segment", "max_bytes": 16},
        "prioritize",
        {"name": "limit_requests", "remote": 1},
    ]
    found = folding_specs(kind, (4, 4, 2), len(transport), passes=passes, transport=transport)
    assert found
    for spec in found:
        assert bytes_of(unfold(compile_folded(spec))) == bytes_of(compile_plan(spec))


@pytest.mark.long
@pytest.mark.parametrize("machine", [(3, 2, 2), (4, 4, 2), (8, 1, 1)])
def test_plans_in_slices_unfold(machine: tuple[int, int, int]) -> None:
    nodes, per_node, _ = machine
    passes = [{"name": "slice_vector", "slices": 3}, {"name": "limit_requests", "order": "rows"}]
    spec = spec_of("allreduce", *machine, passes=passes).with_count(6 * nodes * per_node)
    n_folded = 0
    for form in some(list(all_forms(spec)), f"slices {machine}"):
        chosen = form.of(spec).replace(passes=spec.passes)
        try:
            folded = compile_folded(chosen)
        except AlgorithmError:
            continue
        verify(folded)
        assert_unfolds(chosen)
        n_folded += 1
    assert n_folded


def test_slices_that_ranks_do_not_share_evenly_do_not_fold() -> None:
    passes = [{"name": "slice_vector", "slices": 2}]
    spec = spec_of("allreduce", 3, 2, 1, algorithms="ring", passes=passes)
    assert compile_folded(spec.with_count(24)).n_copies == 3
    with pytest.raises(AsymmetricError, match="15 elements are not divided by 6 ranks"):
        compile_folded(spec.with_count(30))


def ring() -> Plan:
    return compile_folded(spec_of("allreduce", 4, 2, 1, algorithms="ring"))


def test_plans_without_tasks_unfold() -> None:
    spec: dict[str, Any] = {
        "machine": {"nodes": 3, "ranks_per_node": 2},
        "collective": {"kind": "allgather", "count": 0},
    }
    folded = compile_folded(PlanSpec.model_validate(spec))
    assert unfold(folded).n_tasks == folded.n_tasks == 0
    computing = PlanSpec.model_validate(spec | {"passes": ["add_compute"]})
    with pytest.raises(AsymmetricError, match="fold: no message leaves the node"):
        compile_folded(computing)


def test_a_plan_of_all_ranks_is_returned_as_it_is() -> None:
    whole = compile_plan(spec_of("allreduce", 4, 2, 1, algorithms="ring"))
    assert collplan.unfold(whole) is whole


@pytest.mark.quick
@pytest.mark.parametrize("column", ["op", "peer", "tag", "round", "lane", "apart"])
def test_a_plan_that_was_changed_does_not_unfold(column: str) -> None:
    plan = ring()
    row = int(np.flatnonzero(plan.op == Op.SEND)[3])
    changed = np.array(getattr(plan, column))
    changed[row] += 1
    with pytest.raises(AsymmetricError, match="was it changed"):
        unfold(plan.replace(**{column: changed}))


def test_a_plan_that_waits_for_others_does_not_unfold() -> None:
    plan = ring()
    deps = plan.deps
    task = np.array(deps.task)
    task[-1] = task[0]
    with pytest.raises(AsymmetricError, match="list of tasks to wait for"):
        unfold(plan.replace(deps=Dependencies(deps.indptr, task, deps.kind)))


@pytest.mark.long
def test_memory_for_all_ranks_is_estimated_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = spec_of("allreduce", 8192, 8, 4, decomposition="full_lane", algorithms={"lane": "ring"})
    plan = compile_folded(spec.replace(collective=spec.collective.replace(count=1 << 20)))
    monkeypatch.setattr("collplan.planner.memory.free_bytes", lambda: 1 << 33)
    with pytest.raises(MemoryLimitError, match="GiB are free") as refusal:
        unfold(plan)
    assert "\n" not in str(refusal.value)
