"""The joint choice: never slower than each step's best, remembered, with steps joined and cut."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.executors.cost import simulate
from collplan.planner.programs import compile_program, prove_program
from collplan.select.joint import (
    choose_jointly,
    has_auto,
    resolve_program,
    step_times,
    steps_apart,
)
from collplan.specs import ProgramSpec
from random_programs import differing_ranks

MACHINE = {"nodes": 2, "ranks_per_node": 2, "lanes": 2, "cores": 4}


def buckets(n: int, count: int, **fields: Any) -> ProgramSpec:
    """Return a program of computations, each followed by the sum of what it has made."""
    return ProgramSpec.model_validate(
        {
            "machine": MACHINE,
            "buffers": {"x": {"count": n * count, "datatype": "int32"}},
            "steps": [
                {
                    "repeat": n,
                    "steps": [
                        {
                            "name": "make {i}",
                            "compute": {"seconds": 2e-6},
                            "writes": f"x[{{i}}/{n}]",
                        },
                        {
                            "name": "sum {i}",
                            "collective": "allreduce",
                            "receive": f"x[{{i}}/{n}]",
                            "decomposition": "auto",
                        },
                    ],
                }
            ],
            **fields,
        }
    )


@pytest.mark.long
def test_the_choice_is_not_slower_than_each_steps_best() -> None:
    program = buckets(4, 256)
    found = choose_jointly(program)
    assert has_auto(program)
    assert not has_auto(found.program)
    plan = compile_program(found.program)
    assert simulate(plan).makespan_s == found.makespan_s < found.steps_best_s
    assert found.steps_best_s == sum(step_times(steps_apart(program)))
    assert found.steps_best_s <= sum(step_times(program, natively=True))
    assert differing_ranks(plan, 1) == []
    prove_program(plan)
    assert "times as long" in found.words
    # A later process finds the choice.
    choose_jointly.cache_clear()
    again = choose_jointly(program)
    assert (again.program, again.is_remembered) == (found.program, True)
    assert resolve_program(found.program) == found.program


@pytest.mark.long
def test_small_sums_are_joined() -> None:
    """Latency dominates: one sum of all parts takes less time than one for each part."""
    given = buckets(8, 2, machine={**MACHINE, "cores": 2})
    given = given.replace(steps=tuple(step for step in given.steps if step.collective))
    found = choose_jointly(given).program
    kinds = [step.collective.kind for step in found.steps if step.collective is not None]
    assert len(kinds) < 8
    assert differing_ranks(compile_program(found), 2) == []


def test_steps_with_a_method_keep_it() -> None:
    program = buckets(2, 8)
    named = program.replace(
        steps=tuple(
            step if step.compute else step.replace(decomposition={"name": "hierarchical"})
            for step in program.steps
        )
    )
    assert not has_auto(named)
    assert resolve_program(named) is named
