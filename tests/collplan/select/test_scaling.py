"""Plans that differ only in the size of their elements."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collplan.executors.cost.simulator import simulate
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.plan.plan import COLUMNS, Plan
from collplan.select.scaling import _has_scaled_regions, shrink, stretch
from collplan.specs import PlanSpec
from covering import pairs

MACHINES = (
    {"nodes": 1, "ranks_per_node": 6},
    {"nodes": 3, "ranks_per_node": 4, "numa_domains": 2, "lanes": 2},
    {"nodes": 4, "ranks_per_node": 4, "lanes": 2},
    {"nodes": 2, "ranks_per_node": [3, 2]},
)
DECOMPOSITIONS = (
    {"name": "flat"},
    {"name": "hierarchical"},
    {"name": "full_lane"},
    {"name": "multi_leader", "leaders": 2},
)
KINDS = ("allreduce", "bcast", "allgather", "alltoall", "reduce_scatter_block", "scan", "gather")


def spec_of(
    machine: object, decomposition: object, kind: str, count: int, **more: object
) -> PlanSpec:
    return PlanSpec.model_validate(
        {
            "machine": machine,
            "collective": {"kind": kind, "count": count},
            "decomposition": decomposition,
            **more,
        }
    )


def assert_stretched(small: Plan, plan: Plan, factor: int) -> None:
    """Require that a plan is another one with larger elements, task by task."""
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(small, name), getattr(plan, name))
    for side in ("reads", "writes"):
        one, other = getattr(small, side), getattr(plan, side)
        np.testing.assert_array_equal(one.indptr, other.indptr)
        np.testing.assert_array_equal(one.buffer, other.buffer)
        np.testing.assert_array_equal(one.count * factor, other.count)
    np.testing.assert_array_equal(small.deps.indptr, plan.deps.indptr)
    np.testing.assert_array_equal(small.deps.task, plan.deps.task)


CASES = pairs(
    {
        "machine": MACHINES,
        "decomposition": DECOMPOSITIONS,
        "kind": KINDS,
        "transport": ("messages", "shared"),
    }
)


@pytest.mark.many
@pytest.mark.parametrize(
    ("machine", "decomposition", "kind", "transport"),
    [tuple(case.values()) for case in CASES],
    ids=lambda one: one if isinstance(one, str) else "-".join(map(str, one.values())),
)
def test_shrunk_plan_is_the_same_but_for_the_size_of_elements(
    machine: object, decomposition: object, kind: str, transport: str
) -> None:
    for count in (1, 7, 48, 960):
        spec = spec_of(machine, decomposition, kind, count, transport=transport)
        small, factor = shrink(spec)
        assert small.collective.count * factor == count
        plan = compile_plan(spec, is_proved=False)
        other = compile_plan(small, is_proved=False)
        assert_stretched(other, plan, factor)
        assert simulate(stretch(other, factor)).makespan_s == simulate(plan).makespan_s


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kind", "count", "least"),
    [("allreduce", 4800, 4), ("bcast", 4800, 4), ("allgather", 4800, 1), ("allreduce", 4801, 4801)],
)
def test_smallest_count_depends_on_chunks(kind: str, count: int, least: int) -> None:
    machine = {"nodes": 3, "ranks_per_node": 4, "lanes": 2}
    algorithms = {"lane": "recursive_doubling"} if kind == "allreduce" else "auto"
    spec = spec_of(machine, {"name": "full_lane"}, kind, count, algorithms=algorithms)
    assert shrink(spec)[0].collective.count == least


def test_algorithms_remain_those_of_the_size() -> None:
    spec = spec_of(MACHINES[2], {"name": "full_lane"}, "allreduce", 1 << 22)
    small, factor = shrink(spec)
    assert factor > 1000
    assert [phase.name for phase in compile_plan(small).phases] == [
        phase.name for phase in compile_plan(spec).phases
    ]


@pytest.mark.quick
@pytest.mark.parametrize(
    "change",
    [
        {"passes": [{"name": "segment", "max_bytes": 64}]},
        {"collective": {"kind": "allgatherv", "counts": [4, 8] * 8}},
        {"collective": {"kind": "allreduce", "count": 0}},
    ],
    ids=["passes", "irregular", "empty"],
)
def test_specs_that_depend_on_sizes_are_not_shrunk(change: dict[str, object]) -> None:
    given = {"machine": MACHINES[2], "collective": {"kind": "allreduce", "count": 1024}}
    spec = PlanSpec.model_validate({**given, "decomposition": {"name": "flat"}, **change})
    assert shrink(spec) == (spec, 1)


def test_regions_scale_if_all_of_their_columns_do() -> None:
    columns = {"indptr": [0, 1, 2], "low": [0, 4], "count": [4, 8], "stride": [16, 24],
               "repeat": [2, 3]}  # fmt: skip
    larger = {
        name: [3 * one if name in ("low", "count", "stride") else one for one in column]
        for name, column in columns.items()
    }
    assert _has_scaled_regions(regions(columns), regions(larger), 3)
    assert not _has_scaled_regions(regions(columns), None, 3)
    for name, column in larger.items():
        changed = larger | {name: [column[0], column[1] + 1]}
        assert not _has_scaled_regions(regions(columns), regions(changed), 3), name


def regions(columns: dict[str, list[int]]) -> Any:
    arrays = {name: np.array(column) for name, column in columns.items()}
    return SimpleNamespace(**arrays, pattern=(arrays["stride"], arrays["repeat"]))
