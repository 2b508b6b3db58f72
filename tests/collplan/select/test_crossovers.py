"""Crossovers: sizes between which the best candidate changes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.select.crossovers import CLOSE, _step, choose_best, find_crossovers
from collplan.specs import PlanSpec
from comparing import MACHINES, compare_sizes, spec_of


@pytest.mark.long
def test_crossovers_are_between_neighbors_and_hold() -> None:
    counts = (16, 4096, 262_144)
    comparison = compare_sizes("bcast", MACHINES["lanes"], counts)
    names = list(dict.fromkeys(comparison.best.values()))
    assert [one.before for one in comparison.crossovers] == names[:-1]
    assert comparison.crossovers
    for one in comparison.crossovers:
        assert one.is_bisected
        assert one.low_bytes < one.high_bytes <= max(CLOSE * one.low_bytes, one.low_bytes + 4)

        def makespan(name: str, size: int) -> float:
            chosen = comparison.specs[name]
            collective = chosen.collective.replace(count=size // 4)
            return simulate(compile_plan(chosen.replace(collective=collective))).makespan_s

        low, high = one.low_bytes, one.high_bytes
        assert makespan(one.before, low) < makespan(one.after, low)
        assert makespan(one.after, high) <= makespan(one.before, high)


def test_sizes_may_begin_at_no_bytes() -> None:
    """Closed forms are 0 there, and cannot be corrected by makespans."""
    counts = (0, 16, 262_144)
    comparison = compare_sizes("bcast", MACHINES["lanes"], counts, patterns=["flat"])
    assert list(comparison.best) == [0, 64, 1 << 20]
    assert all(one.low_bytes < one.high_bytes for one in comparison.crossovers)


def test_of_equals_the_one_that_stays_best_is_taken() -> None:
    times = {("a", 1): 1.0, ("b", 1): 1.0, ("a", 2): 2.0, ("b", 2): 2.0, ("b", 3): 1.0}
    assert choose_best([1, 2, 3], ["a", "b"], times) == {1: "b", 2: "b", 3: "b"}
    assert choose_best([1, 2], ["a", "b"], times) == {1: "a", 2: "a"}
    assert choose_best([7], ["a"], times) == {}


@pytest.mark.parametrize("is_known", [True, False])
def test_times_at_the_ends_spare_simulations(is_known: bool) -> None:
    """Two straight lines cross at 100,000 bytes: where both are known, it is tried there first."""
    spec = spec_of("bcast", MACHINES["lanes"], 1)
    specs = {"a": spec, "b": spec.replace(algorithms={"name": "chain"})}
    asked: list[int] = []

    def time_of(name: str, size: int) -> float:
        return 1.0 + size / 50_000 if name == "a" else 2.0 + size / 100_000

    def simulate_lines(pairs: Sequence[PlanSpec]) -> list[float]:
        asked.extend(one.collective.count * 4 for one in pairs)
        names = [
            "a" if one == specs["a"].with_count(one.collective.count) else "b" for one in pairs
        ]
        return [time_of(n, one.collective.count * 4) for n, one in zip(names, pairs, strict=True)]

    sizes = [1024, 1 << 24]
    times = {(name, size): time_of(name, size) for name in specs for size in sizes * is_known}
    best = {1024: "a", 1 << 24: "b"}
    (one,) = find_crossovers(sizes, best, specs, simulate_lines, times)
    assert one.low_bytes <= 100_000 <= one.high_bytes <= CLOSE * one.low_bytes
    assert len(asked) <= (10 if is_known else 14)


@pytest.mark.quick
@pytest.mark.parametrize("crossing", [1_300, 2_000, 2_700, 3_300])
def test_two_simulated_sizes_suffice_also_if_they_are_whole_shares(crossing: int) -> None:
    """The 32 ranks of a node share both sizes evenly, and these are still close to each other."""
    spec = spec_of("allreduce", {"nodes": 36, "ranks_per_node": 32}, 1)
    specs = {"a": spec, "b": spec.replace(algorithms={"name": "ring"})}
    asked: list[int] = []

    def time_of(name: str, size: int) -> float:
        return 1.0 + size / crossing if name == "a" else 1.5 + size / crossing / 2

    def simulate_lines(pairs: Sequence[PlanSpec]) -> list[float]:
        asked.extend(one.collective.count for one in pairs)
        return [
            time_of("b" if one.algorithms.name == "ring" else "a", one.collective.count * 4)
            for one in pairs
        ]

    sizes = [1024, 4096]
    times = {(name, size): time_of(name, size) for name in specs for size in sizes}
    (one,) = find_crossovers(sizes, {1024: "a", 4096: "b"}, specs, simulate_lines, times)
    assert one.low_bytes <= crossing <= one.high_bytes <= CLOSE * one.low_bytes
    assert len(asked) == 4
    assert all(count % 32 == 0 for count in asked)


@pytest.mark.quick
@pytest.mark.parametrize(("nodes", "per_node"), [(3, 5), (36, 32), (64, 48), (8192, 8)])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_few_rounds_suffice_in_any_range(nodes: int, per_node: int, power: float) -> None:
    """Whole shares of all ranks may be larger than the size at which the best one changes."""
    machine = {"nodes": nodes, "ranks_per_node": per_node}
    spec = spec_of("allreduce", machine, 1)
    specs = {"a": spec, "b": spec.replace(algorithms={"name": "ring"})}
    rounds: list[int] = []

    def time_of(name: str, size: int) -> float:
        grown = (size / crossing) ** power
        return grown if name == "a" else 0.9 + 0.1 * grown**0.5

    def simulate_curves(pairs: Sequence[PlanSpec]) -> list[float]:
        rounds.append(len(pairs))
        sizes = [one.collective.count * 4 for one in pairs]
        names = [
            "a" if one == specs["a"].with_count(one.collective.count) else "b" for one in pairs
        ]
        return [time_of(*one) for one in zip(names, sizes, strict=True)]

    for low, high in ((1024, 1 << 22), (64, 1 << 30), (1 << 20, 1 << 22), (1000, 1400)):
        for share in (0.02, 0.3, 0.7, 0.98):
            crossing = int(low * (high / low) ** share)
            rounds.clear()
            times = {(name, size): time_of(name, size) for name in specs for size in (low, high)}
            (one,) = find_crossovers(
                [low, high], {low: "a", high: "b"}, specs, simulate_curves, times
            )
            assert low <= one.low_bytes <= crossing <= one.high_bytes <= high
            assert one.high_bytes <= CLOSE * one.low_bytes
            assert len(rounds) <= 14, (low, high, crossing)


def test_sizes_between_are_rounded_to_steps_that_ranks_share_evenly() -> None:
    """A rounded size has five steps or more, and the range between two sizes six."""
    spec = spec_of("bcast", {"nodes": 4, "ranks_per_node": 3}, 1)
    largest = _step(1e12, 10**12, spec)
    assert largest % 12 == 0
    steps = {
        (size, width): _step(size, width, spec)
        for size in (1, 10, 100, 1000, 10_000, 100_000)
        for width in (1, 10, 100, 1000, 10_000)
    }
    for (size, width), step in steps.items():
        assert step == 1 or (step % 3 == 0 and 5 * step <= size and 6 * step <= width)
    # Where a step fits, it is taken; a range just too short has a smaller one.
    assert _step(5 * largest, 6 * largest, spec) == largest
    assert _step(5 * largest - 1, 6 * largest, spec) < largest
    assert _step(5 * largest, 6 * largest - 1, spec) < largest
    assert _step(5 * 3, 6 * 3, spec) == 3
    assert _step(5 * 3 - 1, 6 * 3, spec) == 1
