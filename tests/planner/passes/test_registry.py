"""Options of passes, validated by the annotations of their functions."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import Field

from collplan.planner import compile_plan
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes import registry
from collplan.planner.passes.registry import check_options, is_number
from collplan.planner.plan.plan import COLUMNS, Op, Plan
from collplan.planner.plan.ragged import Dependencies
from collplan.planner.rewrite.rank_program import restrict
from collplan.specs import CollplanError, parse_spec
from oracle import make_spec


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": "segment", "max_bytes": 0}, "segment.max_bytes: 0 is not at least 1 byte"),
        ({"name": "segment", "max_bytes": "4 foo"}, "segment.max_bytes: '4 foo' is not a size; gi"),
        ({"name": "limit_requests", "node": "2"}, "limit_requests.node: '2' is not a number of"),
        ({"name": "double_buffer", "slots": 1}, "double_buffer.slots: 1 is not a number of at l"),
        ({"name": "share", "roles": "node"}, "share.roles: 'node' is not a list of roles; give"),
        ({"name": "place_progress", "policy": "x"}, "there is no 'x'; use one of bind, numa, odd"),
        ({"name": "coalesce_requests", "when": 1}, "when: 1 is neither; use round or ready"),
        ({"name": "coalesce_requests", "staging": None}, "staging: None is none; use remap, pack"),
        ({"name": "add_compute", "duration_ns": 1.0}, "duration_ns: 1.0 is not a number of ns fr"),
        ({"name": "split_tree", "levels": "all"}, "levels: 'all' is not a number of at least 0;"),
    ],
    ids=lambda one: one["name"] if isinstance(one, dict) else "",
)
def test_an_option_is_validated_by_its_annotation(options: dict[str, Any], complaint: str) -> None:
    spec = make_spec("alltoall", "linear", 3, count=2, passes=[options])
    with pytest.raises(AlgorithmError, match=rf"passes\.{options['name']}\..*") as caught:
        compile_plan(spec)
    (line,) = str(caught.value).splitlines()
    assert complaint in line


def test_annotations_without_a_text_explain_themselves() -> None:
    def thin(plan: Plan, every: Annotated[int, Field(ge=1)] = 2) -> Plan:
        return plan

    checked = check_options("thin", thin)
    for wrong, complaint in (
        (0, "0 is too small; give 1 or more"),
        ("2", "'2' is not a whole"),
    ):
        with pytest.raises(AlgorithmError, match=f"passes.thin.every: {complaint}"):
            checked(None, wrong)


def test_truth_values_and_small_integers_are_no_numbers_of_at_least_one() -> None:
    assert is_number(1, 1)
    assert not any(is_number(value, 1) for value in (0, -1, True, "2", 2.0, None))


def test_wrong_passes_of_ones_own_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(plan: Plan) -> Any:
        return None

    def failing(plan: Plan) -> Plan:
        return plan.replace(tag=plan.tags)  # type: ignore[attr-defined]

    def forgetful(plan: Plan) -> Plan:
        nobody = np.zeros(plan.n_tasks + 1, dtype=np.int64)
        return plan.replace(deps=Dependencies(nobody, nobody[:0], nobody[:0]))

    def astray(plan: Plan) -> Plan:
        is_send = plan.op == Op.SEND
        return plan.replace(peer=np.where(is_send, plan.rank, plan.peer))

    def tagging(plan: Plan) -> Plan:
        return plan.replace(tag=plan.tag + (plan.op == Op.SEND))

    def shortening(plan: Plan) -> Plan:
        return plan.replace(rank=plan.rank[:-1])

    def alone(plan: Plan) -> Plan:
        return restrict(plan, 0)

    def another(plan: Plan) -> Plan:
        return compile_plan(parse_spec(fields | {"passes": [], "machine": {"ranks_per_node": 8}}))

    def unnamed(plan: Plan) -> Plan:
        return plan.replace(origin=None)

    def in_place(plan: Plan) -> Plan:
        plan.peer[0] = 1
        return plan

    def dropping(plan: Plan) -> Plan:
        return plan.replace(**{name: getattr(plan, name)[1:] for name in COLUMNS})

    def waiting(plan: Plan) -> Plan:
        deps = plan.deps
        last = np.where(np.arange(len(deps.task)) == 0, plan.n_tasks - 1, deps.task)
        return plan.replace(deps=Dependencies(deps.indptr, last, deps.kind))

    def narrow(plan: Plan) -> Plan:
        return plan.replace(buffer_sizes=plan.buffer_sizes // 2)

    def refusing(plan: Plan) -> Plan:
        raise AlgorithmError("needs 3 ranks; use 3")

    known = {
        alone: "passes.mine: returns a plan whose only_rank is another one; change the given one",
        another: "passes.mine: returns a plan whose n_ranks is another one; change the given one",
        unnamed: "passes.mine: returns a plan whose origin is another one; change the given one",
        in_place: "passes.mine: ValueError: assignment destination is read-only (test_registry.py:",
        dropping: "passes.mine: reads.indptr must have n_tasks + 1 = ",
        waiting: "passes.mine makes the plan wrong: 2 tasks wait for each other: #",
        narrow: "passes.mine makes the plan wrong: task #0 reads send[0:8] of rank 0, whose send",
        refusing: "passes.mine: needs 3 ranks; use 3",
        nothing: "passes.mine: returns None; let it return a plan",
        failing: "passes.mine: AttributeError: 'Plan' object has no attribute 'tags'; did you ",
        forgetful: "passes.mine makes the plan wrong: nothing orders #",
        astray: "passes.mine makes the plan wrong: #",
        tagging: "passes.mine makes the plan wrong: #",
        shortening: "passes.mine: ",
    }
    monkeypatch.setattr(registry, "pass_registry", {**registry.pass_registry})
    fields = {"machine": {"ranks_per_node": 4}, "algorithms": "recursive_doubling",
              "collective": {"kind": "allreduce", "count": 8}, "passes": ["mine"]}  # fmt: skip
    for rewrite, expected in known.items():
        registry.pass_registry.pop("mine", None)
        registry.register_pass("mine", level="plan", locality="global")(rewrite)
        with pytest.raises(CollplanError) as refused:
            compile_plan(parse_spec(fields))
        line = str(refused.value)
        assert line.startswith(expected), line
        assert "\n" not in line


def given(plan: Plan, every: int = 2) -> Plan:
    return plan


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "function", "expected"),
    [
        (
            {"name": "segment"},
            given,
            "passes.segment: is there already; give yours another name",
        ),
        ({"level": "plans"}, given, "passes.mine: level is 'plans'; use blueprint or plan"),
        ({"locality": "all"}, given, "passes.mine: locality is 'all'; use rank or node or global"),
        ({}, 5, "passes.mine: 5 is no function; decorate one that returns a plan"),
        ({}, lambda: None, "passes.mine: the function takes no plan; let its first parameter be"),
        (
            {"takes_fold": True},
            given,
            "passes.mine: takes_fold is no parameter of register_pass, and no option of the pass; "
            "did you mean 'takes_folded'?",
        ),
        ({"name": ""}, given, "passes.: is no name; give a text"),
    ],
)
def test_a_wrong_registration_is_one_line(
    options: dict[str, Any], function: Any, expected: str
) -> None:
    known = dict(registry.pass_registry)
    with pytest.raises(AlgorithmError) as refused:
        registry.register_pass(**{"name": "mine", "level": "plan", "locality": "rank"} | options)(
            function
        )
    assert str(refused.value).startswith(expected)
    assert registry.pass_registry == known


def test_a_pass_is_registered_with_what_it_needs() -> None:
    with pytest.raises(CollplanError, match="register_pass: level is missing; call register_pass"):
        registry.register_pass("mine")  # type: ignore[call-arg]
