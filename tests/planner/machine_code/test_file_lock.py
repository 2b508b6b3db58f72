"""Locks of files: one process at a time, and no wait for what is no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collplan.planner.machine_code.file_lock import locked


def test_one_holds_the_lock_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, 0, 0) as first:
        with locked(path, 0, 0) as second:
            assert (first, second) == (True, False)
        with locked(path, 0.01, 0.001) as third:
            assert not third
    with locked(path, 0, 0) as again:
        assert again


def test_a_lock_that_its_holder_has_removed_is_another(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, 0, 0):
        path.unlink()
        with locked(path, 0, 0) as is_held:
            assert is_held


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["fifo", "folder", "dangling link"])
def test_what_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    make = {"fifo": os.mkfifo, "folder": os.mkdir}
    make.get(kind, lambda one: one.symlink_to(tmp_path / "none"))(path)
    with pytest.raises(OSError, match="lock"), locked(path, 60, 60):
        pass
    assert not (tmp_path / "none").exists()


def test_a_lock_is_not_executable(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", 0, 0):
        assert (tmp_path / "lock").stat().st_mode & 0o111 == 0
