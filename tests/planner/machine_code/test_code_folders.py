"""Folders of machine code, and what happens where nothing can be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collplan.planner.machine_code import code_folders
from collplan.planner.machine_code.code_folders import cache_folder, locked
from damaging import OTHER_USER
from kernel_files import USE, write_kernels

IS_ROOT = os.geteuid() == 0


def test_files_without_kernels_change_nothing(tmp_path):
    write_kernels(tmp_path, 3)
    before = cache_folder.__wrapped__(tmp_path, "")
    (tmp_path / "report.py").write_text("TITLE = 'a'\n")
    assert cache_folder.__wrapped__(tmp_path, "") == before


def run_twice(folder, **environment):
    environment = {**os.environ, "XDG_CACHE_HOME": "", "HOME": "/dev/null/none", **environment}
    command = [sys.executable, "-c", USE, str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def read_only_sources(folder):
    """Write kernels into a folder in which not even root can make a cache."""
    write_kernels(folder, 3)
    (folder / "__pycache__").write_text("no folder")


@pytest.mark.long
def test_a_read_only_installation_caches_in_a_folder_for_temporary_files(tmp_path):
    read_only_sources(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    missed = [run_twice(tmp_path, TMPDIR=str(temporary)) for _ in range(2)]
    assert [run.stdout for run in missed] == ["2\n", "0\n"]
    assert not any(run.stderr for run in missed)
    (folder,) = temporary.iterdir()
    assert folder.name == f"collplan-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.long
def test_a_read_only_installation_prefers_the_cache_of_the_user(tmp_path):
    read_only_sources(tmp_path)
    missed = [run_twice(tmp_path, HOME=str(tmp_path)) for _ in range(2)]
    assert [run.stdout for run in missed] == ["2\n", "0\n"]
    assert (tmp_path / ".cache" / "collplan").is_dir()


@pytest.mark.long
def test_without_any_folder_to_write_into_one_line_says_that_nothing_is_cached(tmp_path):
    read_only_sources(tmp_path)
    temporary = tmp_path / "temporary"
    # Where others may write, nothing is loaded from.
    (temporary / f"collplan-{os.geteuid()}").mkdir(parents=True)
    (temporary / f"collplan-{os.geteuid()}").chmod(0o777)
    done = run_twice(tmp_path, TMPDIR=str(temporary))
    assert done.stdout == "2\n"
    assert done.stderr.startswith("collplan: warning: no folder for compiled code can be written")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("name a folder in NUMBA_CACHE_DIR\n")


@pytest.mark.quick
@pytest.mark.parametrize("how", ["planted", "shared", "above"])
@pytest.mark.parametrize("chosen", [True, False])
def test_code_of_other_users_is_not_loaded_and_one_line_says_so(
    how: str,
    chosen: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if how == "planted" and not IS_ROOT:
        pytest.skip("only root can make a file of another user")
    write_kernels(tmp_path, 3)
    monkeypatch.setenv("COLLPLAN_UNCACHED", "")  # is deleted again at the end
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    shared = tmp_path / ("shared" if chosen else "__pycache__")
    own = cache_folder.__wrapped__(tmp_path, str(shared) if chosen else "")
    assert own.parent == shared
    if how == "planted":
        own.chmod(0o755)
        os.chown(own, OTHER_USER, -1)
    else:
        (own if how == "shared" else shared).chmod(0o777)
    for _ in range(2):
        monkeypatch.delenv("COLLPLAN_UNCACHED")
        code_folders._say_once.cache_clear()
        found = cache_folder.__wrapped__(tmp_path, str(shared) if chosen else "")
        assert found == tmp_path / "home" / "collplan" / own.name
        why = f"{own} belongs to user {OTHER_USER}"
        if how != "planted":
            why = f"other users may write to {own if how == 'shared' else shared}"
        (line,) = capsys.readouterr().err.splitlines()
        assert line == (
            f"collplan: warning: {why}, so no compiled code is loaded from there; it is kept in "
            f"{found}, or where NUMBA_CACHE_DIR names a folder of yours"
        )


@pytest.mark.parametrize("umask", [0, 0o077])
def test_folders_of_code_are_private_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    write_kernels(tmp_path, 3)
    before = os.umask(umask)
    try:
        folder = cache_folder.__wrapped__(tmp_path, str(tmp_path / "new" / "chosen"))
    finally:
        os.umask(before)
    for one in (folder, *folder.parents):
        if one == tmp_path:
            break
        assert one.stat().st_mode & 0o777 == 0o700


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
