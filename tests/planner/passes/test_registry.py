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
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import Dependencies
from collplan.specs import CollplanError, parse_spec
from oracle import make_spec


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

    known = {
        nothing: "passes.mine: returns None; let it return a plan",
        failing: "passes.mine: AttributeError: 'Plan' object has no attribute 'tags' (",
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
