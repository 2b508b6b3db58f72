"""Bad input: exit 2 and one line that names the field and the way out; no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import CommandLine
from folders import ROOT


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


BAD_SPECS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown key": (
        {"collective": {"kind": "allreduce", "cuont": 4}},
        ("collective.cuont", "did you mean 'count'"),
    ),
    "unknown algorithm": (
        {"algorithms": "rign"},
        ("algorithms", "'rign'", "ring", "rabenseifner"),
    ),
    "unknown option of an algorithm": (
        {
            "collective": {"kind": "bcast", "count": 4},
            "algorithms": {"name": "knomial", "radx": 3},
        },
        ("radx", "radix"),
    ),
    "unknown pass": ({"passes": ["segmnt"]}, ("segmnt", "segment")),
    "roles that are none": (
        {"passes": [{"name": "share", "roles": 5}]},
        ("passes.share.roles: 5 is not a list of roles; give [node]",),
    ),
    "segments beyond 64 bits": (
        {"passes": [{"name": "segment", "max_bytes": "9223372036854775808"}]},
        ("passes.segment.max_bytes: '9223372036854775808' is too large; give at most",),
    ),
    "size that is none": (
        {"passes": [{"name": "segment", "max_bytes": "64 foo"}]},
        ("max_bytes", "64 foo", "KiB"),
    ),
    "algorithm that cannot": (
        {
            "machine": {"ranks_per_node": 6},
            "collective": {"kind": "allgather", "count": 1},
            "algorithms": "recursive_doubling",
        },
        ("allgather/recursive_doubling: 6 ranks is not a power of two; use", "ring"),
    ),
    "negative count": (
        {"collective": {"kind": "allreduce", "count": -3}},
        ("collective.count: -3 is negative; give 0 or more",),
    ),
    "counts of another number of ranks": (
        {"collective": {"kind": "gatherv", "counts": [1, 2, 3]}},
        ("collective.counts: has entries for 3 ranks, the machine has 4",),
    ),
    "negative count of a rank": (
        {"collective": {"kind": "scatterv", "counts": [1, -2, 3, 4]}},
        ("collective.counts: -2 (rank 1) is negative; give 0 or more",),
    ),
    "counts of pairs that are not square": (
        {"collective": {"kind": "alltoallv", "counts": [[1, 2, 3, 4], [1, 2, 3, 4]]}},
        ("collective.counts: the matrix has 2 rows of 4 numbers", "square"),
    ),
    "blocks that overlap": (
        {"collective": {"kind": "gatherv", "counts": [2, 2, 3, 4], "displs": [0, 1, 10, 20]}},
        ("collective.displs: rank 0's 2 elements from 0 and rank 1's 2 elements from 1 overlap",),
    ),
    "counts in no file": (
        {"collective": {"kind": "gatherv", "counts": "absent.npy"}},
        ("collective.counts: ", "absent.npy: no such file; give the path of a table of counts"),
    ),
    "root out of range": (
        {"collective": {"kind": "bcast", "count": 1, "root": 4}},
        ("collective.root: 4", "4 ranks are 0 to 3"),
    ),
    "more ranks than cores": (
        {"machine": {"ranks_per_node": 64, "cores": 48}},
        ("machine", "ranks_per_node is 64, cores is 48", "raise cores"),
    ),
    "operation nobody registered": (
        {"collective": {"kind": "reduce", "count": 1, "op": {"name": "mine", "commutative": True}}},
        ("mine",),
    ),
}


@pytest.mark.parametrize("case", [name for name in BAD_SPECS if "nobody" not in name])
def test_bad_specs_are_refused_in_one_line(collplan: CommandLine, case: str) -> None:
    changes, words = BAD_SPECS[case]
    path = collplan.write_spec(**changes)
    line = collplan("compile", path, "--json").error()
    for word in words:
        assert word in line
    assert ";" in line


def test_files_of_counts_that_are_none(collplan: CommandLine) -> None:
    """A file that is cut short, or that holds objects, which might run code when read."""
    path = collplan.write_spec(
        collective={"kind": "gatherv", "counts": "counts.npy"}, algorithms="auto"
    )
    counts = collplan.folder / "counts.npy"
    np.save(counts, np.arange(4))
    assert collplan("compile", path, "--json").status == 0
    counts.write_bytes(counts.read_bytes()[:-9])
    assert "collective.counts: " in collplan("compile", path, "--json").error()
    np.save(counts, np.array([1, "a", None, 4], dtype=object))
    line = collplan("compile", path, "--json").error()
    assert "is no table of counts that can be read (" in line
    assert "save an array of integers with numpy.save" in line


@pytest.mark.parametrize("kind", ["allgatherv", "gatherv"])
def test_a_rank_with_more_than_fits_is_refused_before_it_is_allocated(
    collplan: CommandLine, kind: str
) -> None:
    counts = {"distribution": "spike", "total": 2**40}
    spec = collplan.write_spec(collective={"kind": kind, "counts": counts}, algorithms="auto")
    line = collplan("run", spec).error()
    assert "give fewer" in line or "give a smaller count" in line


def test_counts_that_cannot_be_scaled_say_so(collplan: CommandLine) -> None:
    """In place, a pair's counts are the same both ways, which rounding may break."""
    counts = [[0, 1, 2, 3], [1, 0, 5, 6], [2, 5, 1, 1], [3, 6, 1, 0]]
    collective = {"kind": "alltoallv", "counts": counts, "in_place": True}
    spec = collplan.write_spec(collective=collective, algorithms="auto")
    line = collplan("compare", spec, "--sizes", "800B").error()
    assert line.startswith("--sizes: 800 bytes do not fit: collective.counts: rank 1 has ")
    assert line.endswith("in place both counts must be equal; leave --sizes out")


