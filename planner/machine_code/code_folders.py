"""Folders for cached machine code that is never out of date.

The machine code of a function also contains functions and constants from other files. The name of
a cache folder therefore includes a hash of numba's version and of source files: of all files in
the folder of the function that mention compilation, as files with kernels and with their records
and constants do, and of the files that compile. Kernels call no kernels of other folders.

If the source folder is not writable, the cache is in the user's cache folder, or else in a
folder for temporary files that belongs to the user. If none of them is writable, every process
compiles for itself. A folder to which other users may write is not used, as their code would be
executed.

This module does not import numba, so that a command can check the cache before it loads numba.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from collplan.planner.machine_code.kept_files import make_private, why_reachable

_COMPILER: Final = ("boxing.py", "compiling.py")
"""Files that decide what machine code is like."""
PATIENCE_S: Final = 60.0
"""Time limit, in seconds, for another process that compiles the same function."""
POLL_S: Final = 0.02
_SAID: Final = "COLLPLAN_UNCACHED"
"""Environment variable that is set once some process warns of the folders of caches."""


@cache
def digest_of(sources: Path) -> str:
    """Return a hash of the files in a folder that are compiled, and of those that compile them."""
    digest = hashlib.sha256()
    for name in _COMPILER:
        digest.update(Path(__file__).with_name(name).read_bytes())
    for path in sorted(sources.glob("*.py")):
        text = path.read_bytes()
        if any(word in text for word in (b"compile", b"@inner", b"@inlined")):
            digest.update(path.name.encode() + b"\0" + text)
    return digest.hexdigest()[:16]


@cache
def cache_folder(sources: Path, chosen: str) -> Path | None:
    """Return the cache folder for the kernels of a source folder; None if none is writable.

    Parameters
    ----------
    sources : Path
        Folder of source files.
    chosen : str
        Parent of the cache folder that the user has chosen; empty for none.

    Returns
    -------
    Path or None
    """
    digest = hashlib.sha256((version("numba") + digest_of(sources)).encode())
    name = f"numba-{digest.hexdigest()[:16]}"
    refused: list[str] = []
    for base in (Path(chosen) if chosen else sources / "__pycache__", *_user_folders()):
        folder = base.resolve() / name
        with suppress(OSError):
            why = why_reachable(folder)
            if why is None and _can_write(folder):
                if refused:
                    _warn_of_others(refused[0], folder)
                return folder
            if why is not None and os.access(base, os.W_OK):
                refused.append(why)
    return None


def _user_folders() -> Iterator[Path]:
    """Generate cache folders that belong to the user."""
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collplan"
    folder = temporary_folder()
    if folder is not None:
        yield folder


def temporary_folder() -> Path | None:
    """Return a folder for temporary files that only the user may write; None if there is none."""
    if sys.platform == "win32":
        return None
    with suppress(OSError):
        folder = Path(tempfile.gettempdir()) / f"collplan-{os.geteuid()}"
        if not folder.is_symlink():  # other users may have made it
            make_private(folder)
            if why_reachable(folder) is None:
                return folder
    return None


def _can_write(folder: Path) -> bool:
    try:
        make_private(folder)
        with tempfile.TemporaryFile(dir=folder):
            return why_reachable(folder) is None
    except OSError:
        return False


@contextmanager
def compiling_alone(path: Path) -> Iterator[None]:
    """Lock a function, so that no other process compiles it during the block.

    Two processes compile it if files cannot be locked, or if the process that holds the lock
    takes longer than `PATIENCE_S`.
    """
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(locked(path.with_name(f"{path.name}.lock"), PATIENCE_S, POLL_S))
        yield


def warn_of_disk(folder: Path | str, error: OSError) -> None:
    """Warn once that machine code cannot be stored, so that the next process compiles it again."""
    _say_once(
        f"machine code cannot be kept in {folder}: {error.strerror or error}; "
        "let NUMBA_CACHE_DIR name a folder with room"
    )


def warn_uncached() -> None:
    """Warn once that every process compiles for itself; child processes are silent."""
    _say_once_for_children(
        "no folder for compiled code can be written, so every process compiles for itself; "
        "name a folder in NUMBA_CACHE_DIR"
    )


def _warn_of_others(why: str, folder: Path) -> None:
    """Warn once that a folder is not used, because others may put code into it."""
    _say_once_for_children(
        f"{why}, so no compiled code is loaded from there; it is kept in {folder}, or where "
        "NUMBA_CACHE_DIR names a folder of yours"
    )


def _say_once_for_children(text: str) -> None:
    if _SAID not in os.environ:
        leave_warnings_to_others()
        _say_once(text)


def leave_warnings_to_others() -> None:
    """Have this process and its children not warn of the folders of caches."""
    os.environ[_SAID] = "1"


@cache
def _say_once(text: str) -> None:
    with suppress(OSError, AttributeError):  # standard error may also be full or closed
        sys.stderr.write(f"collplan: warning: {text}\n")


if sys.platform != "win32":
    import fcntl


@contextmanager
def locked(path: Path, patience_s: float, poll_s: float) -> Iterator[bool]:
    """Hold an exclusive lock on a file during the block, which creates the file.

    Parameters
    ----------
    path : Path
        File that only locks use. The process that holds the lock may remove it.
    patience_s : float
        Time limit for another process to release the lock, in seconds.
    poll_s : float
        Time between two attempts, in seconds.

    Yields
    ------
    bool
        Whether the lock is held. It is not if another process holds it all the time.

    Raises
    ------
    OSError
        If the file cannot be opened or locked.
    """
    if sys.platform == "win32":
        yield True
        return
    deadline = time.monotonic() + patience_s
    with ExitStack() as held:
        while not (is_held := _hold(path, held)) and time.monotonic() < deadline:
            time.sleep(poll_s)
        yield is_held


def _hold(path: Path, held: ExitStack) -> bool:
    """Open and lock a file, to be closed by `held`; return whether this process now holds it."""
    with ExitStack() as opened:
        # Neither wait for the reader of a FIFO, nor create the target of a link.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
        file = opened.enter_context(open(os.open(path, flags, 0o666), "wb"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # The process that held it may have removed it, and others then lock another file.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                held.push(opened.pop_all())
                return True
    return False
