"""Options of calls that follow a table: values out of range name what is wrong."""

from __future__ import annotations

import pytest

from collplan.deciding.options import CallOptions, check_choices, parse_native_calls
from collplan.specs import CollplanError, SpecError
from collplan.tables.table import parse_table
from tables_everywhere import planning_table


@pytest.mark.parametrize("text", ["abc", "-1", "9" * 20, ""])
def test_a_number_of_native_calls_that_is_none_names_its_variable(
    text: str,
) -> None:
    with pytest.raises(CollplanError, match=r"COLLPLAN_NATIVE_CALLS: .* give 0 to 1000000000"):
        parse_native_calls(text)


def test_no_number_is_the_default() -> None:
    assert parse_native_calls(None) is None
    assert parse_native_calls("7") == 7


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("max_plans", 0, "keep at least 1"), ("native_calls", -1, "give 0 to plan from the first")],
)
def test_limits_out_of_range_are_named(name: str, value: int, words: str) -> None:
    with pytest.raises(CollplanError, match=f"^{name} is {value}; {words}"):
        CallOptions(**{name: value})


def test_winners_that_do_not_exist_are_named_with_what_does() -> None:
    document = planning_table(2, ("bcast",)).model_dump(mode="json")
    check_choices(parse_table(document))
    for sweep in document["sweeps"]:
        for choice in sweep["choices"].values():
            if not choice.get("native"):
                choice["algorithms"] = "no_such"
    with pytest.raises(SpecError, match=r"'no_such', which does not exist; valid: .*binomial"):
        check_choices(parse_table(document))