def test_all_mistakes_are_lines_of_their_own(collplan: CommandLine) -> None:
    path = collplan.write_spec(machine={"nodes": 0, "lanes": 0}, passes=[{"size": 3}])
    outcome = collplan("compile", path)
    assert outcome.status == 2
    assert outcome.err.splitlines() == [
        f"collplan: error: {path}: machine.nodes: 0 is too small; give 1 or more (1 of 3)",
        f"collplan: error: {path}: machine.lanes: 0 is too small; give 1 or more (2 of 3)",
        f"collplan: error: {path}: passes.0: a mapping needs a name, got size; "
        "give {name: NAME, OPTION: VALUE} (3 of 3)",
    ]


def test_all_unknown_passes_and_options_are_reported_before_planning(collplan: CommandLine) -> None:
    path = collplan.write_spec(passes=["segmnt", {"name": "segment", "size": 3}, "prioritise"])
    lines = collplan("compile", path).err.splitlines()
    assert [line.split(";")[0].removeprefix("collplan: error: ") for line in lines] == [
        "passes: there is no 'segmnt'",
        "passes.segment.size: no such option",
        "passes: there is no 'prioritise'",
    ]
    assert lines[-1].endswith("(3 of 3)")


def test_cut_plan_files_are_refused(collplan: CommandLine) -> None:
    path = collplan.compile()
    whole = path.read_bytes()
    for length in (0, 1, 3, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        line = collplan("verify", path).error()
        assert str(path) in line


def test_plan_file_with_an_offset_outside_its_buffer(collplan: CommandLine) -> None:
    path = collplan.compile()
    member = "reads.offset.npy"
    with zipfile.ZipFile(path) as archive:
        members = {entry: archive.read(entry) for entry in archive.namelist()}
    assert member in members
    offsets = np.load(BytesIO(members[member]))
    offsets[0] = 100
    file = BytesIO()
    np.save(file, offsets)
    members[member] = file.getvalue()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for entry, content in members.items():
            archive.writestr(entry, content)
    line = collplan("run", path, "--json").error()
    assert "100" in line
    assert "#0" in line or "task 0" in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "num_ranks 1\nrank 0 {\na: calc 5\na requires b\n}\n",
            ("bad.goal:4: ", "label b"),
        ),
        (
            "num_ranks 2\nrank 0 {\na: send 8b to 5\n}\nrank 1 {\n}\n",
            ("bad.goal:3: ", "rank 5 of 2"),
        ),
        ("", ("num_ranks",)),
    ],
    ids=["undefined label", "no such rank", "empty"],
)
def test_bad_goal_files(collplan: CommandLine, text: str, words: tuple[str, ...]) -> None:
    goal = collplan.folder / "bad.goal"
    goal.write_text(text)
    line = collplan("cost", goal, "--json").error()
    assert line.startswith(str(goal))
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frob"], ("'frob' is not a command", "compile")),
        (["verfy", "x"], ("did you mean 'verify'",)),
        (["verify"], ("Missing argument", "collplan verify --help")),
        (["verify", "none.yaml"], ("none.yaml: no such file",)),
        (["verify", "."], ("is a directory",)),
        (["draw", "SPEC"], ("Missing option", "--output")),
        (["draw", "SPEC", "-o", "x.svg", "--by", "colour"], ("--by", "'colour'", "phase")),
        (["export", "SPEC", "-o", "x", "--to", "xml"], ("--to", "'xml'", "goal")),
        (["run", "x.goal"], ("x.goal: is a GOAL schedule, which says nothing of a coll",)),
        (["compile", "pipe.yaml"], ("pipe.yaml: is a FIFO",)),
        (["cost", "SPEC", "--loggps", "L=1,Q=2"], ("loggps", "'Q=2'", "L=2500")),
        (["cost", "SPEC", "--loggps", "L=-1"], ("loggps: L=-1", "from 0")),
        (["compare", "SPEC", "--sizes", "1KiB,wide"], ("--sizes", "'wide'", "KiB")),
        (
            ["compare", "SPEC", "--sizes", "99999TiB"],
            ("--sizes: 99999TiB is too large; give at",),
        ),
        (["compare", "SPEC", "--sizes", "7"], ("--sizes", "7", "int32")),
        (["show", "SPEC", "--rank", "4"], ("--rank: 4", "0 to 3")),
        (["algorithms", "bcst"], ("'bcst'", "bcast")),
        (["schema", "--frob"], ("--frob", "collplan schema --help")),
        (["compile", "SPEC", "-o", "no/such/folder/x.plan"], ("no/such/folder/x.plan",)),
        (["export", "SPEC", "--to", "goal", "-o", "no/folder/x.goal"], ("no/folder/x.goal",)),
        (["draw", "SPEC", "-o", "no/folder/x.svg"], ("no/folder/x.svg",)),
        (["draw", "SPEC", "-o", "x.jpeg2"], ("x.jpeg2", "svg")),
        (["run", "SPEC", "-n", "0"], ("-n",)),
        (["run", "SPEC", "--cores", "0,x"], ("--cores: '0,x'", "0,1,1")),
        (["run", "SPEC", "--cores", "0"], ("--cores: 1 processors", "4 cores")),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_wrong_arguments(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: tuple[str]
) -> None:
    monkeypatch.chdir(collplan.folder)
    spec = collplan.write_spec()
    (collplan.folder / "x.goal").write_text("num_ranks 1\nrank 0 {\na: calc 5\n}\n")
    os.mkfifo("pipe.yaml")
    line = collplan(*(spec if word == "SPEC" else word for word in arguments)).error()
    for word in words:
        assert word in line


def test_wrong_number_of_ranks(collplan: CommandLine) -> None:
    plan = collplan.compile()
    line = collplan("run", plan, "-n", "3").error()
    assert "-n: 3 ranks" in line
    assert "compiled for 4" in line
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 2})
    assert "-n: 3 ranks, but machine has 4 on 2 nodes" in collplan("run", spec, "-n", "3").error()


def test_missing_mpi_is_one_line(collplan: CommandLine, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "mpi4py").mkdir(parents=True)
    (hidden / "mpi4py" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'mpi4py'\", name='mpi4py')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "collplan", "run", str(collplan.write_spec()), "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(hidden), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("collplan: error: ")
    assert done.stderr.count("\n") == 1
    assert "mpi4py" in done.stderr
    assert "pip install" in done.stderr


def test_specs_survive_a_command(collplan: CommandLine) -> None:
    path = collplan.write_spec()
    before = json.loads(path.read_text())
    assert collplan("compile", path, "-o", collplan.folder / "x.plan").status == 0
    assert json.loads(path.read_text()) == before
