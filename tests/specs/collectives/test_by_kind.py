"""Registries by kind of collective."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from collplan.specs.collectives.by_kind import ByKind
from collplan.specs.errors import SpecError


def test_a_function_is_registered_by_its_kind() -> None:
    halves = ByKind[Callable[[int], int]]("nobody halves {}")

    @halves("bcast")
    def half(number: int) -> int:
        return number // 2

    assert halves["bcast"] is half
    assert half(7) == 3


def test_a_kind_without_a_function_is_named() -> None:
    with pytest.raises(SpecError, match=r"collective\.kind: nobody halves scan"):
        ByKind("nobody halves {}")["scan"]


def test_own_algorithms_are_asked_for_without_models() -> None:
    code = "import sys, collplan.own_algorithms; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
