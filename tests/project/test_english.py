"""Habits of language that no docstring, comment or page may have."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from folders import ROOT
from import_graph import syntax_nodes

FOLDERS = ("specs", "planner", "executors", "collplan", "benchmarks", "examples", "tests")
MODULES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
QUESTION = re.compile(r"\s*(What|How|Which|Whether|Who|Whose|Where|When)\b")
QUOTED_QUESTION = re.compile(r"[\"']" + QUESTION.pattern)
"""Of the files, few have this anywhere; only these need be parsed."""
PRONOUN = re.compile(r"\bso (many|much)\b")
"""An amount without its noun, as in "up to so many bytes"; name the parameter, or its meaning."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstrings(source: str) -> list[tuple[int, str]]:
    """Return lines and texts of strings that stand alone, if one may begin with a question."""
    if not QUOTED_QUESTION.search(source):
        return []
    return [
        (node.lineno, node.value.value)
        for node in syntax_nodes(source)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


@pytest.mark.quick
@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_noun_or_an_imperative(folder: str) -> None:
    wrong = [
        f"{name(file)}:{line}: {text.strip().splitlines()[0]}"
        for file in MODULES
        if file.is_relative_to(ROOT / folder)
        for line, text in docstrings(file.read_text())
        if QUESTION.match(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_amounts_have_names() -> None:
    wrong = [
        f"{name(file)}:{number}: {line}"
        for file in [*MODULES, *PAGES]
        if file != Path(__file__).resolve()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if PRONOUN.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_habits_are_found() -> None:
    (found,) = docstrings('"""What a task does."""\n')
    assert QUESTION.match(found[1])
    assert PRONOUN.search("Return the spec for so many elements.")
    assert not QUESTION.match("Whatever: not a question word of ours.")
