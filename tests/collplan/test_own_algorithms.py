"""Algorithms of one's own on the command line: by --import and by entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from collplan import own_algorithms
from collplan.cli.main import main
from collplan.cli.ranks import own_command
from folders import EXAMPLES, PROGRAMS
from mpi_launching import mpi_python, run
from tables_everywhere import planning_table

OWN = EXAMPLES / "own_algorithm.py"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "machine: {ranks_per_node: 4}\ncollective: {kind: allgather, count: 100}\n"
        "algorithms: double_ring\n"
    )
    return path


def collplan(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own: what is registered stays registered."""
    return run([*own_command(*words)])


def one_by_one(commands: list[list[object]]) -> str:
    """Return a program of commands, after each of which it prints the status."""
    words = [[*map(str, command)] for command in commands]
    return (
        "from collplan.cli.main import main\n"
        f"for words in {words}:\n"
        "    print('status', main(words), flush=True)\n"
    )


def test_an_imported_file_gives_its_algorithm_to_every_command(spec: Path, tmp_path: Path) -> None:
    plan = tmp_path / "own.plan"
    commands = [
        ["--import", OWN, "compile", spec, "-o", plan],
        ["verify", plan],
        ["algorithms", "allgather"],
        ["tune", spec, "--list", "--json"],
    ]
    done = run([sys.executable, "-c", one_by_one(commands)])
    assert done.returncode == 0, done.stdout + done.stderr
    *_, listed, tried = done.stdout.split("status 0\n")[:-1]
    assert "double_ring" in listed
    assert "double_ring" in tried


@pytest.mark.long
def test_processes_that_compare_import_it_too(spec: Path) -> None:
    spec.write_text(spec.read_text().replace("ranks_per_node: 4", "ranks_per_node: 400"))
    words = ["compare", spec, "--candidates", "double_ring", "--sizes", "8B,800B,80KiB", "--json"]
    done = collplan("--import", OWN, *words)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["best"].values()) == {"double_ring"}, done.stdout


@pytest.mark.system
def test_ranks_that_are_started_import_it_too(tmp_path: Path) -> None:
    mpi_python("mpich")
    table = tmp_path / "table.json"
    text = planning_table(2, ("allgather",)).model_dump_json()
    table.write_text(text.replace('"ring"', '"double_ring"'))
    program = PROGRAMS / "hiding.py"
    words = ["exec", "--force", "--table", str(table), "-n", "2", str(program)]
    done = run([*own_command("--import", OWN, *words)], COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stderr
    assert "allgather   double_ring  2" in done.stderr, done.stderr
    done = collplan(*words)
    assert done.returncode == 0
    assert "names the algorithm 'double_ring', which does not exist" in done.stderr
    assert done.stderr.endswith("; all collectives are native\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "no such file; give a Python file"),
        ("import nothing_of_that_name", "(ModuleNotFoundError: No module named"),
        ("def :", "(SyntaxError: "),
        ("raise SystemExit(3)", "(SystemExit: 3); mend it"),
        (
            "from collplan.planner.algorithms.registry import algorithm\n"
            "@algorithm('allgather', 'ring')\ndef ring(group):\n    yield\n",
            "allgather has a 'ring' already; give yours another name",
        ),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_in_one_line(
    text: str | None,
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(own_algorithms.FILES, "")
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    assert main(["--import", str(path), "algorithms"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"collplan: error: --import: {path}: ")
    assert complaint in line


def test_the_variable_is_named_if_it_names_a_wrong_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(own_algorithms.FILES, "/nowhere/own.py")
    assert main(["algorithms"]) == 2
    assert "error: COLLPLAN_IMPORT: /nowhere/own.py: no such file" in capsys.readouterr().err


def test_entry_points_are_loaded_and_a_broken_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "offered_algorithms.py").write_text("LOADED = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(own_algorithms.FILES, "")
    good = EntryPoint("good", "offered_algorithms", own_algorithms.GROUP)
    bad = EntryPoint("bad", "not_offered", own_algorithms.GROUP)
    found = [good]
    monkeypatch.setattr(own_algorithms, "entry_points", lambda group: found)
    assert main(["algorithms", "barrier"]) == 0
    assert sys.modules.pop("offered_algorithms").LOADED
    found.append(bad)
    assert main(["algorithms", "barrier"]) == 2
    error = capsys.readouterr().err
    assert "entry point bad of collplan.algorithms: not_offered cannot be imported" in error


def test_ranks_are_told_of_files_on_their_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(own_algorithms.FILES, os.pathsep.join(("/a.py", "/b.py")))
    assert own_command("run")[3:] == ["--import", "/a.py", "--import", "/b.py", "run"]


@pytest.mark.parametrize("words", [["compare"], ["tune", "--list"]])
def test_an_algorithm_that_no_candidate_has_is_an_error(
    words: list[str], spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec.write_text(spec.read_text().replace("double_ring", "duble_ring"))
    assert main([words[0], str(spec), *words[1:]]) == 2
    error = capsys.readouterr().err
    assert "algorithms: allgather has no 'duble_ring'; use one of bine, bruck, circulant" in error
    spec.write_text(
        spec.read_text().replace(
            "algorithms: duble_ring", "decomposition: full_lane\nalgorithms: {node/bcast: lineer}"
        )
    )
    assert main([words[0], str(spec), *words[1:]]) == 2
    assert "bcast has no 'lineer'" in capsys.readouterr().err


def test_every_pattern_of_designs_has_to_fit(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec.write_text(
        "machine: {nodes: 2, ranks_per_node: 2}\ncollective: {kind: alltoall, count: 8}\n"
    )
    assert main(["compare", str(spec), "--metrics", "--candidates", "ohio*,nothing"]) == 2
    assert "--candidates: no design is called nothing; use " in capsys.readouterr().err
