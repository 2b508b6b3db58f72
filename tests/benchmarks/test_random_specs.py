"""The fuzzer of specs: it finds nothing in some hundred cases, and says what it finds."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import pytest

from folders import BENCHMARKS
from tiers import some

sys.path.insert(0, str(BENCHMARKS))

import random_specs

N_CASES = 320
"""Number of cases; a share of them takes seconds."""


@pytest.mark.long
def test_random_specs_are_proved_and_compute_what_numpy_does() -> None:
    outcomes = []
    for number in some(range(N_CASES), "random specs"):
        document, outcome = random_specs.run_case(7, number)
        assert outcome in (random_specs.PASSED, random_specs.REFUSED), (number, outcome, document)
        outcomes.append(outcome)
    assert outcomes.count(random_specs.PASSED) > len(outcomes) // 3


def test_what_is_found_is_named_by_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(*_: Any, **__: Any) -> None:
        raise AssertionError("rank 1 got 7")

    monkeypatch.setattr(random_specs, "check_result", wrong)
    spec = {"machine": {"ranks_per_node": 2}, "collective": {"kind": "bcast", "count": 1}}
    with pytest.raises(random_specs.Failure, match="run: AssertionError: rank 1 got 7"):
        random_specs.check(spec, random.Random(1))
    monkeypatch.setattr(random_specs, "random_document", lambda _: spec)
    monkeypatch.setattr(sys, "argv", ["random_specs.py", "--seconds", "0.01", "--seed", "3"])
    assert random_specs.main() == 1
    first, second, *_, last = capsys.readouterr().out.splitlines()
    assert first == "case 0: run: AssertionError: rank 1 got 7"
    assert json.loads(second) == spec
    assert last.endswith("failed in run")


def test_a_spec_that_is_refused_is_no_failure() -> None:
    spec = {"machine": {"ranks_per_node": 2}, "collective": {"kind": "bcast", "count": -1}}
    assert random_specs.check(spec, random.Random(1)) == random_specs.REFUSED


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling"])
def test_bits_are_compared(algorithm: str) -> None:
    collective = {"kind": "allreduce", "count": 3, "datatype": "float64"}
    spec = {"machine": {"ranks_per_node": 4}, "collective": collective, "algorithms": algorithm}
    assert random_specs.check(spec, random.Random(1)) == random_specs.PASSED
