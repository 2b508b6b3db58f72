"""Options of passes, validated by the annotations of their functions."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from collplan.planner import compile_plan
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import check_options, is_number
from collplan.planner.plan.plan import Plan
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
