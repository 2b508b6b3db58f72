"""Files of a cache, which are used only as this user has written them.

What a cache holds is executed, or makes objects that are. A file therefore ends with the size and
a checksum of its content, and whatever is not a regular file of this user with both is missing:
files that a full disk or a power failure has cut, files that others own or may write, FIFOs,
folders and links. Their owners compile again, and replace them.
"""

from __future__ import annotations

import os
import stat
import struct
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

if os.name == "posix":
    import grp
    import pwd

_END: Final = struct.Struct("<8sQ32s")
_MARK: Final = b"collplan"
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
UNIT_S: Final = 0.01
"""Time for which `add_time` adds a byte, in seconds."""
LONGEST_S: Final = 100.0
"""Longest time that `add_time` adds, in seconds."""
_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


def read_kept(path: Path) -> bytes | None:
    """Return the content of a file as it was written; None if there is no such file.

    Parameters
    ----------
    path : Path
        A file that `write_kept` has written.
    """
    whole = b""
    with suppress(OSError):
        if why_shared(path.parent.lstat(), path.parent) is not None:
            return None
        with open(os.open(path, _FLAGS), "rb") as file:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode) and why_shared(found, path) is None:
                whole = file.read()
    content, end = whole[: -_END.size], whole[-_END.size :]
    return content if end == _end_of(content) else None


def write_kept(path: Path, content: bytes) -> None:
    """Write a file for `read_kept`. It appears only when it is complete.

    Raises
    ------
    OSError
        If it cannot be written, or if others may change its folder.
    """
    why = why_shared(path.parent.lstat(), path.parent)
    if why is not None:
        raise PermissionError(0, why)
    descriptor, beside = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content + _end_of(content))
        with suppress(OSError):
            path.rmdir()  # an empty folder that has the name of the file
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _end_of(content: bytes) -> bytes:
    return _END.pack(_MARK, len(content), sha256(content).digest())


def time_in(path: Path) -> float:
    """Return the time that processes have added to a file, in seconds; only its size counts."""
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            return found.st_size * UNIT_S
    return 0.0


def add_time(path: Path, seconds: float) -> None:
    """Add a time to a file, if it can be written."""
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FLAGS
        with open(os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR), "ab") as file:
            file.write(bytes(round(min(seconds, LONGEST_S) / UNIT_S)))


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents, which only this user may enter.

    Raises
    ------
    OSError
        If they cannot be created.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        with suppress(FileExistsError):
            one.mkdir(mode=stat.S_IRWXU)
            one.chmod(stat.S_IRWXU)  # the umask may have taken rights of the user


def why_reachable(folder: Path) -> str | None:
    """Return why other users may put files into a folder, or another folder in its place.

    Parameters
    ----------
    folder : Path
        A folder without links in its path; it and its parents may be missing.

    Returns
    -------
    str or None
        None if only this user and the administrator may.
    """
    for path in (folder, *folder.parents):
        try:
            found = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        # Whoever owns the root folder has the rights of an administrator, whose number a container
        # may hide.
        above = () if path == folder else (0, Path(folder.anchor).lstat().st_uid)
        # In a folder for temporary files, others can neither rename nor remove what is ours.
        is_sticky = path != folder and bool(found.st_mode & stat.S_ISVTX)
        why = why_shared(found, path, above, is_sticky=is_sticky)
        if why is not None:
            return why
    return None


def why_shared(
    found: os.stat_result, path: Path, trusted: tuple[int, ...] = (), *, is_sticky: bool = False
) -> str | None:
    """Return why other users may change a file or a folder; None if they may not.

    Parameters
    ----------
    found : os.stat_result
    path : Path
        Path of the file, for the message.
    trusted : tuple of int
        Other users who may own it.
    is_sticky : bool
        Whether others may write to it.
    """
    if os.name != "posix":
        return None
    if found.st_uid not in (os.geteuid(), *trusted):
        return f"{path} belongs to user {found.st_uid}"
    writers = found.st_mode & _OTHERS
    if not writers or is_sticky or (writers == stat.S_IWGRP and _is_own_group(found.st_gid)):
        return None
    return f"other users may write to {path}"


def _is_own_group(group: int) -> bool:
    """Return whether a group is the user's private one, by its name and its members.

    Many systems give each user such a group, and let it write to all new files.
    """
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    is_own = found.gr_gid == user.pw_gid and found.gr_name == user.pw_name
    return is_own and {*found.gr_mem} <= {user.pw_name}
