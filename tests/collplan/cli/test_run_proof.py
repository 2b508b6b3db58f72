"""`run` proves plan files before their ranks start, and says where it does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from collplan.planner.formats.npz import load, save
from collplan.planner.passes import registry
from collplan.planner.plan.plan import Op, Plan
from command_line import CommandLine
from mpi_launching import mpi_environment, mpi_python, mpiexec_of


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def edited(path: Path, column: str) -> Path:
    """Write the plan with one entry of a column changed so that it is refuted."""
    plan = load(path)
    if column == "deps":
        save(plan.replace(deps=_without_edges(plan)), path)
        return path
    values = np.array(getattr(plan, column))
    row = int(np.flatnonzero(plan.op == Op.SEND)[0])
    values[row] = {"tag": 77, "peer": (values[row] + 1) % plan.n_ranks}[column]
    save(plan.replace(**{column: values}), path)
    return path


def _without_edges(plan: Plan) -> object:
    none = np.zeros(0, dtype=np.int32)
    return type(plan.deps)(np.zeros(plan.n_tasks + 1, dtype=np.int32), none, none)


@pytest.mark.parametrize("column", ["tag", "peer", "deps"])
def test_a_refuted_plan_is_not_started(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    from collplan.executors.mpi.launch import jobs

    def start(*arguments: object, **options: object) -> int:
        raise AssertionError("ranks are started")

    monkeypatch.setattr(jobs, "relaunch", start)
    path = edited(collplan.compile(), column)
    collplan("run", path)  # a first proof also says that it compiles kernels
    line = collplan("run", path).error()
    assert line.startswith(f"{path}: is refuted, and would fail or hang: ")
    assert "#" in line


def test_a_plan_too_large_to_be_proved_first_is_named(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collplan.executors.mpi.launch import jobs

    monkeypatch.setattr(jobs, "relaunch", lambda *arguments, **options: 0)
    path = collplan.compile()
    collplan("run", path)  # a first proof also says that it compiles kernels
    assert collplan("run", path).err == ""
    monkeypatch.setattr(registry, "VERIFY_LIMIT", 10)
    outcome = collplan("run", path)
    assert outcome.status == 0
    assert outcome.err == (
        f"collplan: warning: {path}: is not proved before it runs, as it has 60 tasks, "
        f"more than 10; 'collplan verify' proves it\n"
    )


@pytest.mark.system
def test_a_refuted_plan_is_refused_under_mpiexec(collplan: CommandLine) -> None:
    python = mpi_python("mpich")
    path = edited(collplan.compile(), "tag")
    assert collplan("verify", path).status == 1  # compiles kernels, which would be said
    done = subprocess.run(
        [str(mpiexec_of(python)), "-n", "4", str(python), "-m", "collplan", "run", str(path)],
        env=mpi_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith(f"collplan: error: {path}: is refuted, and would fail or hang")
    assert done.stderr.count("\n") == 1
