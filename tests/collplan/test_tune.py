"""Tuning: what there is to try, when enough is measured, what a killed run leaves, the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from itertools import permutations, product
from math import comb, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.cli.tune import TuneOptions
from collplan.measure.statistics import LEAST, is_faster
from collplan.planner import compile_plan
from collplan.reports.tuning import plot_speedups, print_candidates, print_tuned, to_json
from collplan.select.search import search_near
from collplan.select.shapes import every_mesh
from collplan.select.sweep import price
from collplan.specs import Allreduce, Bcast, CollplanError, Gatherv, Method, Operation
from collplan.tables.sweep import NATIVE, NodePlacement, Time
from collplan.tables.table import TuningTable, load_table, parse_table, save_table
from collplan.tune.candidates import (
    all_variants,
    family_of,
    select,
    starts_alone,
    topology_of,
)
from collplan.tune.journal import JournalState, open_state
from collplan.tune.options import Goal, TuningJob
from collplan.tune.racing import Race, StopRules, time_of
from collplan.tune.trial import Verdict
from collplan.tune.tuner import Tuned
from command_line import CommandLine
from drawn_figures import keep_figures
from folders import BENCHMARKS
from mpi_launching import MPIS, assert_passes, mpi_python, mpirun, run
from oracle import REGULAR
from tuned import FINGERPRINT, JOB, NODES, begun, some_selection, spec_of, verdict_of

SMALL = {"nodes": 2, "ranks_per_node": 4, "lanes": 2}
PAPERS_LAYOUTS = ["2x48", "3x32", "4x24", "6x16", "8x12", "12x8", "16x6", "24x4", "32x3", "48x2"]


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def test_96_ranks_have_the_papers_ten_layouts_in_its_order(collplan: CommandLine) -> None:
    assert ["x".join(map(str, shape)) for shape in every_mesh(96, 2)] == PAPERS_LAYOUTS
    outcome = collplan("tune", "--list", "-n", 96, "--collectives", "gather,allgather", "--json")
    document = outcome.json()
    assert document["ranks"] == 96
    assert list(document["candidates"]) == ["gather", "allgather"]
    for listed in document["candidates"].values():
        names = [one["name"] for one in listed if one["family"] == "mesh"]
        flat = [name for name in names if name.count("x") == 1 and name.count(" ") == 1]
        assert [name.removeprefix("mesh ") for name in flat] == PAPERS_LAYOUTS


def test_all_collectives_are_the_regular_ones_and_the_specs_own(collplan: CommandLine) -> None:
    counts = {"distribution": "zipf", "total": 64}
    own = collplan.write_spec(collective={"kind": "gatherv", "counts": counts}, algorithms="auto")
    for arguments, kinds in (([], REGULAR), ([own], [*REGULAR, "gatherv"])):
        outcome = collplan("tune", *arguments, "--list", "--collectives", "all", "--json")
        assert list(outcome.json()["candidates"]) == kinds


def test_counts_are_scaled_to_each_size_and_named() -> None:
    """Ranks that a list of counts does not fit are refused before anything is measured."""
    counts = [4, 0, 8]
    job = TuningJob((Gatherv(counts=counts, displs=[9, 0, 0]),), (96, 960))
    (goal,) = job.goals([0, 0, 0])
    assert [goal.sized(size).counts.array.tolist() for size in goal.sizes] == [counts, [40, 0, 80]]
    name = goal.empty_sweep().name
    assert name == str(goal).partition(" on ")[0]
    other = TuningJob((Gatherv(counts=[4, 8, 0]),), (96,))
    assert name != next(other.goals([0, 0, 0])).empty_sweep().name
    words = job.arguments(NodePlacement.of_nodes([0, 0, 0]))["collectives"]
    assert words == [f"gatherv counts={name[9:-1]} datatype=float64"]
    with pytest.raises(CollplanError, match="has entries for 3 ranks, the machine has 2"):
        list(replace(job, ranks=(2,)).goals([0, 0, 0]))


def test_meshes_are_all_factorizations_each_once() -> None:
    for n_ranks, dimensions in product((1, 2, 7, 8, 12, 30, 36), (2, 3)):
        extents = range(2, n_ranks + 1)
        brute = {
            shape
            for factors in _multisets(extents, dimensions)
            for shape in permutations(factors)
            if prod(shape) == n_ranks
        }
        shapes = list(every_mesh(n_ranks, dimensions))
        assert set(shapes) == brute, n_ranks
        assert len(shapes) == len(brute), n_ranks


def _multisets(extents: range, n: int) -> list[tuple[int, ...]]:
    if n == 0:
        return [()]
    return [(e, *rest) for e in extents for rest in _multisets(range(e, extents.stop), n - 1)]


@pytest.mark.parametrize("kind", REGULAR)
def test_every_family_is_tried(kind: str) -> None:
    forms = all_variants(spec_of(kind))
    names = [form.name for form in forms]
    assert len(set(names)) == len(names)
    families = {family_of(form) for form in forms}
    assert {"flat", "hierarchical", "full_lane", "multi_leader", "mesh"} <= families
    assert ("guideline" in families) == (kind != "barrier")
    assert ("design" in families) == (kind == "alltoall")
    assert {"mesh 2x8", "mesh 4x4", "mesh 8x2", "mesh 2x2x4", "mesh 2x4x2", "mesh 4x2x2"} <= {
        *names
    }
    assert any(form.method.transport.name == "shared" for form in forms)


def test_flat_algorithms_are_the_papers_topologies() -> None:
    found = {
        kind: {topology_of(form) for form in all_variants(spec_of(kind))} - {None}
        for kind in ("bcast", "gather", "allgather", "allreduce")
    }
    assert found["bcast"] == found["gather"] == {"star", "tree", "ring"}
    assert found["allgather"] == found["allreduce"] == {"star", "hypercube", "ring"}


def test_designs_of_alltoall_through_leaders_are_tried_across_nodes_only() -> None:
    names = {form.name for form in all_variants(spec_of("alltoall"))}
    assert {"ohio_v1", "ohio_v2", "ohio_v3", "khorassani", "chochia", "traeff_rougier"} <= names
    names = {form.name for form in all_variants(spec_of("alltoall", ranks_per_node=4))}
    # On one node what is left of it is its memory.
    assert "ohio_v1" in names
    assert not {"ohio_v2", "ohio_v3", "khorassani", "chochia", "traeff_rougier"} & names


@pytest.mark.long
def test_the_model_keeps_all_within_a_factor_and_counts_the_others() -> None:
    spec = spec_of("bcast", 8192, **SMALL)
    near, far = select(spec, 1.2), select(spec, 4.0)
    for selection in (near, far):
        assert selection.skipped > 0
        times = [one.expected_s for one in selection.kept]
        assert all(time is not None for time in times)
        assert times == sorted(times)
    assert {one.name for one in near.kept} < {one.name for one in far.kept}
    best = near.kept[0].expected_s or 0
    within = [one for one in far.kept if (one.expected_s or 0) <= 1.2 * best]
    assert [one.name for one in within] == [one.name for one in near.kept[: len(within)]]
    # Of each family that is not hopeless the best is measured, whatever the factor.
    assert {"flat", "full_lane", "hierarchical"} <= {one.family for one in near.kept}
    assert [one.name for one in select(spec, 1.2, at_most=2).kept] == [
        one.name for one in near.kept[:2]
    ]


@pytest.mark.long
def test_all_near_the_best_are_simulated() -> None:
    """Whatever closed forms say, no plan that the simulator finds within the factor is missing."""
    spec = spec_of("allreduce", 8192, **SMALL)
    found = search_near(spec, all_variants(spec), 1.5)
    times = [price(one.spec).makespan_s for one in found]
    best_s = min(time_s for time_s in times if time_s is not None)
    assert found[0].time_s == best_s
    for one, time_s in zip(found, times, strict=True):
        assert time_s is None or one.is_simulated or time_s > 1.5 * best_s, one.entry.name
        assert not one.is_simulated or one.time_s == time_s


@pytest.mark.long
def test_equal_plans_are_measured_once_and_segments_where_they_gain() -> None:
    spec = spec_of("allreduce", 8192, **SMALL)
    selection = select(spec, 2.0)
    names = {one.name for one in selection.kept}
    # Between two nodes, most algorithms of a lane are the same exchange.
    tried = {form.name for form in all_variants(spec) if form.name.startswith("full_lane lane=")}
    assert 0 < len(tried & names) <= len(tried) // 2
    expected = {one.name: one.expected_s or 0 for one in selection.kept}
    cut = [name for name in names if name.endswith("KiB") and name.rpartition(" ")[0] in names]
    assert cut
    assert all(expected[name] < expected[name.rpartition(" ")[0]] for name in cut)


@pytest.mark.many
@pytest.mark.long
@pytest.mark.parametrize("kind", ["bcast", "allreduce", "scan", "alltoall"])
def test_beside_computation_progress_is_placed_and_trees_are_split(kind: str) -> None:
    spec = spec_of(kind, 8192, nodes=2, ranks_per_node=4)
    kept = select(spec, 1.2, at_most=9, beside_cores=5).kept
    assert len({one.name for one in kept}) == len(kept) <= 9
    for one in kept:
        assert one.spec.machine.cores_per_node == 5
        assert starts_alone(one.spec)
        assert one.spec.passes[0].name in ("place_progress", "split_tree")
        assert compile_plan(one.spec).n_ranks == 8
    levels = [one.spec.passes[0].options.get("levels") for one in kept]
    assert levels[-3:] == ([None] * 3 if kind == "alltoall" else [None, 1, 2])
    # Without a core to spare nothing is placed.
    assert all(
        one.spec.passes == () or one.spec.passes[0].name == "segment"
        for one in select(spec, 1.2, beside_cores=4).kept
    )


def test_policies_are_tried_where_they_differ() -> None:
    spec = spec_of("scan", 8192, ranks_per_node=4, numa_domains=2)
    kept = select(spec, 1.2, at_most=6, beside_cores=6).kept
    assert {one.spec.passes[0].options.get("policy") for one in kept} == {"numa", "odd_even", None}


def test_what_ranks_have_to_meet_for_is_no_candidate_beside_computation() -> None:
    spec = spec_of("bcast", **SMALL)
    assert starts_alone(spec)
    assert not starts_alone(spec.replace(transport="shared"))
    roles = {"decomposition": "hierarchical", "algorithms": {"node": "native"}}
    assert not starts_alone(spec.with_method(Method.model_validate(roles)))


def test_goals_beside_computation_name_their_cores() -> None:
    job = replace(JOB, computation_s=0.5, cores=(0, 0, 1))
    for goal in job.goals(NODES, n_spare=1):
        assert (goal.computation_s, goal.cores) == (0.5, 3)
        assert str(goal).endswith("beside 0.5 s on 2 x 2 ranks block")
        table = TuningTable(fingerprint=FINGERPRINT, sweeps=(goal.empty_sweep(),))
        assert goal.find(table) is not None
        other = replace(goal, computation_s=0.25)
        assert other.find(table) is None
        assert other.find(table, of_rival=True) is not None
        blocking = replace(goal, computation_s=None, cores=None)
        assert blocking.find(table, of_rival=True) is None
    assert job.arguments(NodePlacement.of_nodes(NODES))["computation"] == 0.5
    assert "computation" not in JOB.arguments(NodePlacement.of_nodes(NODES))


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (Operation(name="sum", commutative=False), "with operands in rank order run natively"),
        (Operation(name="mine", commutative=True), "with an operation of your own run natively"),
    ],
)
def test_operations_that_no_plan_runs_beside_computation_are_refused(
    op: Operation, said: str
) -> None:
    job = replace(JOB, computation_s=0.5, collectives=(Allreduce(count=1, op=op),))
    with pytest.raises(CollplanError, match=f"--computation: non-blocking calls {said}"):
        list(job.goals(NODES))
    assert len(list(replace(job, computation_s=None).goals(NODES))) == 1


def test_the_medians_interval_leaves_out_as_many_as_its_risk_allows() -> None:
    for n in range(1, 60):
        time = time_of([float(i) for i in range(n)])
        k = int(time.low_s)
        assert (time.high_s, time.median_s, time.n) == (n - 1 - k, (n - 1) / 2, n)
        risk = sum(comb(n, i) for i in range(k + 1)) / 2**n
        assert risk <= 0.025 or not k, n
        assert sum(comb(n, i) for i in range(k + 2)) / 2**n > 0.025 or n < 3, n


def test_the_medians_interval_holds_it_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    held = [
        time.low_s <= np.exp(0) <= time.high_s
        for time in (time_of(generator.lognormal(size=25)) for _ in range(2000))
    ]
    assert 0.94 < np.mean(held) < 0.99


def run_race(rules: StopRules, **costs: Any) -> Race:
    """Run a race of candidates whose i-th time is said, a second a round."""
    race = Race([*costs], rules)
    done = 0
    while n := race.next_rounds():
        rows = [[costs[name](done + i) for i in range(n)] for name in race.active]
        race.add(np.array(rows), float(n))
        done += n
    return race


def test_clear_losers_are_out_after_three_rounds_and_native_never() -> None:
    rules = StopRules(tight=0.05, least=8, most=50, seconds=1e9)
    race = run_race(rules, native=lambda _: 9.0, quick=lambda _: 1.0, slow=lambda _: 1.3)
    assert race.ranking() == ["quick"]
    assert (race.time("slow").n, race.time("quick").n) == (3, 9)
    assert race.time("native").n == 9
    race = run_race(rules, native=lambda _: 1.0, slow=lambda _: 9.0)
    assert race.active == ["native"]
    assert race.time("native").n == 9


def test_a_contest_ends_when_intervals_are_tight_or_it_took_too_long() -> None:
    noise = np.random.default_rng(2).uniform(0.9, 1.1, 1000)
    costs: Any = {"native": lambda i: noise[i], "other": lambda i: noise[-i]}
    wide = run_race(StopRules(tight=0.2, least=8, most=500, seconds=1e9), **costs).time("native")
    tight = run_race(StopRules(tight=0.02, least=8, most=500, seconds=1e9), **costs).time("native")
    assert wide.n < tight.n < 500
    assert tight.high_s - tight.low_s <= 0.04 * tight.median_s
    most = run_race(StopRules(tight=1e-9, least=8, most=30, seconds=1e9), **costs)
    assert most.time("native").n == 30
    hasty = run_race(StopRules(tight=1e-9, least=8, most=500, seconds=20), **costs)
    assert 20 <= hasty.time("native").n < 40


def test_few_go_on_where_many_are_as_good() -> None:
    noise = np.random.default_rng(3).uniform(0.5, 1.5, (10, 1000))
    costs: Any = {f"c{k}": lambda i, k=k: noise[k][i] for k in range(9)}
    race = run_race(
        StopRules(tight=0.01, least=8, most=60, seconds=1e9), native=lambda i: noise[9][i], **costs
    )
    assert 1 <= len(race.ranking()) <= 4
    assert race.time("native").n == 60


def test_nobody_beats_by_touching_intervals_or_few_measurements() -> None:
    def time(low: float, high: float, n: int = 10) -> Time:
        return Time(median_s=(low + high) / 2, low_s=low, high_s=high, n=n)

    assert is_faster(time(1, 2), time(3, 4))
    assert not is_faster(time(1, 3), time(3, 4))
    assert not is_faster(time(3, 4), time(1, 2))
    assert not is_faster(time(1, 2, LEAST - 1), time(3, 4))


def test_points_make_a_table_that_is_complete_when_all_sizes_are_there() -> None:
    goals = list(JOB.goals(NODES))
    assert [str(goal) for goal in goals] == [
        "bcast on 2 x 2 ranks block",
        "reduce on 2 x 2 ranks block",
    ]
    state = JournalState(TuningTable(fingerprint=FINGERPRINT, sweeps=()))
    assert state.missing(goals[0]) == [64, 1024]
    late = state.after(
        goals[0], 1024, some_selection("chain"), verdict_of("chain", native=2.0, chain=1.0)
    )
    assert late.missing(goals[0]) == [64]
    assert late.missing(goals[1]) == [64, 1024]
    assert not late.sweep_of(goals[0]).complete
    both = late.after(goals[0], 64, some_selection(), verdict_of("native", native=2.0))
    (sweep,) = both.table.sweeps
    assert sweep.complete
    assert [(p.bytes, p.winner, p.skipped) for p in sweep.points] == [
        (64, "native", 5),
        (1024, "chain", 5),
    ]
    assert sweep.choices["native"] == NATIVE
    assert str(sweep.choices["chain"].algorithms) == "chain"
    assert (sweep.op_commutes, sweep.op) == (None, None)
    assert goals[1].empty_sweep().op_commutes is True


def test_ranks_that_share_cores_are_noted_in_the_table_and_in_the_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (goal, _) = JOB.goals(NODES)
    state = JournalState(TuningTable(fingerprint=FINGERPRINT, sweeps=()))
    alone = replace(verdict_of("chain", native=2.0, chain=1.0), ranks_per_core=0.5)
    crowded = replace(alone, ranks_per_core=1.5)
    before = state.after(goal, 64, some_selection("chain"), alone)
    after = before.after(goal, 1024, some_selection("chain"), crowded)
    notes = []
    for one in (before, after, after.after(goal, 4096, some_selection("chain"), alone)):
        (sweep,) = one.table.sweeps
        tuned = Tuned(one.table, (), (), 1, 0)
        print_tuned(tuned, "t.yaml")
        notes.append((sweep.ranks_per_core, "CAUTION" in capsys.readouterr().out))
        assert to_json(tuned)["rows"][0]["ranks_per_core"] == sweep.ranks_per_core
    assert notes == [(None, False), (1.5, True), (1.5, True)]


def test_a_table_says_its_least_mean_and_greatest_gain(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (goal, _) = JOB.goals(NODES)
    state = JournalState(TuningTable(fingerprint=FINGERPRINT, sweeps=()))
    for size, winner, chain in ((64, "native", 9.0), (1024, "chain", 2.0), (4096, "chain", 0.75)):
        verdict = verdict_of(winner, native=3.0, chain=chain)
        state = state.after(goal, size, some_selection("chain"), verdict)
    tuned = Tuned(state.table, (), (), 3, 0)
    (row,) = to_json(tuned)["gains"]
    assert row == {
        "collective": "bcast",
        "ranks": 4,
        "placement": row["placement"],
        "sizes": 3,
        "min": 1.0,
        "mean": pytest.approx((1 + 1.5 + 4) / 3),
        "max": 4.0,
    }
    print_tuned(tuned, "t.yaml")
    assert ["bcast", "4", "3", "1.00", "2.17", "4.00"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]
    path = tmp_path / "gains.svg"
    plot_speedups(path, tuned.table)
    assert "Gain over all sizes: min, mean and max" in path.read_text()
    plot_speedups(path, TuningTable(fingerprint=FINGERPRINT, sweeps=()))


def a_table(*goals_sizes_times: tuple[Goal, int, str, dict[str, Time]]) -> TuningTable:
    """Return a table with points of some goals, sizes, winners and times."""
    state = JournalState(TuningTable(fingerprint=FINGERPRINT, sweeps=()))
    for goal, size, winner, times in goals_sizes_times:
        state = state.after(goal, size, some_selection("chain"), Verdict(times, winner))
    return state.table


def times_of(native: tuple[float, ...], chain: tuple[float, ...]) -> dict[str, Time]:
    """Return times by their medians and the ends of their intervals."""
    return {
        name: Time(median_s=median, low_s=low, high_s=high, n=9)
        for name, (low, median, high) in (("native", native), ("chain", chain))
    }


def test_speedups_have_the_intervals_that_both_times_allow(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bcast, _ = JOB.goals(NODES)
    (small,) = TuningJob((Bcast(count=0),), (64,), ranks=(2,)).goals(NODES)
    times = times_of((3e-6, 6e-6, 9e-6), (1e-6, 2e-6, 3e-6))
    table = a_table(
        (bcast, 64, "chain", times), (bcast, 1024, "native", times), (small, 64, "chain", times)
    )
    tuned = Tuned(table, ("a wrong one",), ("a failed one",), 3, 1)
    document = to_json(tuned)
    assert (document["points"], document["resumed"], document["correct"]) == (3, 1, False)
    assert [
        (row["ranks"], row["bytes"], row["winner"], row["speedup"], row["speedup_interval"])
        for row in document["rows"]
    ] == [
        (4, 64, "chain", pytest.approx(3), pytest.approx((1, 9))),
        (4, 1024, "native", 1, (1, 1)),
        (2, 64, "chain", pytest.approx(3), pytest.approx((1, 9))),
    ]
    print_tuned(tuned, "t.yaml")
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    whole, node = (lines.index(next(one for one in lines if one.startswith(str(sweep.placement))))
                   for sweep in table.sweeps)  # fmt: skip
    assert lines[0] == "MPICH 5, some"
    assert lines[whole + 2 : whole + 4] == [
        "bcast 64 B chain 2 µs 6 µs 3.00 (1.00 to 9.00) 2 5",
        "bcast 1 KiB native 6 µs 6 µs 2 5",
    ]
    assert lines[node + 2] == "bcast 64 B chain 2 µs 6 µs 3.00 (1.00 to 9.00) 2 5"
    assert lines[-3:] == ["WRONG: a wrong one", "FAILED: a failed one", "wrote t.yaml"]
    assert "3 points, 1 of them by earlier runs; 15 candidates left out" in " ".join(lines)

    figures = keep_figures(monkeypatch)
    plot_speedups(tmp_path / "gains.png", table)
    by_size, by_sweep = figures[0].axes
    assert by_size.get_ylim()[0] == 0
    first, second = by_size.containers
    assert first.get_label() == "bcast, 4 ranks"
    assert second.get_label() == "bcast, 2 ranks"
    line, _, (bars,) = first.lines  # type: ignore[attr-defined]
    assert line.get_xydata().tolist() == [[64, pytest.approx(3)], [1024, 1]]
    assert [part[:, 1].tolist() for part in bars.get_segments()] == [
        pytest.approx([1, 9]),
        [1, 1],
    ]
    assert [bar.get_height() for bar in by_sweep.patches] == pytest.approx([2, 3])
    assert [label.get_text() for label in by_sweep.get_xticklabels()] == [
        "bcast, 4 ranks",
        "bcast, 2 ranks",
    ]
    lines_at = [axes.lines[-1].get_ydata() for axes in (by_size, by_sweep)]
    assert [list(at) for at in lines_at] == [[1, 1], [1, 1]]


def test_speedups_need_native_times() -> None:
    (goal, _) = JOB.goals(NODES)
    times = times_of((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    table = a_table((goal, 64, "chain", {"chain": times["chain"]}))
    with pytest.raises(CollplanError, match="has no time of native at 64 bytes"):
        to_json(Tuned(table, (), (), 1, 0))
    free = times_of((1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    (row,) = to_json(Tuned(a_table((goal, 64, "chain", free)), (), (), 1, 0))["rows"]
    assert row["speedup"] == 1


def test_ranks_are_taken_node_after_node() -> None:
    cyclic = [0, 1, 0, 1, 0, 1]
    goals = list(TuningJob((Bcast(count=0),), (64,), ranks=(2, 4)).goals(cyclic))
    assert [goal.members for goal in goals] == [(0, 2), (0, 1, 2, 4)]
    assert [goal.placement.ranks_per_node for goal in goals] == [(2,), (3, 1)]
    with pytest.raises(CollplanError, match=r"^--ranks: 8 ranks, there are 6; start more with -n$"):
        list(TuningJob((Bcast(count=0),), (64,), ranks=(8,)).goals(cyclic))
    with pytest.raises(CollplanError, match=r"^collective\.root: 3 is not among 2 ranks"):
        list(TuningJob((Bcast(count=0, root=3),), (64,), ranks=(2,)).goals(cyclic))


def test_a_journal_continues_what_was_begun_alike_and_refuses_others(tmp_path: Path) -> None:
    journal, goals = begun(tmp_path)
    assert journal.read(FINGERPRINT) is None
    state = open_state(journal, goals, JOB, FINGERPRINT, restart=False)
    state = state.after(goals[0], 64, some_selection(), verdict_of("native", native=2.0))
    journal.write(JournalState(state.table, ("bcast: something",)))
    assert not journal.output.exists()
    again = open_state(journal, goals, JOB, FINGERPRINT, restart=False)
    assert again == JournalState(state.table, ("bcast: something",))

    other, _ = begun(tmp_path, TuningJob(JOB.collectives, (64, 2048)))
    with pytest.raises(CollplanError) as refusal:
        other.read(FINGERPRINT)
    assert str(refusal.value) == (
        f"{journal.path}: was begun with sizes 64,1024, now it is 64,2048; "
        "give the same to go on, or start over with --restart"
    )
    elsewhere = FINGERPRINT.replace(mpi="Open MPI 5")
    with pytest.raises(CollplanError, match="measured with mpi MPICH 5, here is Open MPI 5; give"):
        journal.read(elsewhere)
    fresh = open_state(other, goals, JOB, elsewhere, restart=True)
    assert fresh.table.sweeps == ()
    # Whoever goes on without --restart must not add to the old table.
    assert other.read(elsewhere) == fresh


@pytest.mark.parametrize("text", ["", "{", '{"format": "other"}', "[]"])
def test_a_journal_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    journal, _ = begun(tmp_path)
    journal.path.write_text(text)
    with pytest.raises(CollplanError, match=r"t\.yaml\.part: .*start over with --restart$"):
        journal.read(FINGERPRINT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "-o: is missing; say where to write the table, as -o table.yaml"),
        (["-o", "t.yaml"], "-n: is missing outside mpiexec; say how many ranks to start, as -n 8"),
        (["-o", "no/t.yaml", "-n", 2], "-o: there is no folder no; make it first"),
        (
            ["-o", "t.yaml", "-n", 2, "--collectives", "gatherv"],
            "--collectives: gatherv is tuned for the counts of a spec; give a spec whose ",
        ),
        (
            ["-o", "t.yaml", "-n", 2, "--collectives", "bcst"],
            "--collectives: 'bcst' is not a collective; valid: bcast, ",
        ),
        (
            ["-o", "t.yaml", "-n", 2, "--sizes", "12"],
            "--sizes: 12 is not a multiple of the 8 bytes",
        ),
        (["-o", "t.yaml", "-n", 2, "--ranks", "2,x"], "--ranks: '2,x' is not a list of numbers"),
        (["-o", "t.yaml", "-n", 2, "--tight", "0"], "--tight: '0' is not a percentage"),
        (["-o", "t.yaml", "-n", 2, "--most", 7], "--most: 7 is less than --least 8; raise it"),
        (
            ["-o", "t.yaml", "-n", 2, "--collectives", "reduce", "--op", "band"],
            "reduce: op band needs an integer or bool datatype, not float64",
        ),
        (["-o", "t.yaml", "-n", 2, "--machine", "nowhere"], "machine: "),
        (["-o", "t.yaml", "-n", 2, "--html", "no/t.html"], "--html: there is no folder no"),
        (["-o", "t.yaml", "-n", 2, "--plot", "x.txt"], "--plot: x.txt ends with .txt"),
    ],
)
def test_mistakes_are_one_line(
    collplan: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[object],
    message: str,
) -> None:
    monkeypatch.chdir(collplan.folder)
    assert collplan("tune", *arguments).error().startswith(message)


@pytest.mark.system
def test_trials_on_ranks() -> None:
    assert_passes(mpirun(2, "tuning.py"))


def tune(mpi: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run([str(mpi_python(mpi)), "-m", "collplan", "tune", *map(str, arguments)])


QUICK = ["--least", 6, "--most", 6, "--at-most", 2]


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_the_command_tunes_sub_communicators(tmp_path: Path, mpi: str) -> None:
    output = tmp_path / "t.json"
    asked = ["-n", 3, "-o", output, "--collectives", "bcast,barrier", "--sizes", "1KiB,64B"]
    done = tune(mpi, *asked, "--ranks", "2,3", *QUICK, "--json", "--progress")
    assert done.returncode == 0, done.stderr
    assert "bcast on 1 node of 3 ranks" in done.stderr
    document = json.loads(done.stdout)
    assert (document["points"], document["resumed"], document["correct"]) == (6, 0, True)
    table = load_table(output)
    assert document["table"] == json.loads(
        table.replace(n_sweeps=None).model_dump_json(exclude_none=True)
    )
    assert [(s.collective, s.ranks, [p.bytes for p in s.points]) for s in table.sweeps] == [
        ("bcast", 2, [64, 1024]),
        ("barrier", 2, [0]),
        ("bcast", 3, [64, 1024]),
        ("barrier", 3, [0]),
    ]
    for point in (point for sweep in table.sweeps for point in sweep.points):
        native, own = point.times["native"], point.times[point.winner]
        assert len(point.times) == 3
        assert point.winner == "native" or is_faster(own, native)
    assert all(sweep.complete for sweep in table.sweeps)
    if mpi == "mpich":  # which binds no rank to cores
        crowds = [sweep.ranks / len(os.sched_getaffinity(0)) for sweep in table.sweeps]
        noted = [sweep.ranks_per_core for sweep in table.sweeps]
        assert noted == [crowd if crowd > 1 else None for crowd in crowds]
    assert table.fingerprint.mpi.startswith("MPICH" if mpi == "mpich" else "Open MPI")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


@pytest.mark.system
def test_the_command_tunes_beside_computation_and_programs_follow(tmp_path: Path) -> None:
    mpi = "openmpi"
    output, program = tmp_path / "t.json", tmp_path / "starts.py"
    usable = sorted(os.sched_getaffinity(0))
    first, last = usable[0], usable[-1]
    cores = f"{first},{first},{last}"
    asked = ["-n", 2, "-o", output, "--collectives", "reduce", "--sizes", "64KiB"]
    done = tune(mpi, *asked, "--computation", "0.001", "--cores", cores, *QUICK)
    assert done.returncode == 0, done.stderr
    assert "Ireduce beside 0.001 s" in done.stdout
    (sweep,) = load_table(output).sweeps
    assert (sweep.computation_s, sweep.cores) == (0.001, 3)
    assert [*sweep.choices] == ["native", *(one for one in sweep.choices if "odd_even" in one)]
    again = tune(mpi, *asked, "--computation", "0.002", "--cores", cores, *QUICK)
    assert again.returncode == 2
    assert "measured with float64 sum beside 0.001 s on nodes of 3 cores" in again.stderr
    program.write_text(
        "import numpy as np\n"
        "from mpi4py import MPI\n"
        "comm = MPI.COMM_WORLD\n"
        "for _ in range(5):\n"
        "    result = np.zeros(8192)\n"
        "    comm.Ireduce(np.ones(8192), result).Wait()\n"
        "    comm.Reduce(np.ones(8192), result)\n"
        "assert comm.rank or (result == 2.0).all()\n"
    )
    # The plan wins, whatever was measured.
    document = load_table(output).model_dump(mode="json")
    (point,) = document["sweeps"][0]["points"]
    point["winner"] = next(label for label in point["times"] if label != "native")
    point["times"]["native"] |= {"median_s": 9.0, "low_s": 9.0, "high_s": 9.0}
    save_table(parse_table(document), output)
    line = [str(mpi_python(mpi)), "-m", "collplan", "exec", "--table", str(output)]
    done = run([*line, "-n", "2", "--cores", cores, str(program)], COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stderr
    assert "beside 0.001 s of computation" in done.stderr
    assert "the table has no plan of reduce that pays" in done.stderr


@pytest.fixture
def only_rank(collplan: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command as the only rank of a job, in this process."""
    monkeypatch.setattr("collplan.executors.mpi.launch.environment.is_under_mpi", lambda: True)
    return collplan


