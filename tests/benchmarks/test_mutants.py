"""The script that changes the sources and counts which changes tests detect."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from folders import BENCHMARKS, HELPERS, ROOT

sys.path.insert(0, str(BENCHMARKS))

from mutants_runs import OF_C
from mutants_sources import Mutant, mutants_of, sample, source_files

LAYERS = ("specs", "planner", "executors", "collplan")
LEFT_OUT = '''
"""A module that is 1 of 2."""
from typing import TYPE_CHECKING, Literal
import os
__all__ = ["f"] * 2
Kind = Literal[1, 2] | None
if TYPE_CHECKING:
    n = 1 + 2
@lru_cache(maxsize=3)
def f(n: Literal[1, 2], *, m: tuple[int, int] | None) -> Literal[3]:
    """Return 1 + 2."""
    held: Literal[1] | None
    text = "number " + f"{n + 1}"
    logging.info("%d of %d", n, n - 1)
    pairs = zip(n, strict=True)
    return isinstance(n, int | float)
def ended(pid):
    if pid > 1:
        os.kill(pid, 9)
class Base:
    __slots__ = ("a",) * 2
    @abstractmethod
    def g(self): raise NotImplementedError(1 + 2)
'''
SHIM = b"""#include <math.h>
enum { ONE = 1 };
/* Returns 1 + 2. */
static int worst(int a, int b, const char *text) {
    int most = a > b ? a : b; /* 3 */
    count(most, text, "1 + 2");
    return most + 1;
}
void end(int pid) { kill(pid, 9); }
"""
TINY = """
def one(n):
    return n + 1
def two(n):
    return n * n
def three(n):
    return n - 3
