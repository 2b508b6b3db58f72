"""Folders that take long to make: one worker of a run makes each, and the others use it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from collplan.planner.machine_code.code_folders import locked

PATIENCE_S = 600.0
POLL_S = 0.2


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` has filled in this process or in another one of this run."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, done = base / name, base / f"{name}.done"
    with locked(base / f"{name}.lock", PATIENCE_S, POLL_S) as is_held:
        assert is_held, f"another process makes {folder} for more than {PATIENCE_S} s"
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
