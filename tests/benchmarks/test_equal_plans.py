"""The comparison of two checkouts' plans: it finds what differs, and nothing if nothing does."""

from __future__ import annotations

import random
import sys

import pytest

from folders import BENCHMARKS, ROOT

sys.path.insert(0, str(BENCHMARKS))

import equal_plans
import journey

SPEC = {
    "machine": {"nodes": 2, "ranks_per_node": 2},
    "collective": {"kind": "allreduce", "count": 5, "datatype": "int32"},
}


def test_a_checkout_has_the_plans_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    results = [equal_plans.result_of(SPEC, random.Random(n)) for n in range(4)]
    again = [equal_plans.result_of(SPEC, random.Random(n)) for n in range(4)]
    assert equal_plans.report([SPEC] * 4, results, again, most=1) == 0
    assert "4 specs, 4 plans, 0 differ\ncorrupted plans: " in capsys.readouterr().out


def test_differences_are_named_by_column(capsys: pytest.CaptureFixture[str]) -> None:
    other = SPEC | {"algorithms": "ring"}
    one, two = (equal_plans.result_of(spec, random.Random(1)) for spec in (SPEC, other))
    assert equal_plans.report([SPEC], [one], [two], most=1) == 1
    out = capsys.readouterr().out
    assert "\n  plan.peer: " in out
    assert "\n  makespan_ns: " in out
    assert "\nprogram.spec differs in 1" in out


def test_what_is_refused_is_compared_too() -> None:
    wrong = {**SPEC, "algorithms": "rang"}
    result = equal_plans.result_of(wrong, random.Random(1))
    assert result["refused"].startswith("AlgorithmError: algorithms: allreduce has no 'rang'")


def test_the_journey_has_all_rooms_of_the_planner() -> None:
    found = journey.travel(ROOT / "examples" / "bcast_full_lane.yaml")
    folders = {file.rpartition("/")[0] for file in found.files}
    rooms = {"specs/machines", "planner/compiler", "planner/lowering", "planner/plan"}
    assert rooms | {"collplan/api"} <= folders
    assert "planner/verify" not in folders
    assert len(folders) < found.n_changes < found.calls.total()
