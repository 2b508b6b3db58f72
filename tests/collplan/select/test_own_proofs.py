"""Algorithms of the user's own are proved before they are compared."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.planner.algorithms.registry import algorithm, registry
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.errors import PlanError
from collplan.reports.comparison import print_comparison
from collplan.select.candidates import own_form
from collplan.select.comparison import compare
from collplan.select.own_proofs import prove_own, uses_own
from collplan.specs import CollplanError, PlanSpec, parse_spec


def only_itself(group: Group) -> Rounds:
    me = group.positions
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))


def straight(group: Group) -> Rounds:
    me = group.positions
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for t in range(1, group.size):
        block = at(group.output, me)
        yield Round(Message(me, (me + t) % group.size, block, block))


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**registry._algorithms["allgather"]}
    monkeypatch.setitem(registry._algorithms, "allgather", known)
    algorithm("allgather", "wrong")(only_itself)
    algorithm("allgather", "straight")(straight)
    prove_own.cache_clear()


def spec(algorithms: str, machine: dict[str, Any] | None = None) -> PlanSpec:
    collective = {"kind": "allgather", "count": 3}
    fields = {"machine": machine or {"nodes": 2, "ranks_per_node": 2}, "collective": collective}
    return parse_spec(fields | {"algorithms": algorithms})


def test_a_wrong_algorithm_that_the_spec_names_is_an_error() -> None:
    with pytest.raises(PlanError, match=r"wrong: rank 0 .* nothing writes it"):
        compare([spec("wrong")], patterns=["ring"])


def test_a_wrong_algorithm_is_no_candidate_of_other_specs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = compare([spec("ring")], patterns=["ring", "straight"])
    assert "straight" in found.specs
    assert "wrong" not in found.specs
    assert found.refused["wrong"].startswith("is wrong: rank 0 recv[3] holds undefined memory")
    print_comparison(found, is_all=False)
    printed = capsys.readouterr().out
    assert "left out: wrong is wrong: rank 0 recv[3]" in printed
    assert "more candidates that are wrong; --all gives the reasons" in printed
    with pytest.raises(CollplanError, match="--candidates: wrong is wrong: rank 0"):
        compare([spec("ring")], patterns=["wrong"])


def test_plans_that_are_too_large_are_proved_on_few_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collplan.planner.passes.registry.VERIFY_LIMIT", 500)
    large = {"nodes": 8, "ranks_per_node": 8}
    prove_own(spec("straight", large))
    with pytest.raises(PlanError, match="rank 0"):
        prove_own(spec("wrong", large))


def test_only_algorithms_of_others_count() -> None:
    assert [
        uses_own(form, "allgather")
        for name in ("straight", "ring", "full_lane")
        if (form := own_form(spec(name) if name != "full_lane" else full_lane()))
    ] == [True, False, False]


def full_lane() -> PlanSpec:
    return spec("auto").replace(decomposition="full_lane")
