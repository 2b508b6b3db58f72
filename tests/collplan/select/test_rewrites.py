"""Rewrites of programs: what is joined or cut has the same effect, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collplan.planner.programs import compile_program
from collplan.planner.programs.reference import (
    allocate_buffers,
    apply_steps,
    buffers_in,
    fill_buffers,
)
from collplan.select.rewrites import cut, fused
from collplan.specs import ProgramSpec
from random_programs import differing_ranks


def program_of(*steps: dict[str, Any], count: int = 64) -> ProgramSpec:
    buffers = {name: {"count": count, "datatype": "int32"} for name in "xy"}
    machine = {"nodes": 2, "ranks_per_node": 2}
    document = {"machine": machine, "buffers": buffers, "steps": steps}
    return ProgramSpec.model_validate(document)


def part(i: int, n: int, kind: str = "allreduce", **fields: Any) -> dict[str, Any]:
    return {"name": f"s{i}", "collective": kind, "receive": f"x[{i}/{n}]", **fields}


def names(program: ProgramSpec) -> set[str]:
    return {step.name for step in program.steps}


def check_equal(one: ProgramSpec, other: ProgramSpec) -> None:
    """Check that two programs leave the same, and that the plan of the second does so, too."""
    results = []
    for program in (one, other):
        memory = [allocate_buffers(program) for _ in range(4)]
        for rank, values in enumerate(memory):
            fill_buffers(program, values, rank)
        apply_steps(program, [buffers_in(program, values) for values in memory])
        results.append(memory)
    assert all(np.array_equal(*pair) for pair in zip(*results, strict=True))
    assert differing_ranks(compile_program(other), 0) == []


@pytest.mark.parametrize("kind", ["allreduce", "bcast", "reduce", "scan", "exscan"])
def test_neighbors_are_joined(kind: str) -> None:
    program = program_of(*(part(i, 4, kind) for i in range(4)))
    for factor, n_steps in ((2, 2), (3, 2), (4, 1), (8, 1)):
        found = fused(program, factor, names(program))
        assert len(found.steps) == n_steps
        check_equal(program, found)
    assert fused(program, 4, set()) == program
    assert found.steps[0].name == "s0 to s3"


def test_steps_between_may_not_use_what_is_joined() -> None:
    reader = {"name": "r", "collective": "allreduce", "send": "x[0/2]", "receive": "y[0/2]"}
    program = program_of(part(0, 2), reader, part(1, 2))
    assert fused(program, 2, {"s0", "s1"}) == program
    apart = program_of(part(0, 2), {**reader, "send": "y[1/2]"}, part(1, 2))
    found = fused(apart, 2, {"s0", "s1"})
    assert [step.name for step in found.steps] == ["r", "s0 to s1"]
    check_equal(apart, found)


def test_what_follows_a_joined_step_follows_the_whole() -> None:
    after = {"name": "c", "compute": {"seconds": 0}, "after": ["s0"]}
    found = fused(program_of(part(0, 2), part(1, 2), after), 2, {"s0", "s1"})
    assert found.steps[-1].after == ("s0 to s1",)
    waiting = program_of(part(0, 2), part(1, 2, after="s0"))
    assert fused(waiting, 2, {"s0", "s1"}) == waiting


@pytest.mark.quick
@pytest.mark.parametrize(
    "other",
    [
        {"group": "node"},
        {"algorithms": "ring"},
        {"receive": "x[0/2]"},
        {"receive": "y[1/2]"},
        {"send": "y[1/2]"},
    ],
)
def test_different_steps_are_not_joined(other: dict[str, Any]) -> None:
    program = program_of(part(0, 2), {**part(1, 2), **other})
    assert fused(program, 2, names(program)) == program


def test_large_collectives_are_cut() -> None:
    whole = {"name": "s", "collective": "allreduce", "send": "x", "receive": "y"}
    after = {"name": "c", "compute": {"seconds": 0}, "after": ["s"]}
    program = program_of(whole, after, count=5000)
    found = cut(program, 4, {"s"})
    assert [step.name for step in found.steps] == [
        *("s part 1", "s part 2", "s part 3", "s part 4", "c")
    ]
    assert len(found.steps[-1].after) == 4
    check_equal(program, found)
    assert cut(program, 8, {"s"}) == program
    assert cut(program, 4, set()) == program


def test_parts_of_1024_elements_or_more_are_cut() -> None:
    whole = {"name": "s", "collective": "allreduce", "receive": "x"}
    for count, n_steps in ((2047, 1), (2048, 2)):
        found = cut(program_of(whole, count=count), 2, {"s"})
        assert len(found.steps) == n_steps
