"""Jobs of a comparison: results in order, time that is counted, and none begun without it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf
from time import thread_time

import pytest

import collplan.select.jobs as jobs_module
from collplan.select.jobs import Jobs
from collplan.select.sweep import price
from collplan.specs import AlgorithmChoice, PassChoice, PlanSpec, parse_spec


def work(seconds: float) -> float:
    """Work for some seconds; return them."""
    begin = thread_time()
    while thread_time() - begin < seconds:
        pass
    return seconds


def work_in_time(seconds: float, most_s: float) -> tuple[float, float]:
    """Work for some seconds; return for how many it was allowed to, too."""
    return work(seconds), most_s


def test_results_come_in_order_and_their_time_is_counted() -> None:
    told: list[tuple[str, int, int]] = []
    wanted = [0.02, 0.0, 0.01]
    with ThreadPoolExecutor(2) as executor:
        jobs = Jobs(executor, lambda *one: told.append(one), seconds=10)
        assert jobs.n_workers == 2
        assert jobs.run("working", work, wanted, len(wanted)) == tuple(wanted)
    assert told == [("working", n, 3) for n in (1, 2, 3)]
    assert jobs.used_s >= sum(wanted)
    assert jobs.left_s == pytest.approx(20 - jobs.used_s)


def test_without_a_limit_time_is_endless() -> None:
    jobs = Jobs(None, None, seconds=None)
    assert jobs.estimate(work_in_time, [0.01] * 3) == ((0.01, inf),) * 3
    assert jobs.left_s == inf


def test_no_more_is_estimated_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "LEAST_ESTIMATING_S", 0.005)
    ((_, most_s),) = Jobs(None, None, seconds=0).estimate(work_in_time, [0.01] * 3)
    assert most_s == 0.005


def test_estimates_leave_time_for_simulations() -> None:
    jobs = Jobs(None, None, seconds=0.01)
    jobs.estimate(work_in_time, [0.03] * 2)
    assert jobs.left_s == pytest.approx((1 - jobs_module.ESTIMATING) * 0.01)


def test_plans_may_take_a_share_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "free_bytes", lambda: 1200)
    assert Jobs(None, None, None).most_effort() == 1


@pytest.mark.parametrize(("passes", "n_jobs"), [((), 1), ((PassChoice(name="prioritize"),), 2)])
def test_specs_that_may_share_a_plan_are_one_job(
    passes: tuple[PassChoice, ...], n_jobs: int
) -> None:
    told: list[int] = []
    jobs = Jobs(None, lambda _what, _n_done, n: told.append(n), seconds=None)
    spec = parse_spec(
        {"machine": {"nodes": 2}, "collective": {"kind": "bcast", "count": 4}}
    ).replace(passes=passes)
    specs = [spec, spec.with_count(8)]
    found = [one.makespan_s for one in jobs.price("simulating", specs, [1, 2])]
    assert told == [n_jobs] * n_jobs
    assert found == [price(one).makespan_s for one in specs]


def test_the_longest_group_comes_first_and_prices_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[list[int]] = []

    def price_noted(specs: list[PlanSpec]) -> tuple[int, ...]:
        begun.append([spec.collective.count for spec in specs])
        return tuple(begun[-1])

    monkeypatch.setattr(jobs_module, "price_all", price_noted)
    chain = parse_spec(
        {"machine": {"nodes": 2}, "collective": {"kind": "bcast", "count": 1},
         "algorithms": "chain"}
    )  # fmt: skip
    binomial = chain.replace(algorithms=AlgorithmChoice(name="binomial"))
    specs = [chain.with_count(1), binomial.with_count(2), chain.with_count(3)]
    found = Jobs(None, None, None).price("simulating", specs, [3, 4, 2])
    assert begun == [[1, 3], [2]]
    assert list(found) == [1, 2, 3]