"""
TEST_SMALL = """
from collplan.planner.small import one, two
def test_one(): assert one(1) == 2
def test_two(): assert two(2) == 4
"""
TEST_WHOLE = """
from collplan.planner.small import three
def test_three(): assert three(5) == 2
"""
IN_C = """
int four(int n) {
    return n + 4;
}
"""
TEST_C = """
from pathlib import Path
def test_four(): assert "n + 4" in Path("collplan/preload/shim/small.c").read_text()
"""


def changes(source: str) -> set[tuple[str, str, str]]:
    return {
        (one.operator, one.original, one.mutated) for one in mutants_of("a.py", source.encode())
    }


@pytest.mark.parametrize(
    ("line", "operator", "original", "mutated"),
    [
        ("a < b", "comparison", "a < b", "a <= b"),
        ("a < b in c", "comparison", "a < b in c", "a < b not in c"),
        ("a is None", "comparison", "a is None", "a is not None"),
        ("(a + b) * c", "arithmetic", "(a + b) * c", "(a + b) + c"),
        ("é // b", "arithmetic", "é // b", "é * b"),
        ("-a", "arithmetic", "-a", "a"),
        ("a and b or c", "logic", "a and b", "a or b"),
        ("not a", "logic", "not a", "a"),
        ("a[b:]", "off by one", "b", "b + 1"),
        ("range(a, b)", "off by one", "b", "b + 1"),
        ("f(a, b.c)", "swapped arguments", "a, b.c", "b.c, a"),
        ("f(True)", "constant", "True", "False"),
        ("a[7]", "constant", "7", "8"),
        ("f(0.5)", "constant", "0.5", "1.0"),
    ],
)
def test_expressions_are_changed(line: str, operator: str, original: str, mutated: str) -> None:
    assert (operator, original, mutated) in changes(f"def f():\n    return {line}\n")


@pytest.mark.parametrize(
    "statement",
    ["g()", "a.b = c", "a += b", "raise E", "if a:\n        return", "for a in b: continue"],
)
def test_statements_are_dropped(statement: str) -> None:
    dropped = statement.removeprefix("for a in b: ")
    assert ("dropped statement", dropped, "pass") in changes(f"def f():\n    {statement}\n")


@pytest.mark.parametrize("line", ["max(a, b)", "f(a, 1)", "f(a, *b)", "f(a, a)", 'f("a", "b")'])
def test_arguments_that_do_not_count_or_are_of_other_types_are_not_swapped(line: str) -> None:
    assert "swapped arguments" not in {
        kind for kind, _, _ in changes(f"def f():\n    return {line}")
    }


def test_what_no_test_should_notice_or_could_do_harm_is_left_out() -> None:
    assert changes(LEFT_OUT) == set()


def test_only_the_changed_span_differs() -> None:
    source = b"def f(a):\n    return (a  # a comment\n            , 2 *   a)\n"
    (product,) = (one for one in mutants_of("a.py", source) if one.operator == "arithmetic")
    assert product.apply(source) == source.replace(b"2 *   a", b"2 +   a")


def test_all_mutants_of_a_real_file_are_valid_and_have_names_of_their_own() -> None:
    file = "planner/metrics.py"
    source = (ROOT / file).read_bytes()
    found = mutants_of(file, source)
    assert len(found) > 50
    assert len({one.identity for one in found}) == len(found)
    for one in found:
        assert ast.dump(ast.parse(one.apply(source))) != ast.dump(ast.parse(source))


def test_names_depend_on_the_function_only() -> None:
    function = b"def f(a):\n    return a + 1 + g(a + 1)\n"
    alone = {one.identity for one in mutants_of("a.py", function)}
    below = {
        one.identity for one in mutants_of("a.py", b"def e(a):\n    return a + 1\n\n" + function)
    }
    assert {name for name in below if name[1] == "f"} == alone
    assert ("a.py", "f", "a + 1", "a - 1", 1) in alone
    changed = {one.identity for one in mutants_of("a.py", function.replace(b"a + 1 +", b"a - 1 +"))}
    assert alone - changed
    assert alone & changed


def test_bodies_of_c_functions_are_changed() -> None:
    found = [one for one in mutants_of("a.c", SHIM) if one.function == "worst"]
    assert [(one.lines[0], one.operator, one.mutated) for one in found] == [
        (5, "comparison", "int most = a >= b ? a : b; /* 3 */"),
        (6, "dropped statement", ";"),
        (6, "swapped arguments", 'count(text, most, "1 + 2");'),
        (7, "constant", "return most + 2;"),
        (7, "arithmetic", "return most - 1;"),
    ]
    assert len(mutants_of("a.c", SHIM)) == len(found)
    assert found[0].apply(SHIM) == SHIM.replace(b"a > b", b"a >= b")


def test_links_to_the_layers_are_not_followed() -> None:
    files = source_files(ROOT)
    assert len(files) == len({(ROOT / file).resolve() for file in files})
    some = {"planner/memory.py", "collplan/api/binding.py", "collplan/preload/shim/calls.c"}
    assert some < set(files)


def test_samples_are_repeatable_and_weighted_by_lines(tmp_path: Path) -> None:
    for package, n_lines in (("planner/large", 90), ("planner/small", 30)):
        (tmp_path / package).mkdir(parents=True)
        lines = [f"def f{i}(a): return a + {i}\n" for i in range(n_lines)]
        (tmp_path / package / "module.py").write_text("".join(lines))
    drawn = sample(tmp_path, 20, 1)
    assert Counter(one.package for one in drawn) == {"planner/large": 15, "planner/small": 5}
    assert len({(one.file, one.lines) for one in drawn}) == 20
    assert sample(tmp_path, 20, 1) == drawn
    assert sample(tmp_path, 20, 2) != drawn


def run_tiny(
    project: Path, *arguments: str, check: str = "tests/planner/test_small.py"
) -> tuple[list[dict[str, object]], str]:
    """Run the script of a project, and return its results and its report."""
    tiers = ("--tier", f"check={check}", "--tier", "test=")
    script = project / "benchmarks" / "mutants.py"
    done = subprocess.run(
        [sys.executable, str(script), "--jobs", "1", *tiers, "--seconds", "20", "20", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = Path(arguments[arguments.index("--results") + 1])
    return [json.loads(line) for line in results.read_text().splitlines()], done.stdout


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Return a project with a small module in Python and one in C, and the script."""
    project = tmp_path / "tiny"
    tests = [f"tests/{name}" for name in ("helpers", "project", "planner", "collplan/cli")]
    for folder in (*LAYERS, "collplan/preload/shim", "benchmarks", *tests):
        (project / folder).mkdir(parents=True)
    for layer in LAYERS:
        (project / layer / "__init__.py").touch()
    for layer in LAYERS[:-1]:
        (project / "collplan" / layer).symlink_to(f"../{layer}")
    for file in BENCHMARKS.glob("mutants*"):
        shutil.copy(file, project / "benchmarks")
    for name in ("folders", "import_graph", "ending_jobs", "watched_tests"):
        shutil.copy(HELPERS / f"{name}.py", project / "tests" / "helpers")
    shutil.copy(ROOT / "tests" / "project" / "test_mirror.py", project / "tests" / "project")
    (project / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (project / "planner" / "small.py").write_text(TINY)
    (project / "tests" / "planner" / "test_small.py").write_text(TEST_SMALL)
    (project / "tests" / "planner" / "test_whole.py").write_text(TEST_WHOLE)
    (project / "collplan" / "preload" / "shim" / "small.c").write_text(IN_C)
    for file in OF_C:
        (project / file).write_text(TEST_C)
    return project


@pytest.mark.long
def test_a_tiny_project(tiny: Path) -> None:
    """One mutant is detected by the first tier, two only by the second, and one by none."""
    results, report = run_tiny(tiny, "--results", str(tiny / "first.jsonl"))
    found = {str(one["function"]): one for one in results}
    assert {name: one["tier"] for name, one in found.items()} == {
        "one": "check",
        "two": None,
        "three": "test",
        "four": "test",
    }
    assert found["one"]["killer"] == "tests/planner/test_small.py::test_one"
    assert found["three"]["killer"] == "tests/planner/test_whole.py::test_three"
    assert "| all | 4 | 1 | 2 | 0 | 1 | 75% |" in report
    assert "survived: planner/small.py:5 arithmetic: n * n -> n + n" in report
    # Another test detects the survivor, although it has moved to another line.
    (tiny / "planner" / "small.py").write_text(f'"""A docstring."""\n{TINY}')
    (tiny / "tests" / "planner" / "test_small.py").write_text(
        TEST_SMALL.replace("two(2) == 4", "two(3) == 9")
    )
    of = ("--of", str(tiny / "first.jsonl"), "--survivors")
    (again,), _ = run_tiny(tiny, "--results", str(tiny / "second.jsonl"), *of)
    assert (again["function"], again["tier"], again["line"]) == ("two", "check", 6)


@pytest.mark.long
def test_only_changed_files_of_tests_run_again_before_mutants(tiny: Path) -> None:
    check = "-k 'one or two'"
    run_tiny(tiny, "--results", str(tiny / "first.jsonl"), check=check)
    (tiny / "tests" / "planner" / "test_small.py").write_text(TEST_SMALL.replace("== 4", "== 5"))
    (tiny / "tests" / "planner" / "test_new.py").write_text(TEST_SMALL.replace("== 2", "!= 0"))
    of = ("--of", str(tiny / "first.jsonl"))
    results, _ = run_tiny(tiny, "--results", str(tiny / "second.jsonl"), *of, check=check)
    (place,) = (tiny / "build" / "mutants").glob("map-*")
    first, second = (json.loads((place / f"run-{i}" / "tests.json").read_text()) for i in (0, 1))
    assert set(first["seconds"]) == {
        f"tests/planner/test_small.py::test_{n}" for n in ("one", "two")
    }
    assert set(second["files"]) == {"tests/planner/test_small.py", "tests/planner/test_new.py"}
    assert second["failed"] == ["tests/planner/test_small.py::test_two"]
    killers = {str(one["function"]): one["killer"] for one in results}
    assert killers["one"] in {
        f"tests/planner/test_{name}.py::test_one" for name in ("small", "new")
    }
    assert killers["two"] is None


def test_packages_of_mutants() -> None:
    names = {
        "planner/memory.py": "planner",
        "planner/passes/progress/cores.py": "planner/passes",
        "collplan/preload/library.py": "collplan/preload",
        "collplan/preload/shim/calls.c": "collplan/preload/shim",
    }
    for file, package in names.items():
        assert Mutant(file, "", "", "", "").package == package