def test_the_command_adds_to_a_table_and_measures_nothing_again(
    only_rank: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, picture, page = (tmp_path / name for name in ("t.yaml", "t.svg", "t.html"))
    asked = ["-o", output, "--sizes", "64B", *QUICK]
    first = only_rank("tune", *asked, "--collectives", "bcast")
    assert first.status == 0, first.err
    assert "1 point;" in first.out
    (before,) = load_table(output).sweeps
    files = ["--plot", picture, "--html", page]
    more = ["tune", *asked, "--collectives", "barrier,bcast", *files]
    monkeypatch.setattr(sys, "argv", ["collplan", *map(str, more)])
    again = only_rank(*more)
    assert again.status == 0, again.err
    assert "2 points, 1 of them by earlier runs" in again.out
    after = load_table(output).sweeps
    assert after[0] == before
    assert [sweep.collective for sweep in after] == ["bcast", "barrier"]
    assert ">bcast<" in picture.read_text()
    text = page.read_text()
    assert f"bcast on {after[0].placement}" in text
    assert after[0].points[0].winner in text
    assert "--collectives barrier,bcast" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.html", "t.svg", "t.yaml"]


@pytest.mark.system
def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """A kill leaves what was measured; in the end the table is complete and valid."""
    script = str(BENCHMARKS / "tune_kills.py")
    arguments = ["--kills", "1", "--collectives", "bcast", "--folder", str(tmp_path)]
    done = run([sys.executable, script, *arguments])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("killed by") == 1
    assert done.stdout.splitlines()[-1].startswith("complete: 3 points")
    assert all(sweep.complete for sweep in load_table(tmp_path / "killed.yaml").sweeps)


def test_jobs_of_programs_have_the_defaults_of_the_command() -> None:
    for name in ("keep_within", "at_most", "give_up", "again", "computation", "cores", "ranks"):
        field = {"give_up": "give_up_s", "computation": "computation_s"}.get(name, name)
        (job,) = (one for one in fields(TuningJob) if one.name == field)
        (command,) = (one for one in fields(TuneOptions) if one.name == name)
        assert (job.default or None) == (command.default or None), name


def test_candidates_are_listed_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    ring = {"name": "ring", "family": "flat", "topology": None, "segments": [1024, 4096, 65536]}
    grid = {"name": "grid", "family": "mesh", "topology": "2x3", "segments": []}
    print_candidates({"ranks": 6, "candidates": {"bcast": [ring, grid]}})
    head, *rows, end = [line for line in capsys.readouterr().out.splitlines() if line.strip(" ─━")]
    assert head.split() == ["bcast", "on", "6", "ranks", "family", "segments"]
    assert [row.split() for row in rows] == [["ring", "flat", "1", "KiB", "to", "64", "KiB"],
                                             ["grid", "2x3"]]  # fmt: skip
    assert end == "2 candidates beside native, not counting sizes of segments"


def test_the_only_rank_of_a_job_tunes_in_its_process(
    only_rank: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "table.yaml"
    words = ["--collectives", "allreduce", "--sizes", "64B,1KiB", "--at-most", 2]
    limits = ["--least", 6, "--most", 6, "--seconds", 0]
    outcome = only_rank("tune", *words, *limits, "-o", path, "--json")
    assert outcome.status == 0, outcome.err
    document = outcome.json()
    assert (document["points"], document["resumed"], document["correct"]) == (2, 0, True)
    (sweep,) = load_table(path).sweeps
    assert (sweep.collective, sweep.ranks, sweep.complete) == ("allreduce", 1, True)
    again = only_rank("tune", *words, *limits, "-o", path, "--json").json()
    assert (again["points"], again["resumed"]) == (2, 2)
    assert again["table"] == document["table"]


def test_a_machine_file_states_the_ranks_to_start(tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text("nodes: 2\nranks_per_node: 3\n")
    (tmp_path / "network.yaml").write_text("network: {copy_ns_per_byte: 0.2}\n")
    assert TuneOptions(machine=str(path)).ranks_to_start() == 6
    assert TuneOptions(machine=str(path), start=4).ranks_to_start() == 4
    assert TuneOptions(machine="hydra").ranks_to_start() is None
    assert TuneOptions(machine=str(tmp_path / "network.yaml")).ranks_to_start() is None
