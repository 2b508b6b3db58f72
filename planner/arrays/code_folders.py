"""Folders for cached machine code that is never out of date.

Numba stores machine code beside the source file and renews it when that file changes. However,
the machine code of a function also contains functions and constants from other files. The name of
a cache folder therefore includes a hash of numba's version and of source files: of all files in
the folder of the function that mention compilation, as files with kernels and with their records
and constants do. Kernels call no kernels of other folders.

If the source folder is not writable, the cache is in the user's cache folder, or else in a
folder for temporary files that belongs to the user. If none of them is writable, every process
compiles for itself.

This module does not import numba, so that a command can check the cache before it loads numba.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import fcntl

PATIENCE_S: Final = 60.0
"""Time limit, in seconds, for another process that compiles the same function."""
POLL_S: Final = 0.02
_SAID: Final = "COLLPLAN_UNCACHED"
"""Environment variable that is set once a process has warned that nothing is cached."""


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
    digest = hashlib.sha256(version("numba").encode())
    for path in sorted(sources.glob("*.py")):
        text = path.read_bytes()
        if any(word in text for word in (b"compile", b"@inner", b"@inlined")):
            digest.update(path.name.encode() + b"\0" + text)
    name = f"numba-{digest.hexdigest()[:16]}"
    bases = [Path(chosen) if chosen else sources / "__pycache__", *_user_folders()]
    return next((base / name for base in bases if _can_write(base / name)), None)


def _user_folders() -> Iterator[Path]:
    """Generate cache folders that belong to the user alone, because their code is executed."""
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
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # Other users may have created a folder of this name to make us load their code.
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not is_open:
            return folder
    return None


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def compiling_alone(path: Path) -> Iterator[None]:
    """Lock a function, so that no other process compiles it during the block.

    Two processes compile it if files cannot be locked, or if the process that holds the lock
    takes longer than `PATIENCE_S`.
    """
    if sys.platform == "win32":
        yield
        return
    end_s = time.monotonic() + PATIENCE_S
    with ExitStack() as held:
        with suppress(OSError):
            lock = held.enter_context(path.with_name(f"{path.name}.lock").open("wb"))
            while time.monotonic() < end_s:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(POLL_S)
        yield


def warn_of_disk(folder: Path | str, error: OSError) -> None:
    """Warn once that machine code cannot be stored, so that the next process compiles it again."""
    _say_once(
        f"machine code cannot be kept in {folder}: {error.strerror or error}; "
        "let NUMBA_CACHE_DIR name a folder with room"
    )


def warn_uncached() -> None:
    """Warn once that every process compiles for itself; child processes are silent."""
    if _SAID not in os.environ:
        os.environ[_SAID] = "1"
        _say_once(
            "no folder for compiled code can be written, so every process compiles for itself; "
            "name a folder in NUMBA_CACHE_DIR"
        )


@cache
def _say_once(text: str) -> None:
    with suppress(OSError, AttributeError):  # standard error may also be full or closed
        sys.stderr.write(f"collplan: warning: {text}\n")
