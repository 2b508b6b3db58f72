"""The tests of `make check`: short ones that need no system, and some of many cases."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tiers
from covering import pairs
from folders import ROOT

FILE = """
import subprocess
import pytest
from looping import looped
from tiers import briefly, examples

run, slow = [], []

@pytest.mark.parametrize("case", range(40))
def test_of_many(case):
    pass

@pytest.mark.parametrize("case", [1, 2])
def test_of_two(case):
    pass

@looped("case", range(40))
def test_in_a_loop(case):
    run.append(case)

def test_after_the_loop():
    assert len(run) == 40 // {share}
    assert run == sorted(run)
    assert len(briefly(range(40), "numbers")) == 40 // {share}
    assert examples(40) == (10 if {share} > 1 else 40)

@pytest.mark.quick
@pytest.mark.parametrize("case", range(20))
def test_of_many_that_take_no_time(case):
    pass

@pytest.mark.many
@pytest.mark.parametrize("case", range(10))
def test_of_many_that_take_seconds(case):
    pass

@pytest.mark.many
@looped("case", range(12))
def test_in_a_loop_that_takes_seconds(case):
    slow.append(case)

def test_after_that_loop():
    assert len(slow) == max(2, -(-12 // {many}))

@pytest.mark.system
def test_with_a_system():
    pass

@pytest.mark.long
def test_that_takes_long():
    pass

def test_without_a_mark():
    with pytest.raises(AssertionError, match="test_without_a_mark starts mpiexec: mark it with"):
        subprocess.run(["mpiexec", "--version"])
"""


FILE_OF_MPIS = """
import pytest

@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
@pytest.mark.parametrize("case", range(10))
def test_in_turns(case, mpi):
    pass

@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", ["mpich", "openmpi", "debian-mpich"])
def test_of_each(mpi):
    pass
"""


def outcome(folder: Path, share: int, many: int, *options: str) -> str:
    """Return the last line of pytest on the file in a folder."""
    folder.mkdir()
    lines = lines_of(folder, FILE.format(share=share, many=many), "-q", *options)
    return lines[-1].partition(" in ")[0]


def lines_of(folder: Path, text: str, *options: str) -> list[str]:
    """Return what pytest prints of a file with the text."""
    path = folder / "test_file.py"
    path.write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", os.devnull]
    where = os.pathsep.join(str(ROOT / "tests" / name) for name in (".", "helpers"))
    done = subprocess.run(
        [*command, *options, str(path)],
        env={**os.environ, "PYTHONPATH": where, "PYTEST_ADDOPTS": "-p no:cacheprovider"},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_a_brief_run_takes_an_eighth_of_many_cases_and_leaves_out_what_is_marked(
    tmp_path: Path,
) -> None:
    # 40 / 8 cases, 2 of 2, 20 quick ones, 2 of 10, and five functions
    found = outcome(tmp_path / "planner", 8, 8, "--brief")
    assert found.startswith("34 passed, 45 deselected")


def test_a_brief_run_takes_all_cases_in_folders_of_short_tests(tmp_path: Path) -> None:
    # 40 cases, 2, 20, 2 of 10, and five functions
    found = outcome(tmp_path / "specs", 8, 8, "--brief")
    assert found.startswith("69 passed, 10 deselected")


def test_a_run_may_take_a_share_of_cases_that_take_seconds(tmp_path: Path) -> None:
    # 40 cases, 2, 20, 10 / 4, and seven functions
    found = outcome(tmp_path / "planner", 1, 4, "--share", "4")
    assert found.startswith("72 passed, 7 deselected")


def test_cases_that_differ_only_in_the_mpi_take_turns_in_a_share(tmp_path: Path) -> None:
    for options, n_each in ((["--share", "3"], 1), ([], 2)):
        lines = lines_of(tmp_path, FILE_OF_MPIS, "-v", *options)
        ran = [re.findall(r"test_(\w+)\[(?:(\d)-)?([\w-]+)\] PASSED", line) for line in lines]
        found = [one for (one,) in filter(None, ran)]
        assert Counter(case for name, case, _ in found if name == "in_turns") == dict.fromkeys(
            "0123456789", n_each
        )
        mpis = Counter((name, mpi) for name, _, mpi in found)
        assert mpis.pop(("in_turns", "mpich")) == mpis.pop(("in_turns", "openmpi")) == 5 * n_each
        assert {mpi for _, mpi in mpis} == {"mpich", "openmpi", "debian-mpich"}


def test_all_run_otherwise(tmp_path: Path) -> None:
    assert outcome(tmp_path / "planner", 1, 1).startswith("79 passed")


def test_tests_of_a_dimension_share_out_its_values() -> None:
    taken = {tuple(tiers.some(range(12), name)) for name in "abcdefghijklmnopqrstuvwxyz"}
    assert {len(cases) for cases in taken} in ({2}, {3}, {12})
    assert {case for cases in taken for case in cases} == set(range(12))
    assert tiers.some(range(12), "a") == tiers.some(range(12), "a")


def test_a_share_of_cases_on_ranks_has_every_value_with_each_mpi(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = pairs({"ranks": range(1, 7), "mpi": "ab", "method": range(9), "count": range(4)})
    monkeypatch.setattr(tiers, "_share", 1)
    assert tiers.covering(cases) == cases
    monkeypatch.setattr(tiers, "_share", 5)
    taken = tiers.covering(cases)
    for name in ("ranks", "method", "count"):
        found = {(case["mpi"], case[name]) for case in taken}
        assert found == {(case["mpi"], case[name]) for case in cases}
    assert sum(case["ranks"] > 2 for case in taken) > len(taken) / 2
    assert len(taken) < len(cases) / 2
