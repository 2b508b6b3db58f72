"""Files of a cache count as missing unless they are as this user has written them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from collplan.planner.machine_code import kept_files
from collplan.planner.machine_code.kept_files import (
    add_time,
    make_private,
    read_kept,
    time_in,
    why_reachable,
    write_kept,
)
from damaging import DAMAGES, OTHER_USER, damaged

IS_ROOT = os.geteuid() == 0
CONTENTS = b"code" * 25, bytes(range(256)) * 500


@pytest.mark.quick
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_missing_and_can_be_written_again(damage: str, tmp_path: Path) -> None:
    for number, content in enumerate(CONTENTS):
        path = tmp_path / str(number)
        assert read_kept(path) is None
        write_kept(path, content)
        assert read_kept(path) == content
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        damaged(path, damage)
        assert read_kept(path) is None
        write_kept(path, content)
        assert read_kept(path) == content
    assert len([*tmp_path.iterdir()]) == len(CONTENTS)


def test_times_add_up(tmp_path: Path) -> None:
    path = tmp_path / "spent"
    assert time_in(path) == 0
    for _ in range(3):
        add_time(path, 0.25)
    assert time_in(path) == pytest.approx(0.75)
    add_time(path, 1e9)
    assert time_in(path) < 200


@pytest.mark.quick
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_time_is_added_to_what_is_no_file(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "spent"
    add_time(path, 0.5)
    damaged(path, damage)
    is_file = path.is_file() and not path.is_symlink()
    before = time_in(path)
    add_time(path, 0.5)
    assert time_in(path) == before + is_file * 0.5


def test_every_cut_of_a_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_kept(path, b"machine code")
    whole = path.read_bytes()
    for n_bytes in range(len(whole)):
        path.write_bytes(whole[:n_bytes])
        assert read_kept(path) is None
    path.write_bytes(whole)
    path.chmod(0o622)
    assert read_kept(path) is None, "others may have written it"


def test_a_full_folder_with_the_name_of_a_file_stays(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "other").touch()
    with pytest.raises(OSError, match="directory"):
        write_kept(tmp_path / "file", b"code")
    assert [one.name for one in tmp_path.rglob("*")] == ["file", "other"]


def test_others_may_not_write_to_the_folder_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shared" / "file"
    path.parent.mkdir()
    write_kept(path, b"code")
    path.parent.chmod(0o777)
    assert read_kept(path) is None
    with pytest.raises(OSError, match="other users may write to"):
        write_kept(path, b"code")


@pytest.mark.quick
@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_own_folders_are_private_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        make_private(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert why_reachable(tmp_path / "a" / "b" / "missing") is None


def test_a_folder_is_as_private_as_all_above_it(tmp_path: Path) -> None:
    above, folder = tmp_path / "above", tmp_path / "above" / "own"
    make_private(folder)
    assert why_reachable(folder) is None
    above.chmod(0o777)
    assert why_reachable(folder) == f"other users may write to {above}"
    # As in /tmp, others cannot replace what is ours.
    above.chmod(0o1777)
    assert why_reachable(folder) is None
    folder.chmod(0o1777)
    assert why_reachable(folder) == f"other users may write to {folder}"


@pytest.mark.skipif(not IS_ROOT, reason="only root can make a file of another user")
def test_what_another_user_owns_is_not_private(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "own"
    make_private(folder)
    for path in (folder.parent, folder):
        os.chown(path, OTHER_USER, -1)
        assert why_reachable(folder) == f"{path} belongs to user {OTHER_USER}"
        os.chown(path, 0, -1)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "members", "is_own"),
    [("me", [], True), ("me", ["me"], True), ("me", ["you"], False), ("us", [], False)],
)
def test_the_private_group_of_a_user_may_write(
    name: str, members: list[str], is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path.stat().st_gid
    user = kept_files.pwd.struct_passwd(("me", "x", os.geteuid(), group, "", "/", ""))
    found = kept_files.grp.struct_group((name, "x", group, members))
    monkeypatch.setattr(kept_files.pwd, "getpwuid", lambda _: user)
    monkeypatch.setattr(kept_files.grp, "getgrgid", lambda _: found)
    tmp_path.chmod(0o770)
    assert (why_reachable(tmp_path) is None) == is_own
