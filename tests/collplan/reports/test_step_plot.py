"""Pictures of the steps of programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from collplan.executors.cost import simulate
from collplan.planner.draw.style import OP_LOOKS
from collplan.planner.plan.plan import Op
from collplan.planner.programs import compile_program
from collplan.planner.programs.compose import step_rows
from collplan.reports.step_plot import plot_steps
from collplan.specs import Network, ProgramSpec
from command_line import CommandLine
from drawn_figures import boxes_of, fill_of, keep_figures

STEPS = [
    {"name": "work", "compute": {"seconds": 1e-6}, "group": {"ranks": [0, 2]}},
    {"name": "sum of all", "collective": "allreduce", "receive": "x"},
    {"name": "meet", "collective": "barrier"},
]


def program_of(n_ranks: int) -> ProgramSpec:
    buffers = {"x": {"count": 8}}
    machine = {"ranks_per_node": n_ranks}
    document = {"machine": machine, "buffers": buffers, "steps": STEPS}
    return ProgramSpec.model_validate(document)


@pytest.mark.parametrize("n_ranks", [3, 70])
def test_each_step_has_a_row(tmp_path: Path, n_ranks: int) -> None:
    program = program_of(n_ranks)
    timeline = simulate(compile_program(program))
    path = tmp_path / "steps.svg"
    plot_steps(path, timeline, program.machine.network, "three steps")
    text = path.read_text()
    for words in ("work", "sum of all", "meet", "three steps: ", "a line for each rank"):
        assert words in text


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return keep_figures(monkeypatch)


@pytest.mark.parametrize("n_ranks", [3, 70])
def test_lines_are_the_times_of_ranks_in_steps(
    n_ranks: int, figures: list[Figure], tmp_path: Path
) -> None:
    program = program_of(n_ranks)
    timeline = simulate(compile_program(program))
    plot_steps(tmp_path / "steps.svg", timeline, program.machine.network, "steps")
    (axes,) = figures[0].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["work", "sum of all", "meet"]
    plan, n_lines = timeline.plan, min(n_ranks, 64)
    ranks = np.linspace(0, n_ranks - 1, n_lines).round()
    for row, (step, drawn) in enumerate(zip(step_rows(plan), axes.collections[:3], strict=True)):
        tasks, expected = np.arange(step.first, step.end), []
        for line, rank in enumerate(ranks):
            own = tasks[plan.rank[tasks] == rank]
            starts = timeline.start_ns[own[plan.op[own] != Op.RECV]]
            if len(starts):
                low, high = (row - 0.4 + 0.8 * end / n_lines for end in (line, line + 1))
                expected.append((starts.min(), low, timeline.end_ns[own].max(), high))
        assert boxes_of([drawn]) == pytest.approx(np.array(expected))
        color = OP_LOOKS[Op.COMPUTE if row == 0 else Op.SEND]["color"]
        assert fill_of(drawn) == color


def test_the_red_path_passes_from_0_to_the_end_below_the_lines_of_its_steps(
    figures: list[Figure], tmp_path: Path
) -> None:
    program = program_of(5)
    timeline = simulate(compile_program(program))
    plot_steps(tmp_path / "steps.svg", timeline, program.machine.network, "steps")
    (axes,) = figures[0].axes
    legs = boxes_of(axes.collections[3:])
    assert legs[0, 0] == 0
    assert legs[1:, 0] == pytest.approx(legs[:-1, 2])
    assert legs[-1, 2] == pytest.approx(timeline.makespan_ns)
    for left, low, right, high in legs:
        row = int(low)
        lines = boxes_of([axes.collections[row]])
        assert (low, high) == pytest.approx((row + 0.4, row + 0.5))
        assert lines[:, 0].min() <= left < right <= lines[:, 2].max()
    # All rows are visible, from the first one above to the last one below, without empty space.
    bottom, top = axes.get_ylim()
    assert -0.8 < top < -0.4
    assert legs[:, 3].max() < bottom < 2.8
    assert axes.get_xlim() == pytest.approx((0, timeline.makespan_ns))
    assert axes.xaxis.get_major_formatter()(1500, 0) == "1.5 µs"


def test_pictures_grow_with_the_number_of_steps(figures: list[Figure], tmp_path: Path) -> None:
    program = program_of(3)
    steps = [program.steps[0].replace(name=f"work {number}") for number in range(20)]
    for some in (steps[:1], steps):
        one = program.replace(steps=tuple(some))
        plot_steps(tmp_path / "steps.svg", simulate(compile_program(one)), Network(), "steps")
    (width, low), (same, high) = (figure.get_size_inches() for figure in figures)
    assert width == same == 10
    # A row has a quarter of an inch or more, which is a line of text.
    assert 0.25 * 19 < high - low < 0.4 * 19
    assert low < 2


def test_a_program_without_time_is_drawn(tmp_path: Path) -> None:
    program = program_of(3)
    empty = program.replace(steps=(program.steps[0].replace(compute={"seconds": 0}),))
    path = tmp_path / "steps.svg"
    plot_steps(path, simulate(compile_program(empty)), Network(), "nothing")
    assert path.exists()


def test_the_command_draws_steps_of_programs_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collplan = CommandLine(tmp_path, capsys)
    source, picture = tmp_path / "program.yaml", tmp_path / "steps.png"
    source.write_text(program_of(3).to_yaml())
    done = collplan("draw", source, "--timeline", "--by", "step", "-o", picture, "--json")
    assert done.json()["output"] == str(picture)
    assert picture.stat().st_size > 0
    spec = collplan.write_spec()
    steps = ("--timeline", "--by", "step", "-o", picture)
    assert "is no program" in collplan("draw", spec, *steps).error()
    beside = collplan("draw", source, *steps, "--beside", source).error()
    assert "--beside: draws cores and lanes" in beside
    alone = collplan("draw", source, "--by", "step", "-o", picture).error()
    assert "step is for timelines of programs" in alone
