"""`collplan help`, and completion in shells."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from collplan import cli
from collplan.cli.group import COMMANDS
from collplan.cli.options import Options
from collplan.planner.passes.registry import pass_registry
from collplan.reports.spec_fields import definitions
from command_line import CommandLine
from folders import ROOT
from tiers import some


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def test_all_topics_are_listed(collplan: CommandLine) -> None:
    topics = collplan("help", "--json").json()["topics"]
    specs = {"spec" if name == "Spec" else f"spec {name}" for name in definitions()}
    assert set(topics) == {*COMMANDS, *specs, *pass_registry}
    assert all(topics.values())
    assert "limit_requests" in collplan("help").out


@pytest.mark.long
def test_every_topic_has_its_text(collplan: CommandLine) -> None:
    topics = collplan("help", "--json").json()["topics"]
    for topic in some(list(topics), "topics as JSON"):
        document = collplan("help", *topic.split(), "--json").json()
        assert document.get("text") or document["about"]
    for topic in topics:
        outcome = collplan("help", *topic.split())
        assert outcome.status == 0, topic
        assert len(outcome.out) > 40, topic


def test_help_of_a_command_is_its_own(collplan: CommandLine) -> None:
    assert collplan("help", "tune").out == collplan("tune", "--help").out
    assert collplan("help", "bench", "overlap").out == collplan("bench", "overlap", "--help").out


def test_fields_are_found_in_any_case(collplan: CommandLine) -> None:
    shown = collplan("help", "spec", "machine").out
    assert "numa_domains: whole number from 1 to 1024; default 1" in shown
    assert collplan("help", "spec", "Machine").out == shown
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("compaer",), "did you mean 'compare'?"),
        (("nothing", "like", "it"), "'collplan help' lists all topics"),
        (("tune", "x"), "collplan tune has no command 'x'; it has no commands of its own"),
        (("bench", "x"), "valid: lane-pattern, multi-collective, guideline, overlap"),
        (("spec", "x"), "'x' is not a type of fields in specs; valid: Spec,"),
        (("segment", "x"), "'segment x' is not a topic"),
    ],
)
def test_unknown_topics_are_one_line(
    collplan: CommandLine, words: tuple[str, ...], hint: str
) -> None:
    outcome = collplan("help", *words)
    assert outcome.status == 2
    assert hint in outcome.err
    assert len(outcome.err.splitlines()) == 1


def complete(shell: str, words: str, **variables: str) -> list[str]:
    """Return the lines that a shell gets for an unfinished command line."""
    asked = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_COLLPLAN_COMPLETE": f"complete_{shell}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "collplan"],
        env={**os.environ, **asked, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.long
def test_bash_completes_commands_and_options() -> None:
    assert complete("bash", "collplan co") == ["compile", "cost", "compare", "convert"]
    assert set(complete("bash", "collplan ")) == set(COMMANDS)
    assert complete("bash", "collplan compare --siz") == ["--sizes"]
    assert complete("bash", "collplan bench lan") == ["lane-pattern"]
    assert complete("bash", "collplan algorithms --like mpi") == ["mpich"]
    assert complete("bash", "collplan compile exam") == []  # files are the shell's own business


def test_zsh_and_fish_complete_with_help() -> None:
    assert '"compile":"Compile a spec' in "".join(complete("zsh", "collplan com"))
    fish = complete("fish", "collplan com", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert [line.split("\t")[0] for line in fish] == ["compile", "compare"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_shells_are_printed_and_installed(shell: str, tmp_path: Path) -> None:
    chosen = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}

    def run(option: str) -> str:
        command = [sys.executable, "-m", "collplan", option, shell]
        environment = {**os.environ, **chosen}
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout

    if shell == "bash":
        assert "_COLLPLAN_COMPLETE=complete_bash" in run("--show-completion")
    installed = run("--install-completion").split(" installed in ")[1].splitlines()[0]
    assert installed.startswith(str(tmp_path))
    assert f"_COLLPLAN_COMPLETE=complete_{shell}" in Path(installed).read_text()


LIGHT = """
import sys
from collplan.cli.main import main

