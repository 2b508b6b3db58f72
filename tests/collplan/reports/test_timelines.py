"""Pictures of timelines: what is drawn, of what machines, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import collplan
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import PlanError
from collplan.planner.plan.plan import Plan
from collplan.reports.timelines import MOST_MESSAGES, Simulated, plot_timelines, thickness
from collplan.specs.errors import CollplanError
from oracle import make_spec

SMALL = {"nodes": 2, "ranks_per_node": 2, "lanes": 2}


def drawn(path: Path, *plans: Plan) -> str:
    shown = []
    for i, plan in enumerate(plans):
        assert plan.spec is not None
        shown.append(Simulated(f"plan {i}", collplan.simulate(plan), plan.spec.machine.network))
    plot_timelines(path, shown)
    return path.read_text() if path.suffix == ".svg" else ""


def words_of(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_ranks_and_lanes_have_rows(tmp_path: Path) -> None:
    plan = compile_plan(make_spec("allreduce", "ring", 0, SMALL, count=1000))
    words = words_of(drawn(tmp_path / "ring.svg", plan))
    assert [f"rank {rank}" in words for rank in range(5)] == [True] * 4 + [False]
    assert {"node 0 lane 0 out", "node 1 lane 0 in", "critical path", "reduce"} <= set(words)
    makespan_us = collplan.simulate(plan).makespan_ns / 1e3
    (title,) = (word for word in words if word.startswith("plan 0: "))
    assert float(title.split()[2]) == pytest.approx(makespan_us, rel=0.01)


def test_two_plans_share_an_axis(tmp_path: Path) -> None:
    plans = [
        compile_plan(make_spec("bcast", name, 0, SMALL, count=1000)) for name in ("chain", "linear")
    ]
    words = words_of(drawn(tmp_path / "both.svg", *plans))
    assert sum(word.startswith("plan ") for word in words) == 2
    assert words.count("rank 3") == 2
    ticks = [word for word in words if re.fullmatch(r"[\d.]+ [nµm]s", word)]
    assert len(ticks) == len(set(ticks)) >= 3


@pytest.mark.long
def test_the_nodes_of_the_critical_path_are_drawn_of_a_large_machine(tmp_path: Path) -> None:
    machine = {"nodes": 14, "ranks_per_node": 8}
    plan = compile_plan(make_spec("allgather", "ring", 0, machine, count=10))
    svg = drawn(tmp_path / "large.svg", plan)
    ranks = [word for word in words_of(svg) if word.startswith("rank ")]
    assert 8 <= len(ranks) <= 96
    assert len(ranks) % 8 == 0
    assert re.search(r"plan 0: .*, \d+ of 14 nodes", svg)
    assert plan.n_tasks > 2 * MOST_MESSAGES
    assert len(svg) < 40_000_000


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
@pytest.mark.parametrize("n_ranks", [1, 3])
def test_other_files_and_few_ranks(n_ranks: int, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"plot{suffix}"
    drawn(path, compile_plan(make_spec("scan", "chain", n_ranks, count=7)))
    assert path.read_bytes().startswith(b"%PDF" if suffix == ".pdf" else b"\x89PNG")


def test_parts_of_plans_are_refused(tmp_path: Path) -> None:
    spec = make_spec("allgather", "ring", 0, {"nodes": 4, "ranks_per_node": 2}, count=8)
    with pytest.raises(PlanError, match="folded; unfold it"):
        drawn(tmp_path / "folded.svg", compile_folded(spec))
    timeline = collplan.simulate(compile_plan(spec))
    shown = [Simulated("ring", timeline, spec.machine.network)]
    with pytest.raises(CollplanError, match="plots are written as"):
        plot_timelines(tmp_path / "plot.eps", shown)


def test_a_dense_critical_path_is_thinner() -> None:
    assert thickness(1) == thickness(50) == 1.0
    assert thickness(1) > thickness(100) > thickness(10_000) > 0
    assert thickness(10**6) == thickness(10**9)
