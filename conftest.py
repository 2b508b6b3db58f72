"""Collect examples in docstrings where there are any, and nothing that starts MPI here."""

from __future__ import annotations

from pathlib import Path

PROGRAMS = Path(__file__).parent / "tests" / "mpi_programs"
PACKAGE = Path(__file__).parent / "collplan"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore programs for ranks, and modules without examples, which are not even imported."""
    if PROGRAMS in collection_path.parents:
        return True
    if PACKAGE in collection_path.parents and collection_path.suffix == ".py":
        return ">>> " not in collection_path.read_text(encoding="utf-8")
    return None