assert main(["--help"]) == 0
print(sorted({"pydantic", "numpy", "rich", "networkx"} & set(sys.modules)))
"""


def test_the_list_of_commands_is_printed_without_large_libraries() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


NUMBERS: dict[str, tuple[object, object, object]] = {
    "BenchOverlapOptions.computation": (None, 0, None),
    "BenchOverlapOptions.cores": (None, 1, None),
    "BenchmarkOptions.repetitions": (20, 2, None),
    "CalibrateOptions.lanes": (None, 1, None),
    "CalibrateOptions.ranks": (None, 1, None),
    "CompareOptions.max_tasks": (None, 1, None),
    "CompareOptions.seconds": (None, 0, None),
    "ConvertOptions.root": (0, 0, None),
    "EmulateOptions.lanes": (1, None, None),
    "EmulateOptions.timeout": (None, 1, None),
    "ExecOptions.hang_after": (30.0, 0, None),
    "ExecOptions.ranks": (None, 1, None),
    "ExecOptions.timeout": (None, 1, None),
    "ExecOptions.trials": (None, 0, None),
    "GuidelineOptions.ranks": (None, 1, None),
    "LaneOptions.ranks": (None, 1, None),
    "LaneOptions.repetitions": (80, 2, None),
    "MachineOptions.ranks": (None, 1, None),
    "MachineOptions.timeout": (600, 1, None),
    "MeasuringOptions.timeout": (600, 1, None),
    "OverlapOptions.radix": (2, None, None),
    "PatternOptions.inner": (100, 1, None),
    "ProgramOptions.ranks": (None, 1, None),
    "ProfileOptions.timeout": (None, 1, None),
    "ReportOptions.seconds": (10.0, 0, None),
    "RunOptions.ranks": (None, 1, None),
    "RunOptions.repetitions": (20, 1, None),
    "RunOptions.timeout": (600, 1, None),
    "SynthesizeOptions.chunks": (1, 1, 256),
    "SynthesizeOptions.ports": (None, 1, 15),
    "SynthesizeOptions.rounds": (None, 1, 64),
    "SynthesizeOptions.time_limit": (300, 1, None),
    "TuneOptions.at_most": (None, 1, None),
    "TuneOptions.computation": (None, 0, None),
    "TuneOptions.give_up": (60.0, 1, None),
    "TuneOptions.keep_within": (1.5, 1, None),
    "TuneOptions.least": (8, 6, None),
    "TuneOptions.most": (100, 6, None),
    "TuneOptions.seconds": (10.0, 0, None),
    "TuneOptions.start": (None, 1, None),
    "TuneOptions.timeout": (None, 1, None),
    "WhyOptions.timeout": (None, 1, None),
}
"""Defaults of options, and the least and the greatest number that each takes."""


def declared(kind: type[Options]) -> Iterator[tuple[str, Any, Any]]:
    """Generate name, default and declaration of all options of a class and its subclasses."""
    hints = get_type_hints(kind, include_extras=True)
    for one in fields(kind) if kind is not Options else ():
        if one.name in vars(kind)["__annotations__"]:
            annotated = getattr(hints[one.name], "__metadata__", (None,))[0]
            parameter = one.metadata.get("parameter", annotated)
            yield f"{kind.__name__}.{one.name}", one.default, parameter
    for derived in kind.__subclasses__():
        yield from declared(derived)


def test_defaults_and_limits_of_options_stay_what_they_are() -> None:
    for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        import_module(module.name)
    numbers, enabled = {}, []
    for name, default, parameter in declared(Options):
        limits = getattr(parameter, "min", None), getattr(parameter, "max", None)
        if isinstance(default, bool):
            enabled += [name] * default
        elif limits != (None, None) or isinstance(default, int | float):
            numbers[name] = (None if default is MISSING else default, *limits)
    assert numbers == NUMBERS
    assert enabled == ["RunOptions.check"]
