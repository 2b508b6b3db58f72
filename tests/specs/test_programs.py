"""Programs as users write them: ranges, groups, computations, repetitions, and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from collplan.specs import Machine, Network, PlanSpec, ProgramSpec, SpecError
from collplan.specs.loading import json_schema, load_request, load_spec, parse_program
from collplan.specs.programs.buffers import BufferRange
from collplan.specs.programs.computation import StepComputation
from collplan.specs.programs.groups import StepGroup
from folders import ROOT

EXAMPLES = sorted((ROOT / "examples" / "programs").glob("*.yaml"))
SUM = {"collective": "allreduce", "receive": "x"}
BASE: dict[str, Any] = {
    "machine": {"nodes": 2, "ranks_per_node": 2},
    "buffers": {"x": {"count": 16}, "y": {"count": 64}},
    "steps": [SUM],
}


def program(**fields: Any) -> ProgramSpec:
    return parse_program({**BASE, **fields})


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("x", (0, 10)),
        ("x[2:5]", (2, 5)),
        (" x [ 2 : ] ", (2, 10)),
        ("x[:3]", (0, 3)),
        ("x[0/3]", (0, 3)),
        ("x[2/3]", (6, 10)),
        ("x[0/1]", (0, 10)),
    ],
)
def test_ranges_have_bounds_and_a_text(text: str, bounds: tuple[int, int]) -> None:
    found = BufferRange.model_validate(text)
    assert found.bounds(10) == bounds
    assert BufferRange.model_validate(str(found)) == found
    assert found.model_dump() == str(found)


@pytest.mark.parametrize(
    ("group", "groups"),
    [
        ("all", ((0, 1, 2, 3, 4, 5),)),
        ("node", ((0, 2, 4), (1, 3, 5))),
        ("lane", ((0, 1), (2, 3), (4, 5))),
        ({"rows": [2, 3]}, ((0, 1, 2), (3, 4, 5))),
        ({"columns": [2, 3]}, ((0, 3), (1, 4), (2, 5))),
        ({"every": 4}, ((0, 4), (1, 5), (2,), (3,))),
        ({"ranks": [5, 1]}, ((5, 1),)),
        ({"ranks": [[5, 1], [0]]}, ((5, 1), (0,))),
    ],
)
def test_groups_of_ranks(group: Any, groups: tuple[tuple[int, ...], ...]) -> None:
    machine = Machine(nodes=2, ranks_per_node=3, rank_order="cyclic")
    found = StepGroup.model_validate(group)
    assert found.groups(machine) == groups
    assert StepGroup.model_validate(found.model_dump()) == found
    assert str(found)


def test_durations_of_computations() -> None:
    network = Network(copy_ns_per_byte=0.5, reduce_ns_per_byte=0.25)

    def durations(salt: str = "step", **fields: Any) -> list[int]:
        return StepComputation.model_validate(fields).durations_ns(3, network, salt)

    assert durations(seconds=1e-6) == [1000] * 3
    assert durations(seconds=[1e-6, 0, 2e-6]) == [1000, 0, 2000]
    assert durations(bytes="1KiB", operations=10) == [532] * 3
    drawn = durations(uniform=[1e-6, 2e-6])
    assert all(1000 <= one <= 2000 for one in drawn)
    assert drawn == durations(uniform=[1e-6, 2e-6]) != durations("other", uniform=[1e-6, 2e-6])
    assert drawn != durations(uniform=[1e-6, 2e-6], seed=1)
    assert min(durations(normal=[0, 1e-6], seed=3)) == 0 < max(durations(normal=[1e-6, 1e-9]))


def test_counts_and_datatypes_follow_from_buffers() -> None:
    steps = [
        {"collective": "allgather", "send": "x", "receive": "y"},
        {"collective": "alltoall", "receive": "y"},
        {"collective": "scatter", "send": "y", "receive": "x"},
        {"collective": "reduce", "receive": "x"},
        {"collective": {"kind": "reduce_scatter_block"}, "send": "y[0:8]", "receive": "x[0:2]"},
        {"collective": "barrier"},
        {"collective": "allgather", "send": "x", "receive": "y[0:32]", "group": "node"},
    ]
    found = program(steps=steps).steps
    assert [step.collective and step.collective.count for step in found] == [
        *(16, 16, 16, 16, 2, 0, 16)
    ]
    assert [step.name for step in found[:2]] == ["allgather 1", "alltoall 2"]
    assert [step.collective and step.collective.in_place for step in found] == [
        *(False, True, False, True, False, False, False)
    ]
    assert found[3].send == found[3].receive


def test_repetitions_are_written_out() -> None:
    inner = {
        "repeat": 2,
        "index": "j",
        "steps": [{**SUM, "name": "sum {i} {j}", "receive": "x[{j}/2]"}],
    }
    found = program(steps=[{"repeat": 2, "steps": [inner]}, {**SUM, "name": "last"}])
    assert [step.name for step in found.steps] == [
        *("sum 0 0", "sum 0 1", "sum 1 0", "sum 1 1", "last")
    ]
    assert str(found.steps[1].receive) == "x[1/2]"
    assert found.conflicts == ((0, 2), (1, 3), (0, 4), (1, 4), (2, 4), (3, 4))
    assert ProgramSpec.model_validate_json(found.to_json()) == found
    assert hash(ProgramSpec.model_validate_json(found.to_json())) == hash(found)


def test_a_step_may_be_stated_before_the_one_that_it_follows() -> None:
    steps = [{**SUM, "name": "one", "after": "two"}, {**SUM, "name": "two", "receive": "y"}]
    assert program(steps=steps).order == (1, 0)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_programs(path: Path) -> None:
    found = load_request(path)
    assert isinstance(found, ProgramSpec)
    with pytest.raises(SpecError, match="is a program, which has several collectives"):
        load_spec(path)
    assert isinstance(load_request(ROOT / "examples" / "allreduce.yaml"), PlanSpec)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_accepts_examples(path: Path) -> None:
    schema = json_schema(is_program=True)
    document = yaml.safe_load(path.read_text())
    jsonschema.validate(document, schema)
    document["steps"].append({"nmae": "x"})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"steps": []}, "steps is an empty list"),
        ({"steps": [{"name": "a"}]}, "step a: does nothing; give a collective or compute"),
        (
            {"steps": [{**SUM, "compute": {"seconds": 1}}]},
            "has both collective and compute; give a collective or compute",
        ),
        ({"steps": [{**SUM, "receive": "z"}]}, "there is no buffer z; the buffers are x, y"),
        ({"steps": [{**SUM, "receive": "x[2:20]"}]}, "x[2:20] ends behind x, which has 16"),
        ({"steps": [{**SUM, "receive": "x[5:2]"}]}, "x[5:2] ends before it begins"),
        ({"steps": [{**SUM, "receive": "x[3/3]"}]}, "x[3/3] is none of the parts 0 to 2"),
        ({"steps": [{**SUM, "receive": "x(1)"}]}, "'x(1)' is not a range of a buffer"),
        ({"steps": [{**SUM, "reads": "x"}]}, "reads is for computations"),
        ({"steps": [{"compute": {"seconds": 1}, "send": "x"}]}, "send is for collectives"),
        (
            {"steps": [{**SUM, "send": "x[0:4]", "receive": "x[2:6]"}]},
            "x[0:4] and x[2:6] overlap",
        ),
        (
            {"steps": [{"name": "c", "compute": {"seconds": 1}, "writes": ["x", "x[0:1]"]}]},
            "step c: x and x[0:1] overlap",
        ),
        (
            {"steps": [{**SUM, "name": "a", "after": "b"}, {**SUM, "name": "b"}]},
            "steps: a after b after a is a cycle",
        ),
        (
            {"steps": [{**SUM, "name": "first"}, {**SUM, "after": "frist"}]},
            "after names 'frist', which is no step; did you mean 'first'?",
        ),
        ({"steps": [{**SUM, "name": "a"}, {**SUM, "name": "a"}]}, "two steps have the name a"),
        ({"steps": [{**SUM, "group": "nodes"}]}, "use all, node or lane"),
        ({"steps": [{**SUM, "group": {}}]}, "names no ranks; give all, node, lane"),
        ({"steps": [{**SUM, "group": {"rows": [3, 2]}}]}, "a grid of 3 x 2 has 6 ranks"),
        ({"steps": [{**SUM, "group": {"ranks": [0, 4]}}]}, "ranks has rank 4, machine has 4"),
        ({"steps": [{**SUM, "group": {"ranks": [[0, 1], [1]]}}]}, "has rank 1 twice"),
        (
            {
                "steps": [
                    {"collective": {"kind": "bcast", "root": 3}, "receive": "x", "group": "node"}
                ]
            },
            "collective.root: 3 is not a rank",
        ),
        ({"steps": [{"compute": {}}]}, "has no duration; give seconds"),
        ({"steps": [{"compute": {"seconds": 1, "bytes": 2}}]}, "has bytes and seconds"),
        (
            {"steps": [{"compute": {"seconds": [1, 2]}}]},
            "seconds: 2 durations, machine has 4 ranks",
        ),
        ({"steps": [{"compute": {"uniform": [2, 1]}}]}, "2 is more than 1"),
        ({"steps": [{"repeat": -1, "steps": [SUM]}]}, "repeat: -1 is not a number of times"),
        ({"steps": [{"repeat": 2}]}, "repeat: give the repeated steps"),
        ({"steps": [{"repeat": 10**6, "steps": [SUM]}]}, "more than 10000 steps"),
        ({"buffers": {"2x": {"count": 1}}}, "'2x' is not a name of a buffer"),
        (
            {"steps": [SUM, {**SUM, "collective": {"kind": "scan", "op": "max"}, "name": "m"}]},
            "step m: max of float64, but step allreduce 1 has sum of float64",
        ),
        (
            {"buffers": {"x": {"count": 16}, "y": {"count": 3, "datatype": "int32"}}},
            "buffers.y: elements of 4 bytes, but step allreduce 1 combines elements of 8",
        ),
    ],
)
def test_mistakes_have_one_line_each(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError) as error:
        program(**fields)
    text = str(error.value)
    assert line in text
    assert all(part.strip() for part in text.splitlines())


def test_a_document_without_steps_is_no_program() -> None:
    with pytest.raises(SpecError, match="the document has no 'steps:'"):
        parse_program({"collective": {"kind": "bcast"}})
