"""Plans of programs: composed, executed beside numpy, proved, and refuted when corrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.api.examining import level_of, verify
from collplan.executors.cost import simulate
from collplan.planner import memory
from collplan.planner.arrays import csr
from collplan.planner.compiler import compile_folded
from collplan.planner.compiler.ranks import BYTES_PER_TASK
from collplan.planner.errors import (
    AlgorithmError,
    AsymmetricError,
    DeadlockError,
    MemoryLimitError,
    PlanError,
    RaceError,
    StepError,
)
from collplan.planner.formats.npz import load, save
from collplan.planner.formats.text import headline, to_text
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import Dependencies
from collplan.planner.programs import compile_program, prove_program
from collplan.planner.programs.compose import step_rows
from collplan.planner.programs.groups import machine_of_group
from collplan.planner.rewrite.rank_program import restrict
from collplan.specs import Machine, ProgramSpec, SpecError
from looping import looped
from random_programs import differing_ranks, random_program

MACHINE = {"nodes": 2, "ranks_per_node": 2, "lanes": 2}


def program_of(*steps: dict[str, Any], **fields: Any) -> ProgramSpec:
    buffers = {name: {"count": 16, "datatype": "int32"} for name in "xy"}
    document = {"machine": MACHINE, "buffers": buffers, "steps": steps, **fields}
    return ProgramSpec.model_validate(document)


def two_sums(**fields: Any) -> ProgramSpec:
    """Return a program of a sum in place, and of another one of its results."""
    return program_of(
        {"name": "first", "collective": "allreduce", "receive": "x", "algorithms": "ring"},
        {
            "name": "second",
            "collective": "allreduce",
            "send": "x",
            "receive": "y",
            "algorithms": "ring",
        },
        **fields,
    )


@looped("seed", range(120))
def test_random_programs_do_what_their_steps_do(seed: int) -> None:
    plan = compile_program(random_program(seed))
    assert differing_ranks(plan, seed) == []
    if seed % 8 == 0:
        prove_program(plan)


def test_buffers_lie_one_after_another_and_steps_wait_for_data_only() -> None:
    plan = compile_program(two_sums())
    assert [row.number for row in step_rows(plan)] == [0, 1]
    assert plan.buffer_sizes[:, 0].tolist() == [0] * 4
    assert set(plan.buffer_sizes[:, 1].tolist()) == {32}
    assert headline(plan) == "a program of 2 steps, 4 ranks"
    assert "phase 1 second: allreduce/ring" in to_text(plan)
    # The second step begins on the first chunks while the first step still sends others.
    timeline = simulate(plan)
    first, second = step_rows(plan)
    begins = timeline.start_ns[second.first : second.end][plan.op[second.first :] != Op.RECV]
    assert begins.min() < timeline.end_ns[first.first : first.end].max()


def test_steps_without_common_elements_overlap() -> None:
    apart = program_of(
        {"collective": "allreduce", "receive": "x"}, {"collective": "allreduce", "receive": "y"}
    )
    together = simulate(compile_program(apart)).makespan_ns
    one_by_one = [
        simulate(compile_program(apart.replace(steps=(step,)))).makespan_ns for step in apart.steps
    ]
    assert together < sum(one_by_one)
    ordered = program_of(
        {"name": "one", "collective": "allreduce", "receive": "x"},
        {"name": "two", "collective": "allreduce", "receive": "y", "after": "one"},
    )
    plan = compile_program(ordered)
    timeline = simulate(plan)
    one, two = step_rows(plan)
    for rank in range(4):
        rows = [np.arange(step.first, step.end) for step in (one, two)]
        ends, begins = (
            times[some[plan.rank[some] == rank]]
            for times, some in zip((timeline.end_ns, timeline.start_ns), rows, strict=True)
        )
        assert ends.max() <= begins.min()


def test_computations_of_a_rank_follow_one_another() -> None:
    program = program_of(
        {"compute": {"seconds": [1e-6, 2e-6, 3e-6, 4e-6]}},
        {"compute": {"seconds": 1e-6}, "group": {"ranks": [0, 3]}},
        {"compute": {"seconds": 1e-6}},
    )
    timeline = simulate(compile_program(program))
    plan = timeline.plan
    ends = [timeline.end_ns[plan.rank == rank].max() for rank in range(4)]
    assert ends == [3000.0, 3000.0, 4000.0, 6000.0]


def test_groups_of_different_sizes_have_plans_of_their_own() -> None:
    program = program_of(
        {
            "collective": "allreduce",
            "receive": "x",
            "group": {"ranks": [[0, 1, 2], [3]]},
        }
    )
    plan = compile_program(program)
    assert differing_ranks(plan, 0) == []
    assert set(plan.rank[plan.op == Op.SEND].tolist()) == {0, 1, 2}


@pytest.mark.quick
@pytest.mark.parametrize("group", [(0, 1, 2, 3), (3, 0), (1,), (2, 3)])
def test_the_machine_of_a_group_has_its_nodes(group: tuple[int, ...]) -> None:
    machine = Machine.model_validate({**MACHINE, "cores": 4})
    found = machine_of_group(machine, group)
    nodes = sorted({machine.rank_to_node[rank] for rank in group})
    assert (found.n_ranks, found.nodes) == (len(group), len(nodes))
    assert (found.cores_per_node, found.n_lanes) == (4, 2)
    assert [nodes[node] for node in found.rank_to_node] == [
        machine.rank_to_node[rank] for rank in group
    ]


def buckets(nodes: int, local: int, decomposition: str, **fields: Any) -> ProgramSpec:
    """Return a program of computations, each followed by the sum of what it has made."""
    steps = [
        {"name": "make {i}", "compute": {"seconds": 2e-6}, "writes": "x[{i}/3]"},
        {
            "name": "sum {i}",
            "collective": "allreduce",
            "receive": "x[{i}/3]",
            "decomposition": decomposition,
        },
    ]
    return ProgramSpec.model_validate(
        {
            "machine": {
                "nodes": nodes,
                "ranks_per_node": local,
                "cores": 2 * local,
                "lanes": 2,
            },
            "buffers": {"x": {"count": 3000, "datatype": "int32"}},
            "steps": [{"repeat": 3, "steps": steps}],
            "passes": ["place_progress"],
            **fields,
        }
    )


@pytest.mark.quick
@pytest.mark.parametrize("shape", [(4, 4), (8, 2), (4, 1)])
@pytest.mark.parametrize("decomposition", ["flat", "full_lane", "hierarchical"])
def test_folded_programs_take_the_same_time(shape: tuple[int, int], decomposition: str) -> None:
    program = buckets(*shape, decomposition)
    folded, whole = compile_program(program, compile_folded), compile_program(program)
    assert folded.n_copies == shape[0]
    assert folded.n_tasks * folded.n_copies == whole.n_tasks
    assert simulate(folded).makespan_ns == simulate(whole).makespan_ns


@pytest.mark.quick
@pytest.mark.parametrize(
    ("step", "line"),
    [
        ({"compute": {"uniform": [0, 1e-6]}}, "computes differently on different nodes"),
        ({"compute": {"seconds": 1e-6}, "group": {"ranks": [0]}}, "computes differently"),
        ({"collective": "allreduce", "receive": "x[0/3]"}, "use the same elements"),
        ({"collective": "allreduce", "receive": "y", "group": "lane"}, "in different ways"),
    ],
)
def test_programs_whose_nodes_differ_are_not_folded(step: dict[str, Any], line: str) -> None:
    program = buckets(4, 2, "flat")
    document = program.model_dump(mode="json")
    document["steps"].append(step)
    document["buffers"]["y"] = {"count": 8, "datatype": "int32"}
    with pytest.raises(AsymmetricError, match=line):
        compile_program(ProgramSpec.model_validate(document), compile_folded)


def test_programs_that_do_not_fit_into_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = two_sums()
    n_bytes = compile_program(program).n_tasks * BYTES_PER_TASK
    monkeypatch.setattr(memory, "LARGE_BYTES", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda: n_bytes)
    compile_program(program)
    monkeypatch.setattr(memory, "free_bytes", lambda: n_bytes - 1)
    with pytest.raises(MemoryLimitError, match="are free; use fewer ranks"):
        compile_program(program)


def without_edges(plan: Plan, before: slice, after: slice) -> Plan:
    """Return a plan without the dependencies between the rows of two steps."""
    deps, owner = plan.deps, plan.deps.owner()
    crosses = (deps.task >= before.start) & (deps.task < before.stop)
    crosses &= (owner >= after.start) & (owner < after.stop)
    kept = ~crosses
    indptr = csr.indptr_of(owner[kept], plan.n_tasks)
    return plan.replace(deps=Dependencies(indptr, deps.task[kept], deps.kind[kept]))


def test_a_dropped_dependency_between_steps_is_refuted() -> None:
    plan = compile_program(two_sums())
    first, second = step_rows(plan)
    rows = (slice(first.first, first.end), slice(second.first, second.end))
    with pytest.raises(RaceError, match=r"\(steps: first, second\)|\(steps: second, first\)"):
        verify(without_edges(plan, *rows))


def test_a_swapped_buffer_is_refuted() -> None:
    plan = compile_program(two_sums())
    swapped = compile_program(
        program_of(
            {"name": "first", "collective": "allreduce", "receive": "y", "algorithms": "ring"},
            {
                "name": "second",
                "collective": "allreduce",
                "send": "x",
                "receive": "y",
                "algorithms": "ring",
            },
        )
    )
    wrong = swapped.replace(origin=plan.origin)
    with pytest.raises(StepError, match=r"step first: .* but its collective has"):
        verify(wrong)
    with pytest.raises(StepError, match="buffer_sizes is not that of"):
        verify(swapped.replace(buffer_sizes=swapped.buffer_sizes + 1, origin=plan.origin))
    with pytest.raises(StepError, match="tasks, its steps have"):
        verify(
            compile_program(two_sums().replace(steps=two_sums().steps[:1])).replace(
                origin=plan.origin
            )
        )


def test_an_order_that_deadlocks_is_refuted() -> None:
    plan = compile_program(two_sums())
    first, second = step_rows(plan)
    rank = int(plan.rank[first.first])
    last = max(row for row in range(second.first, second.end) if plan.rank[row] == rank)
    after = np.append(plan.deps.owner(), first.first)
    before = np.append(plan.deps.task, last)
    kind = np.append(plan.deps.kind, 0)
    order = np.lexsort((before, after))
    indptr = csr.indptr_of(after[order], plan.n_tasks)
    wrong = plan.replace(deps=Dependencies(indptr, before[order], kind[order]))
    with pytest.raises(DeadlockError, match=r"steps: .*first"):
        verify(wrong)


def test_a_later_step_that_comes_first_is_refuted() -> None:
    """A plan without races may still use an element in the wrong order."""
    program = program_of(
        {"name": "write", "compute": {"seconds": 0}, "writes": "x"},
        {"name": "read", "compute": {"seconds": 0}, "reads": "x"},
    )
    plan = compile_program(program)
    n = plan.n_ranks
    indptr = np.minimum(np.arange(2 * n + 1), n)
    turned = Dependencies(indptr, np.arange(n, 2 * n), np.zeros(n, dtype=np.int8))
    with pytest.raises(PlanError, match="read"):
        verify(plan.replace(deps=turned))


def test_plan_files_keep_programs(tmp_path: Path) -> None:
    plan = compile_program(two_sums())
    path = tmp_path / "program.plan"
    save(plan, path)
    found = load(path)
    assert found.program == plan.program
    assert (found.spec, found.machine) == (None, plan.machine)
    assert [phase.step for phase in found.phases] == ["first", "second"]
    assert level_of(found) is None
    assert simulate(found).makespan_ns == simulate(plan).makespan_ns


def test_the_program_of_a_rank_has_its_rows() -> None:
    plan = compile_program(two_sums())
    own = restrict(plan, 2)
    assert own.n_tasks == (plan.rank == 2).sum()
    assert own.program == plan.program


def test_passes_of_a_program_place_tasks_and_do_nothing_else() -> None:
    machine = {**MACHINE, "cores": 4}
    placed = compile_program(two_sums(machine=machine, passes=["place_progress"]))
    assert (placed.core != placed.rank_core[placed.rank]).any()
    prove_program(placed)
    assert differing_ranks(placed, 0) == []
    with pytest.raises(AlgorithmError, match="it changes what tasks do"):
        compile_program(two_sums(passes=[{"name": "segment", "max_bytes": 8}]))
    with pytest.raises(AlgorithmError, match="it rewrites a collective"):
        compile_program(two_sums(passes=["map_ranks"]))


def test_cores_that_a_step_reserves_are_those_of_all_steps() -> None:
    machine = {**MACHINE, "cores": 4}
    step = {"collective": "allreduce", "passes": ["place_progress"]}
    one = program_of({**step, "receive": "x"}, {**step, "receive": "y"}, machine=machine)
    assert differing_ranks(compile_program(one), 0) == []
    group = program_of({**step, "receive": "x", "group": "node"}, machine=machine)
    with pytest.raises(AlgorithmError, match="reserve cores for a group"):
        compile_program(group)
    numa = {"name": "place_progress", "policy": "numa"}
    other = program_of(
        {**step, "receive": "x"},
        {**step, "receive": "y", "passes": [numa]},
        machine={**machine, "numa_domains": 2},
    )
    compile_program(other)  # both spread ranks in the same way


@pytest.mark.quick
@pytest.mark.parametrize(
    ("step", "line"),
    [
        (
            {"collective": "allgather", "send": "x[0:4]", "receive": "y[0:12]"},
            "y[0:12] has 12 elements, allgather of 4 elements on 4 ranks uses 16 of receive",
        ),
        ({"collective": "allreduce", "send": "x"}, "receive is missing"),
        (
            {"collective": {"kind": "allreduce", "datatype": "float32"}, "receive": "x"},
            "receive has elements of int32, collective.datatype is float32",
        ),
        (
            {"collective": {"kind": "bcast", "count": 5}, "receive": "x"},
            "x has 16 elements, bcast of 5 elements on 4 ranks uses 5 of receive",
        ),
    ],
)
def test_ranges_must_fit_their_collectives(step: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError) as error:
        compile_program(program_of(step))
    assert line in str(error.value)
    assert "\n" not in str(error.value)
