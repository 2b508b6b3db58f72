"""Crossovers: sizes between which the best candidate changes."""

from __future__ import annotations

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.select.crossovers import choose_best
from comparing import MACHINES, compare_sizes


def test_crossovers_are_between_neighbours_and_hold() -> None:
    counts = (16, 4096, 262_144)
    comparison = compare_sizes("bcast", MACHINES["lanes"], counts)
    names = list(dict.fromkeys(comparison.best.values()))
    assert [one.before for one in comparison.crossovers] == names[:-1]
    assert comparison.crossovers
    for one in comparison.crossovers:
        assert one.is_bisected
        assert one.low_bytes < one.high_bytes <= max(1.15 * one.low_bytes, one.low_bytes + 4)

        def makespan(name: str, size: int) -> float:
            chosen = comparison.specs[name]
            collective = chosen.collective.replace(count=size // 4)
            return simulate(compile_plan(chosen.replace(collective=collective))).makespan_s

        low, high = one.low_bytes, one.high_bytes
        assert makespan(one.before, low) < makespan(one.after, low)
        assert makespan(one.after, high) <= makespan(one.before, high)


def test_of_equals_the_one_that_stays_best_is_taken() -> None:
    times = {("a", 1): 1.0, ("b", 1): 1.0, ("a", 2): 2.0, ("b", 2): 2.0, ("b", 3): 1.0}
    assert choose_best([1, 2, 3], ["a", "b"], times) == {1: "b", 2: "b", 3: "b"}
    assert choose_best([1, 2], ["a", "b"], times) == {1: "a", 2: "a"}
    assert choose_best([7], ["a"], times) == {}
