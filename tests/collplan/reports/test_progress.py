"""Progress: on a terminal, by request, and never beside JSON."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from collplan.cli.ranks import own_command, run_again
from collplan.executors.mpi.launch import jobs
from collplan.reports import progress
from mpi_launching import mpi_environment, mpi_python

SPEC = """
machine: {ranks_per_node: 2}
collective: {kind: allreduce, count: 16, datatype: int32, op: sum}
"""


def on_a_terminal(*words: object, **env: str) -> str:
    """Return what a command writes on a standard error that is a terminal."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        own_command(*words),
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**mpi_environment(), **env},
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # nobody has the terminal any more
                break
            written += part
            if not part:
                break
    os.close(ours)
    assert process.returncode == 0, written
    return written.decode()


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.long
def test_spinner_on_a_terminal_and_not_beside_json(spec: Path) -> None:
    shown = on_a_terminal("verify", spec)
    assert "compiling the plan" in shown
    assert "proving" in shown
    assert on_a_terminal("verify", spec, "--json") == ""


@pytest.mark.system
def test_a_run_shows_its_repetitions(spec: Path) -> None:
    mpi_python("mpich")
    assert "running" in on_a_terminal("run", spec, "-n", 1, "--repetitions", 3000)
    assert on_a_terminal("run", spec, "-n", 1, "--repetitions", 3000, "--json") == ""


def test_no_terminal_no_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(progress.PROGRESS, raising=False)
    assert not progress.shows_progress()
    with progress.spinner("working"), progress.progress_bar("bar", 3, is_shown=False) as update:
        update(advance=1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("wanted", [True, False])
def test_options_decide_before_the_starter_of_ranks(
    wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(progress.PROGRESS, str(int(not wanted)))
    monkeypatch.setattr(progress, "_is_quiet", False)
    assert progress.shows_progress(wanted) is wanted
    assert progress.shows_progress() is not wanted


def test_json_is_quiet_where_the_starter_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with ``--json`` inside ``collplan emulate`` on a terminal."""
    monkeypatch.setenv(progress.PROGRESS, "1")
    monkeypatch.setattr(progress, "_is_quiet", True)
    assert not progress.shows_progress()
    assert progress.shows_progress(True)


@pytest.mark.parametrize("told", [None, "1"])
def test_ranks_show_progress_only_if_their_starter_says_so(
    told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def start(*_: object, **__: object) -> int:
        seen.append(os.environ[progress.PROGRESS])
        return 0

    monkeypatch.setattr(jobs, "relaunch", start)
    monkeypatch.delenv(progress.PROGRESS, raising=False)
    if told is not None:
        monkeypatch.setenv(progress.PROGRESS, told)
    assert run_again(2, None) == 0
    assert run_again(2, None, shown=True) == 0
    assert seen == ["0", "1"]
    assert os.environ.get(progress.PROGRESS) == told
