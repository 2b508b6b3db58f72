"""Comparisons: no winner over what may be better; what a spec names is marked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import collplan.select.comparison as comparison_module
import collplan.select.entries as entries_module
import collplan.select.jobs as jobs_module
import collplan.select.sweep as sweep
from collplan.select.compared import Comparison, Pruned
from collplan.select.comparison import compare
from collplan.select.estimate import Estimate, estimate
from collplan.specs import PlanSpec
from command_line import CommandLine
from comparing import MACHINES, compare_sizes, spec_of
from oracle import AFFINE


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.usefixtures("priced_once")
def test_plans_that_are_too_large_are_left_out_and_said(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"nodes": 8}, algorithms="auto")
    document = collplan("compare", spec, "--max-tasks", 100, "--json").json()
    left_out = {one["candidate"]: one for one in document["pruned"] if one["by"] == "tasks"}
    assert left_out["ring"]["n_tasks"] > 100
    assert "ring" not in {row["candidate"] for row in document["rows"]}
    assert "--max-tasks sets the limit" in collplan("compare", spec, "--max-tasks", 100).out


def test_messages_are_cut_into_segments_of_the_sizes_that_patterns_name() -> None:
    spec = PlanSpec.model_validate(
        {"machine": {"nodes": 4}, "collective": {"kind": "bcast", "count": 8192}}
    )
    found = compare([spec], patterns=["binomial*KiB"])
    sizes = (4, 8, 16, 32)
    assert set(found.specs) == {f"binomial {size}KiB" for size in sizes}


@pytest.mark.usefixtures("priced_once")
@pytest.mark.long
def test_no_winner_is_named_over_candidates_that_may_be_better(collplan: CommandLine) -> None:
    """The best plans have more tasks than are allowed, and cannot be ruled out."""
    spec = collplan.write_spec(
        machine={"nodes": 4, "ranks_per_node": 4, "lanes": 2},
        collective={"kind": "allreduce", "count": 65536, "datatype": "float32"},
        algorithms="auto",
    )
    options = ("--sizes", "64KiB,256KiB")
    whole = collplan("compare", spec, *options, "--json").json()
    winner = whole["best"]["262144"]
    assert not whole["rivals"]
    assert set(whole["best"]) == {"65536", "262144"}
    few = collplan("compare", spec, *options, "--max-tasks", 100, "--json").json()
    assert few["best"] == {}
    assert few["crossovers"] == []
    assert winner in few["rivals"]["262144"]
    left_out = {one["candidate"]: one for one in few["pruned"] if one["bytes"] == 262_144}
    (time_s,) = (
        row["makespan_s"]
        for row in whole["rows"]
        if (row["candidate"], row["bytes"]) == (winner, 262_144)
    )
    # It has a price and a bound all the same.
    assert left_out[winner]["bound_s"] <= time_s <= 2 * left_out[winner]["price_s"]
    text = collplan("compare", spec, *options, "--max-tasks", 100).out
    assert "no winner at 256 KiB: " in text
    assert "*" not in text
    assert "crossover" not in text


@pytest.mark.long
def test_neighboring_winners_are_simulated_at_both_sizes() -> None:
    """Also those that bounds or closed forms exclude there; these are no longer left out."""
    comparison = compare_sizes("allreduce", MACHINES["lanes"], (4, 1 << 20))
    times = comparison.makespans
    assert comparison.crossovers
    for low, high in pairwise(comparison.sizes):
        for size in (low, high):
            assert {(comparison.best[one], size) for one in (low, high)} <= times.keys()
    assert not times.keys() & {(one.candidate, one.bytes) for one in comparison.pruned}


def test_what_there_is_no_time_for_is_priced_by_its_closed_form(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 4}, algorithms="auto")
    document = collplan("compare", spec, "--seconds", 0, "--json").json()
    assert document["best"] == {}
    assert {one["by"] for one in document["pruned"]} == {"time"}
    assert all(one["price_s"] >= one["bound_s"] > 0 for one in document["pruned"])


def test_no_winner_is_named_over_candidates_that_were_not_estimated(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimates end with the time; the forms that are left are neither ruled out nor refused."""
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 4}, algorithms="auto")
    monkeypatch.setattr(jobs_module, "LEAST_ESTIMATING_S", 1e-9)
    monkeypatch.setattr(jobs_module, "ESTIMATING", 1e-9)
    document = collplan("compare", spec, "--json").json()
    unknown = {one["candidate"] for one in document["pruned"] if not one["n_tasks"]}
    assert {"full_lane", "hierarchical lane=ring"} <= unknown
    assert document["best"] == {}
    ((size, rivals),) = document["rivals"].items()
    assert unknown <= set(rivals)
    assert document["leading"][size] not in unknown
    text = collplan("compare", spec).out
    assert f"not estimated: {len(unknown)}, at " in text
    assert "no winner at " in text


