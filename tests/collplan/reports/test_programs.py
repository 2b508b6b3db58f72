"""Commands on programs: prices of steps, proofs, pictures, one line where they are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import CommandLine
from folders import ROOT

PROGRAM = """
machine: {nodes: 2, ranks_per_node: 2, lanes: 2}
buffers:
  x: {count: 64, datatype: int32}
steps:
  - {name: work, compute: {seconds: 1.0e-5}}
  - {name: left, collective: allreduce, receive: "x[0/2]"}
  - {name: right, collective: allreduce, receive: "x[1/2]", decomposition: full_lane}
"""


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.yaml"
    path.write_text(PROGRAM)
    return path


def test_a_price_has_the_steps_alone_and_together(collplan: CommandLine, program: Path) -> None:
    report = collplan("cost", program, "--json").json()
    steps = {one["step"]: one for one in report["steps"]}
    assert list(steps) == ["work", "left", "right"]
    assert (steps["work"]["kind"], steps["work"]["method"]) == ("compute", None)
    assert steps["right"]["method"] == "full_lane"
    assert steps["work"]["alone_s"] == pytest.approx(1e-5)
    alone_s = sum(one["alone_s"] for one in report["steps"])
    assert report["steps_best_s"] == pytest.approx(alone_s)
    assert 0 < report["makespan_s"] < report["steps_best_s"]
    assert report["native_s"] > 1e-5
    for one in report["steps"]:
        assert 0 <= one["start_s"] < one["end_s"] <= report["makespan_s"]
        assert one["hidden_s"] == pytest.approx(max(0, one["alone_s"] - one["exposed_s"]))
    text = collplan("cost", program).out
    assert "steps one after another, the best plan of each" in text


def test_steps_without_time_end_when_they_begin(collplan: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "idle.yaml"
    path.write_text("machine: {}\nbuffers: {}\nsteps: [{name: idle, compute: {seconds: 0}}]\n")
    (step,) = collplan("cost", path, "--json").json()["steps"]
    times = [step[name] for name in ("start_s", "end_s", "alone_s", "exposed_s", "hidden_s")]
    assert times == [0, 0, 0, 0, 0]


def test_commands_take_programs(collplan: CommandLine, program: Path, tmp_path: Path) -> None:
    plan, picture = tmp_path / "program.plan", tmp_path / "program.svg"
    assert collplan("compile", program, "-o", plan, "--json").json()["n_tasks"] > 0
    for source in (program, plan):
        assert collplan("verify", source, "--json").json()["ok"] is True
        assert "a program of 3 steps, 4 ranks" in collplan("show", source).out
        assert collplan("draw", source, "-o", picture, "--by", "phase").status == 0
        assert "right: lane" in picture.read_text()
        assert collplan("draw", source, "-o", picture, "--timeline").status == 0


def test_other_commands_refuse_programs_in_one_line(collplan: CommandLine, program: Path) -> None:
    tune = ["tune", "-n", "4", "-o", "table.yaml"]
    for command, *options in (["compare"], tune, ["report", "-o", "x.html"]):
        refused = collplan(command, program, *options).error()
        assert "is a program, which has several collectives" in refused
    refused = collplan("compile", program, "--passes").error()
    assert "is a program; compile one step's spec" in refused
    refused = collplan("run", program, "-n", "4", "--predict").error()
    assert "is a program, whose tasks are not recorded" in refused


def test_native_steps_are_priced_by_mpichs_algorithms(
    collplan: CommandLine, program: Path, tmp_path: Path
) -> None:
    native = tmp_path / "native.yaml"
    native.write_text(program.read_text().replace('"x[0/2]"', '"x[0/2]", algorithms: native'))
    report = collplan("cost", native, "--json").json()
    left = next(one for one in report["steps"] if one["step"] == "left")
    assert (left["kind"], left["method"]) == ("allreduce", "native")
    assert left["alone_s"] > 0
    assert collplan("verify", native, "--json").json()["ok"] is True
    picture = tmp_path / "native.svg"
    for options in (["--timeline"], ["--timeline", "--by", "step"]):
        assert collplan("draw", native, *options, "-o", picture).status == 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["training_step", "fsdp_step", "panel"])
def test_examples_gain_over_their_steps(collplan: CommandLine, name: str) -> None:
    path = ROOT / "examples" / "programs" / f"{name}.yaml"
    report = collplan("cost", path, "--json").json()
    assert report["makespan_s"] * 1.15 < report["steps_best_s"] <= report["native_s"]
