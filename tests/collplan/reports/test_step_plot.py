"""Pictures of the steps of programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from collplan.executors.cost import simulate
from collplan.planner.programs import compile_program
from collplan.reports.step_plot import plot_steps
from collplan.specs import Network, ProgramSpec
from command_line import CommandLine

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