def test_where_nothing_is_simulated_it_says_so(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 4}, algorithms="auto")
    text = collplan("compare", spec, "--seconds", 0).out
    assert "no winner at " in text
    assert "nothing was simulated" in text


def test_estimates_that_lack_memory_may_still_win(monkeypatch: pytest.MonkeyPatch) -> None:
    def estimate_most(spec: PlanSpec, *arguments: Any, **options: Any) -> tuple[Estimate, ...]:
        if spec.decomposition.name == "full_lane":
            raise MemoryError
        return estimate(spec, *arguments, **options)

    monkeypatch.setattr(entries_module, "estimate", estimate_most)
    found = compare([spec_of("allreduce", MACHINES["lanes"], 4096)])
    assert not any("full_lane" in name for name in found.refused)
    assert not found.best
    ((_, rivals),) = found.rivals.items()
    assert {one.by for one in rivals if "full_lane" in one.candidate} == {"memory"}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("price_s", "bound_s", "is_rival"),
    [
        (0.96, 0.5, True),
        (0.98, 0.5, False),  # at most 3 % better
        (0.50, 0.98, False),
        (0.50, 0.5, True),
    ],
)
def test_no_winner_is_named_over_a_candidate_that_is_better_by_closed_form_and_bound(
    price_s: float, bound_s: float, is_rival: bool
) -> None:
    spec = spec_of("allreduce", MACHINES["lanes"], 4096)
    left_out = Pruned("ring", 16384, "time", price_s, bound_s, n_tasks=100)
    found = Comparison([16384], {"linear": spec, "ring": spec}, pruned=[left_out])
    found.makespans["linear", 16384] = 1.0
    comparison_module._name_winners(found)
    assert found.leading == {16384: "linear"}
    assert found.best == ({} if is_rival else {16384: "linear"})
    assert found.rivals == ({16384: [left_out]} if is_rival else {})


def test_a_plan_without_memory_is_told_from_an_impossible_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = spec_of("allreduce", MACHINES["lanes"], passes=[{"name": "segment", "max_bytes": 4}])
    assert not sweep.price(spec).lacks_memory
    monkeypatch.setattr("collplan.planner.memory.free_bytes", lambda: -1)
    monkeypatch.setattr("collplan.planner.memory.LARGE_BYTES", -1)
    assert sweep.price(spec).lacks_memory


@pytest.mark.many
@pytest.mark.usefixtures("priced_once")
@pytest.mark.parametrize(
    ("named", "own"),
    [
        ({"algorithms": "ring"}, "ring"),
        ({"algorithms": {"name": "knomial", "radix": 3}}, "knomial(radix=3)"),
        ({"decomposition": "full_lane", "algorithms": "auto"}, "full_lane"),
        ({"decomposition": "auto", "algorithms": "auto"}, "auto"),
        (
            {"algorithms": "chain", "passes": [{"name": "segment", "max_bytes": "1KiB"}]},
            "chain segment(max_bytes=1KiB)",
        ),
        ({"algorithms": "auto"}, None),
    ],
)
def test_what_the_spec_names_is_one_of_the_candidates(
    collplan: CommandLine, named: dict[str, Any], own: str | None
) -> None:
    kind = "allreduce" if own == "ring" else "bcast"
    collective = {"kind": kind, "count": 4096, "datatype": "int32"}
    machine = {"nodes": 2, "ranks_per_node": 4}
    source = collplan.write_spec(collective=collective, machine=machine, **named)
    options = ("--candidates", "flat")
    document = collplan("compare", source, *options, "--json").json()
    assert document["own"] == own
    shown = collplan("compare", source, *options).out
    if own is None:
        assert "(the spec's)" not in shown
        return
    assert f"{own} (the spec's)" in shown
    (time,) = (r["makespan_s"] for r in document["rows"] if r["candidate"] == own)
    assert time == collplan("cost", source, "--json").json()["makespan_s"]
    # Others can be asked for by what JSON says of them.
    best = document["candidates"][document["best"]["16384"]]
    again = collplan.write_spec(collective=collective, machine=machine, **best)
    least = min(row["makespan_s"] for row in document["rows"])
    assert collplan("cost", again, "--json").json()["makespan_s"] == least


