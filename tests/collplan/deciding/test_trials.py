"""Rules of trials: turns, budgets, and winners, for calls that take given times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from collplan.deciding.trials import (
    FIRST_COST_S,
    NATIVE,
    TURNS,
    Trial,
    calls_to_wait,
    why_not_faster,
)
from collplan.measure.statistics import LEAST

UNLIMITED_S = 1e9


def run(trial: Trial, call_s: Callable[[int, int], float]) -> list[list[int]]:
    """Run a trial to its end; a call's time depends on the contestant and the turn."""
    turns, turn = [], trial.next_turn()
    while turn:
        turns.append(turn)
        turn = trial.next_turn([call_s(one, len(turns) - 1) for one in turn])
    return turns


@pytest.mark.parametrize(("budget_s", "n_calls"), [(1.0, 2), (2.5, 3), (4.0, 4)])
def test_a_slow_plan_is_dropped_when_its_calls_have_cost_the_budget(
    budget_s: float, n_calls: int
) -> None:
    """Its calls take 2 s longer than native ones; its first call does not count."""
    trial = Trial(1, budget_s)
    run(trial, lambda one, _: 3.0 if one else 1.0)
    assert trial.plans == []
    assert trial.fastest() == NATIVE
    assert trial.times == [[1.0] * n_calls, [3.0] * n_calls]
    assert trial.excess_s == 2.0 * n_calls


@pytest.mark.parametrize("n_plans", [1, 2, 3])
def test_all_contestants_run_once_in_each_turn_which_begins_with_another_one(n_plans: int) -> None:
    trial = Trial(n_plans, UNLIMITED_S)
    turns = run(trial, lambda _one, _turn: 1.0)
    assert len(turns) == TURNS
    contestants = [NATIVE, *range(1, n_plans + 1)]
    for number, turn in enumerate(turns):
        first = number % len(contestants)
        assert turn == contestants[first:] + contestants[:first]
    assert [len(times) for times in trial.times] == [TURNS] * len(contestants)
    assert trial.next_turn() == []


def test_a_dropped_plan_leaves_the_others_in_the_trial() -> None:
    trial = Trial(2, 1.0)
    turns = run(trial, lambda one, _: (2.0, 5.0, 1.0)[one])
    assert turns[:3] == [[0, 1, 2], [1, 2, 0], [0, 2]]
    assert trial.plans == [2]
    assert trial.fastest() == 2
    assert trial.excess_s == 6.0


@pytest.mark.parametrize(
    ("plan_s", "winner"), [((0.5, 0.4), 2), ((0.4, 0.5), 1), ((1.0, 1.5), NATIVE)]
)
def test_the_fastest_plan_wins_if_it_is_faster_than_native(
    plan_s: tuple[float, float], winner: int
) -> None:
    """The first turn is a warm-up, in which everything is slow."""
    trial = Trial(2, UNLIMITED_S)
    run(trial, lambda one, turn: 9.0 if turn == 0 else (1.0, *plan_s)[one])
    assert trial.fastest() == winner
    assert trial.median_s(NATIVE) == 1.0
    assert [trial.median_s(one) for one in (1, 2)] == list(plan_s)


def test_a_gain_must_lie_beyond_the_noise() -> None:
    """A plan is faster in some turns and slower in others, and its median is less."""
    trial = Trial(1, UNLIMITED_S)
    run(trial, lambda one, turn: 1.0 if one == NATIVE else (0.9, 1.2)[turn % 5 > 2])
    assert trial.median_s(1) == 0.9
    assert trial.fastest() == NATIVE


def test_few_turns_decide_nothing() -> None:
    trial = Trial(1, UNLIMITED_S)
    turn = trial.next_turn()
    for _ in range(LEAST):
        assert trial.fastest() == NATIVE
        turn = trial.next_turn([0.5 if one else 1.0 for one in turn])
    assert trial.fastest() == NATIVE
    trial.next_turn([0.5 if one else 1.0 for one in turn])
    assert trial.fastest() == 1


def test_the_times_of_all_calls_lead_to_the_same_trial() -> None:
    """The helper of the preloaded library keeps no trials."""
    first = Trial(3, 4.0)
    times: list[float] = []
    turn = first.next_turn()
    while turn:
        again = Trial(3, 4.0)
        assert again.replay(times) == turn
        assert (again.times, again.excess_s) == (first.times, first.excess_s)
        spent_s = [(1.0, 0.8, 1.6, 1.1)[one] for one in turn]
        times += spent_s
        turn = first.next_turn(spent_s)
    again = Trial(3, 4.0)
    assert again.replay(times) == []
    assert again.fastest() == first.fastest() == 1
    for wrong in (times[:-1], [*times, 1.0]):
        with pytest.raises(ValueError, match="zip"):
            Trial(3, 4.0).replay(wrong)


def test_ranks_meet_after_twice_as_many_calls_until_a_trial_pays() -> None:
    n_calls, met_at = 2, []
    while more := calls_to_wait(n_calls, n_calls * 0.1, FIRST_COST_S, 0.1):
        met_at.append(n_calls)
        n_calls += more
    assert met_at == [2, 4, 8, 16]
    assert n_calls == 32  # which took 3.2 s, of which a tenth is more than 0.25 s


def test_reasons_name_the_plans_that_were_tried() -> None:
    assert why_not_faster(["ring", "shared"]) == "tried here, not faster: ring, shared"
