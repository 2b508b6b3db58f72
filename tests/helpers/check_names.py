"""Names of the checks in programs that import MPI, read without doing so."""

from __future__ import annotations

import ast

from folders import PROGRAMS


def checks_of(program: str) -> list[str]:
    """Return the names of the functions ``check_…`` of a program."""
    tree = ast.parse((PROGRAMS / program).read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if name.startswith("check_")]
