"""Waves of simulations: what is pruned could not win, and what lacks memory may still."""

from __future__ import annotations

from itertools import cycle
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

import collplan.select.sweep as sweep
from collplan.executors.cost import simulate
from collplan.select.auto import resolve
from collplan.select.comparison import compare
from collplan.select.estimate import estimate
from collplan.select.jobs import PLAN_EFFORT, TASK_S, Jobs
from collplan.select.sweep import Price, compile_priced
from collplan.select.waves import MAX_TASKS, Ratios, _first, price_in_time
from collplan.specs import PlanSpec, parse_spec
from comparing import MACHINES, compare_sizes, spec_of
from oracle import REGULAR

OTHERS = [name for name in MACHINES if name != "lanes"]


@pytest.mark.many
@pytest.mark.usefixtures("priced_once")
@pytest.mark.parametrize(
    ("machine", "kind"),
    [("lanes", kind) for kind in ("bcast", "allreduce", "alltoall")]
    + list(zip(cycle(OTHERS), REGULAR[::2], strict=False)),
)
@pytest.mark.long
def test_pruning_costs_less_than_one_percent(kind: str, machine: str) -> None:
    """One kind of each structure on a machine with lanes, and half on the others in turns."""
    counts = (0,) if kind == "barrier" else (3, 2_000) if kind == "bcast" else (2_000,)
    pruned = compare_sizes(kind, MACHINES[machine], counts)
    whole = compare_sizes(kind, MACHINES[machine], counts, prune=False)
    assert not whole.pruned
    # Plans that are left out would win by less than 1 %.
    assert pruned.best.keys() == whole.best.keys()
    for size, name in whole.best.items():
        assert pruned.makespans[pruned.best[size], size] <= 1.01 * whole.makespans[name, size]
    assert pruned.makespans.items() <= whole.makespans.items()
    for one in pruned.pruned:
        time = whole.makespans[one.candidate, one.bytes]
        least = whole.makespans[whole.best[one.bytes], one.bytes]
        assert time >= least
        if one.by == "bound":
            assert time >= one.bound_s > least
    for (_, size), time in whole.makespans.items():
        assert time >= 0.999 * whole.bounds[size].time_s


@pytest.mark.many
@pytest.mark.usefixtures("priced_once")
@pytest.mark.parametrize(
    ("kind", "distribution"),
    [("gatherv", "spike"), ("allgatherv", "linear"), ("alltoallv", "zipf")],
)
@pytest.mark.long
def test_pruning_never_removes_the_winner_of_unlike_blocks(kind: str, distribution: str) -> None:
    counts = {"distribution": distribution, "total": 20_000, "seed": 4}
    machine = {"preset": "hydra", "nodes": 3, "ranks_per_node": [2, 4, 3], "numa_domains": 1}
    spec = parse_spec({"machine": machine, "collective": {"kind": kind, "counts": counts}})
    pruned, whole = (compare([spec], prune=is_pruned) for is_pruned in (True, False))
    for size, name in whole.best.items():
        least = whole.makespans[name, size]
        assert pruned.makespans[pruned.best[size], size] == least
        assert size == 8 * counts["total"]
        for one in pruned.pruned:
            assert whole.makespans[one.candidate, size] >= max(least, one.bound_s)


def test_bounds_prune_where_closed_forms_do_not() -> None:
    comparison = compare_sizes("allreduce", MACHINES["lanes"], (60_000,))
    assert {one.by for one in comparison.pruned} >= {"bound"}
    assert len(comparison.pruned) + len(comparison.makespans) == len(comparison.specs)


def test_plans_that_memory_does_not_hold_may_still_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that find no memory when they are compiled are left out, not impossible."""
    spec = spec_of("allreduce", MACHINES["lanes"], 4096)
    before = compare([spec], patterns=["flat"])
    ((size, best),) = before.leading.items()

    priced = sweep.price

    def price(wanted: PlanSpec) -> Price:
        if wanted == before.specs[best]:
            return Price(None, 0, "the plan takes about 9 GiB", lacks_memory=True)
        return priced(wanted)

    monkeypatch.setattr(sweep, "price", price)
    found = compare([spec], patterns=["flat"])
    assert best not in found.refused
    assert found.leading[size] != best
    assert [one.candidate for one in found.pruned if one.by == "memory"] == [best]


def test_specs_are_priced_as_far_as_the_time_suffices() -> None:
    jobs, spec = Jobs(None, None, None), spec_of("bcast", MACHINES["lanes"], 4096)
    (makespan_s,) = price_in_time([spec], "crossovers", inf, jobs)
    assert makespan_s == simulate(compile_priced(spec)).makespan_s
    takes_s = TASK_S * (PLAN_EFFORT + estimate(resolve(spec))[0].effort)
    assert price_in_time([spec, spec], "crossovers", 1.5 * takes_s, jobs) == [makespan_s, None]
    assert price_in_time([spec, spec], "crossovers", 0.0, jobs) == [None, None]


def entry_in_segments(segment: int | None, effort: int = MAX_TASKS + 1) -> Any:
    method = SimpleNamespace(decomposition=SimpleNamespace(name="full_lane"), transport="messages")
    form = SimpleNamespace(name="pipelined", method=method)
    estimate = SimpleNamespace(effort=effort, identity=str(segment), cut=segment)
    machine = SimpleNamespace(network=SimpleNamespace(topology=None))
    base = SimpleNamespace(machine=machine)
    name = f"pipelined {segment}"
    return SimpleNamespace(name=name, form=form, cut=segment, estimate=estimate, base=base)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("known", "segment", "expected"),
    [
        ({1 << 16: 0.9, 1 << 17: 1.0}, 1 << 15, 0.81),
        ({1 << 16: 0.9, 1 << 17: 1.0, 1 << 18: 9.0}, 1 << 15, 0.81),
        ({1 << 16: 0.9, 1 << 17: 1.0}, 1 << 12, 0.81),  # the trend goes on for one octave
        ({1 << 16: 0.81, 1 << 18: 1.0}, 1 << 15, 0.729),
        ({1 << 16: 1.0, 1 << 17: 0.9}, 1 << 15, None),
        ({1 << 16: 0.9, 1 << 17: 1.0}, 1 << 16, None),
        ({1 << 16: 0.9, 1 << 17: 1.0}, None, None),
        ({}, 1 << 15, None),
    ],
)
def test_ratios_of_longer_segments_go_on(
    known: dict[int, float], segment: int | None, expected: float | None
) -> None:
    trend = Ratios({}, {}, {"pipelined": known})._trend(entry_in_segments(segment))
    assert trend == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("effort", "expected"), [(MAX_TASKS + 1, 0.81 / 0.97), (MAX_TASKS, 0.95)])
def test_large_plans_are_judged_by_the_trend_of_their_form(effort: int, expected: float) -> None:
    of_class: Any = {("full_lane", "messages", 1 << 17): [0.95]}
    ratios = Ratios({}, of_class, {"pipelined": {1 << 16: 0.9, 1 << 17: 1.0}})
    assert ratios.least(entry_in_segments(1 << 15, effort)) == pytest.approx(expected)


def test_of_large_plans_the_longest_segments_come_first() -> None:
    efforts = {1 << 12: 9, 1 << 13: 5, 1 << 14: 7}
    large = [entry_in_segments(size, n * MAX_TASKS) for size, n in efforts.items()]
    assert [one.cut for one in _first(large, 1)] == [1 << 13]
    small = [entry_in_segments(size, n) for size, n in efforts.items()]
    assert [one.cut for one in _first(small, 1)] == [1 << 12]
