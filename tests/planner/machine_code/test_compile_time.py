"""The time to compile kernels: counted apart from the work, and announced once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from collplan.cli.inputs import announce_compiling
from collplan.planner.machine_code.compile_time import (
    Stopwatch,
    announce_with,
    getting_kernel,
    miss,
)
from collplan.planner.verify import results_of
from collplan.reports.progress import PROGRESS
from command_line import CommandLine

KERNEL = """
from collplan.planner.machine_code.kernel import compile_at_once

@compile_at_once()
def double(x):
    return x + x
"""


FIRST = """
import importlib.abc
import sys
import time
from collplan.planner.machine_code.compile_time import Stopwatch
from collplan.planner.machine_code.kernel import compile_at_once


@compile_at_once()
def double(x):
    return x + x


class SlowFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numba":
            time.sleep(1)


sys.meta_path.insert(0, SlowFinder())
begin = time.perf_counter()
watch = Stopwatch()
assert "numba" not in sys.modules
double(1)
work_s = watch.work_s
print("numba" in sys.modules and work_s <= time.perf_counter() - begin - 1)
"""


@pytest.fixture
def line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def kernel_in(folder: Path) -> Any:
    """Return a kernel of a new file, whose machine code is kept beside it."""
    path = folder / "kernel.py"
    if not path.exists():  # a file that is written again has another time
        path.write_text(KERNEL)
    names: dict[str, Any] = {"__name__": "kernel", "__file__": str(path)}
    exec(compile(KERNEL, str(path), "exec"), names)
    return names["double"]


def test_a_kernel_that_is_compiled_is_announced_and_counted(tmp_path: Path) -> None:
    said: list[str] = []
    for turn in range(2):  # the second finds what the first has kept
        announce_with(lambda: said.append("compiling"))
        watch = Stopwatch()
        assert kernel_in(tmp_path)(turn + 2) == 2 * turn + 4
        assert (watch.kernels_s > 0) == (turn == 0)
        assert said == ["compiling"]
    announce_with(lambda: None)


def test_nested_kernels_count_once() -> None:
    watch, begin = Stopwatch(), time.perf_counter()
    with getting_kernel(), getting_kernel():
        miss()
        time.sleep(0.02)
    assert 0.02 <= watch.kernels_s <= time.perf_counter() - begin


def test_loading_is_neither_work_nor_compiling() -> None:
    watch, begin = Stopwatch(), time.perf_counter()
    with getting_kernel():
        time.sleep(0.02)
    assert watch.kernels_s == 0
    assert 0 <= watch.work_s <= time.perf_counter() - begin - 0.02


@pytest.mark.long
def test_importing_numba_is_no_work(tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(FIRST)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.long
def test_commands_report_the_work_without_compiling(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proof of 60 tasks took 7 seconds by its report, nearly all of them for kernels."""

    def slowly(plan: Any, **how: Any) -> Any:
        with getting_kernel():
            miss()
            time.sleep(1)
        return results_of(plan, **how)

    monkeypatch.setattr("collplan.planner.verify.results_of", slowly)
    monkeypatch.setenv(PROGRESS, "1")
    spec = line.write_spec()
    first = line("verify", spec)
    assert first.err == "collplan: compiling kernels, once; later runs find them compiled\n"
    assert first.out.endswith(" s to compile kernels, once)\n")
    begin = time.perf_counter()
    found = line("verify", spec, "--json").json()
    assert found["verify_s"] <= time.perf_counter() - begin - 1
    assert found["kernels_s"] >= 1
    monkeypatch.setattr("collplan.planner.verify.results_of", results_of)
    for command, own in (("compile", "compile_s"), ("cost", "simulate_s")):
        line(command, spec)
        document = line(command, spec, "--json").json()  # all is compiled
        assert document["kernels_s"] == 0
        assert document[own] > 0


def test_ranks_but_the_first_say_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, told, n_lines in ((0, "1", 1), (1, "1", 0), (0, "0", 0)):
        monkeypatch.setenv("PMI_RANK", str(rank))
        monkeypatch.setenv(PROGRESS, told)
        announce_compiling()
        miss()
        assert capsys.readouterr().err.count("compiling kernels") == n_lines
