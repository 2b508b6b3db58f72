"""Decompositions in specs: names, mappings, nesting; exact round trips."""

from typing import Any

import pytest
from pydantic import ValidationError

from collplan.specs import DECOMPOSITIONS, Decomposition, parse_spec
from collplan.specs.request import PlanSpec


def nested(depth: int) -> Any:
    """Return decompositions nested `depth` deep, on both sides: 2**depth in all."""
    found: Any = "flat"
    for _ in range(depth):
        found = {"name": "hierarchical", "node": found, "lane": found}
    return found


ALL: list[Any] = [
    "flat",
    "auto",
    "full_lane",
    {"name": "multi_leader", "leaders": 2},
    {"name": "full_lane", "shares": "balanced"},
    {"name": "mesh", "shape": [2, 4]},
    {"name": "guideline", "form": "reduce+bcast"},
    {"name": "hierarchical", "by": "numa", "node": {"name": "mesh", "shape": [2, 2]}},
]


@pytest.mark.parametrize("written", ALL, ids=str)
def test_is_written_as_it_was_read(written: Any) -> None:
    spec = parse_spec(
        {
            "machine": {"nodes": 2, "ranks_per_node": 4},
            "collective": {"kind": "bcast", "count": 1},
            "decomposition": written,
        }
    )
    assert spec.decomposition.model_dump(mode="json") == written
    assert PlanSpec.model_validate_json(spec.to_json()) == spec
    assert isinstance(hash(spec.decomposition), int)


def test_a_line_says_it_all() -> None:
    shown = [str(Decomposition.model_validate(written)) for written in ALL]
    assert shown == [
        "flat",
        "auto",
        "full_lane",
        "multi_leader(leaders=2)",
        "full_lane(shares=balanced)",
        "mesh(shape=2x4)",
        "guideline(form=reduce+bcast)",
        "hierarchical(by=numa, node=mesh(shape=2x2))",
    ]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("ring", f"'ring' is not a decomposition; valid: {', '.join(DECOMPOSITIONS)}"),
        ({"shape": [2, 2]}, "a decomposition needs a name"),
        ({"name": "mesh"}, "mesh needs a shape of two or more"),
        ({"name": "mesh", "shape": [4]}, "mesh needs a shape of two or more"),
        ({"name": "mesh", "shape": [4, 0]}, "every extent is 1 or more"),
        ({"name": "multi_leader"}, "multi_leader needs leaders"),
        ({"name": "flat", "leaders": 2}, "flat has no leaders; it takes no options"),
        ({"name": "full_lane", "shape": [2, 2]}, "full_lane has no shape; it takes by, node, lane"),
        ({"name": "hierarchical", "shares": "balanced"}, "hierarchical has no shares"),
        ({"name": "full_lane", "shares": "fair"}, "shares"),
        ({"name": "full_lane", "node": "auto"}, "auto inside a decomposition"),
        ({"name": "mesh", "shape": [1] * 1000}, "at most 16 items"),
    ],
    ids=str,
)
def test_says_what_is_wrong(written: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Decomposition.model_validate(written)


@pytest.mark.parametrize("depth", [7, 200])
def test_depth_is_bounded_as_each_level_doubles_the_work(depth: int) -> None:
    Decomposition.model_validate(nested(6))
    with pytest.raises(ValidationError) as caught:
        Decomposition.model_validate(nested(depth))
    problem = caught.value.errors(include_input=False)[0]["msg"]
    assert problem.endswith("decompositions nested more than 6 deep; leave out the innermost")
