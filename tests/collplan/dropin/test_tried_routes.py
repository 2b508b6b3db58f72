"""Routes of the drop-in that take turns in a trial, whose calls take given times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from collplan.deciding.trials import TURNS

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed: pip install '.[mpich]'")
tried_routes = pytest.importorskip("collplan.dropin.tried_routes")


def route() -> Any:
    return SimpleNamespace(row=SimpleNamespace(seconds=0.0))


def test_routes_take_turns_and_the_trial_gets_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    meetings: list[float] = []

    def greatest(_comm: Any, value: float) -> float:
        meetings.append(value)
        return value

    monkeypatch.setattr(tried_routes, "greatest", greatest)
    native, plan = route(), route()
    tried = tried_routes.TriedRoutes(native, [plan], 1e9)
    ran = []
    while (one := tried.next_route(MPI.COMM_SELF)) is not None:
        ran.append(one)
        one.row.seconds += 2.0 if one is native else 1.0
    assert ran[:4] == [native, plan, plan, native]
    assert len(ran) == 2 * TURNS
    assert tried.trial.times == [[2.0] * TURNS, [1.0] * TURNS]
    assert meetings == [0.0, *(2.0 if one is native else 1.0 for one in ran)]


def test_a_call_that_mpi_has_rejected_is_made_again_without_a_meeting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other ranks wait in the call, and would not come to a meeting."""
    meetings: list[float] = []
    monkeypatch.setattr(tried_routes, "greatest", lambda _, value: meetings.append(value) or value)
    native, plan = route(), route()
    tried = tried_routes.TriedRoutes(native, [plan], 1e9)
    assert tried.next_route(MPI.COMM_SELF) is native
    for _ in range(2):
        tried.repeat()
        assert tried.next_route(MPI.COMM_SELF) is native
    assert len(meetings) == 1
    native.row.seconds = 3.0
    assert tried.next_route(MPI.COMM_SELF) is plan
    assert meetings == [0.0, 3.0]


@pytest.mark.parametrize("native_s", [2.0, 3.0])
def test_the_decision_on_a_trial_is_postponed_until_it_pays(native_s: float) -> None:
    waiting = tried_routes.Waiting(lambda _comm: None, 2, {}, set())
    for n_calls in (2, 2, 4):
        assert waiting.n_left == n_calls
        for _ in range(n_calls):
            waiting(None)
        assert waiting.n_left == 0
        assert waiting.pays(native_s, 0.25, 0.1) == (native_s > 2.5)
        if native_s > 2.5:
            return
    assert waiting.n_left == 8