def test_candidates_are_chosen_by_name_and_family(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 4})
    options = ("--candidates", "mesh, full_lane lane=*", "--all", "--json")
    document = collplan("compare", spec, *options).json()
    names = {row["candidate"] for row in document["rows"]}
    assert "ring" in names  # the spec's own
    assert all(name.startswith(("mesh", "full_lane lane=")) for name in names - {"ring"})
    assert len(names) > 4


def test_operations_that_do_not_commute_are_compared(collplan: CommandLine) -> None:
    collective = {"kind": "allreduce", "count": 8, "datatype": "uint64", "op": AFFINE}
    spec = PlanSpec.model_validate({"machine": MACHINES["dealt"], "collective": collective})
    comparison = compare([spec])
    assert comparison.best
    assert any("commutative" in reason for reason in comparison.refused.values())


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--candidates", "frob"], ("--candidates", "'frob' fits none", "ring")),
        (["--plot", "times.eps"], ("--plot", ".eps", ".svg or .png or .pdf")),
        (["--max-tasks", "0"], ("--max-tasks", "greater than or equal to 1")),
        (["--sizes", "3"], ("--sizes", "3", "int32")),
    ],
)
def test_bad_input_is_one_line(
    collplan: CommandLine, options: list[str], says: tuple[str, ...]
) -> None:
    error = collplan("compare", collplan.write_spec(), *options).error()
    assert all(word in error for word in says), error


@pytest.mark.usefixtures("priced_once")
def test_each_level_of_reproducible_has_its_cost(collplan: CommandLine) -> None:
    """Best plans of a level are plans of the levels before it, too, so that costs only grow."""
    collective = {"kind": "allreduce", "count": 4096, "reproducible": "placements"}
    spec = collplan.write_spec(
        machine={"nodes": 3, "ranks_per_node": 1}, collective=collective, algorithms="auto"
    )
    options = ("--sizes", "1KiB,64KiB", "--candidates", "r*_*,linear,rank_tree")
    document = collplan("compare", spec, *options, "--json").json()
    assert document["reproducible"] == "placements"
    levels = document["levels"]
    assert list(levels) == ["ranks", "runs", "placements"]
    for size in ("1024", "65536"):
        times = [costs[size]["makespan_s"] for costs in levels.values()]
        assert times == sorted(times)
        assert levels["placements"][size]["candidate"] == document["leading"][size]
    assert times[0] < times[2]
    assert document["refused"]["linear"].startswith("allreduce/linear: collective.reproducible is")
    assert document["next"]["own"] == []
    text = collplan("compare", spec, *options).out
    assert "reproducible: placements (asked for)" in text
    assert "reproducible: placements takes 1." in text


@pytest.mark.usefixtures("priced_once")
def test_levels_are_only_compared_if_asked_for(collplan: CommandLine) -> None:
    sums = {"kind": "allreduce", "count": 8, "datatype": "float64"}
    spec = collplan.write_spec(machine={"nodes": 2}, collective=sums, algorithms="auto")
    options = ("--sizes", "1KiB", "--candidates", "ring,reduce_bcast")
    assert collplan("compare", spec, *options, "--json").json()["levels"] == {}
    asked = collplan("compare", spec, *options, "--levels", "--json").json()
    assert set(asked["levels"]) == {"ranks", "runs", "placements"}
    exact = collplan.write_spec(collective=sums | {"datatype": "int32"})
    error = collplan("compare", exact, "--levels").error()
    assert "--levels: allreduce: sum of int32 does not round, so that all levels are" in error
