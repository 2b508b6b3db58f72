"""Folders of machine code that is never stale.

Numba keeps machine code beside the source file and renews it when that file
changes, but what a function calls or takes from another file is compiled into
it, too. So the cache lies in a folder named after the contents of all files in the
function's own folder that contain kernels or speak of compiled code, as those with
its records and constants do. Kernels call no kernels of other folders.

Where the source folder cannot be written, the cache lies in the user's cache folder,
or else in a folder of the user's own for temporary files. Where neither can be written,
every process compiles for itself.

This module needs no numba, so that a command can ask what is kept before it loads any.
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
"""Environment variable that is set once somebody has said that nothing is cached."""


@cache
def cache_folder(sources: Path, chosen: str) -> Path | None:
    """Return where the machine code of a folder of sources belongs, None if nowhere."""
    digest = hashlib.sha256(version("numba").encode())
    for path in sorted(sources.glob("*.py")):
        text = path.read_bytes()
        if any(word in text for word in (b"compile", b"@inner", b"@inlined")):
            digest.update(path.name.encode() + b"\0" + text)
    name = f"numba-{digest.hexdigest()[:16]}"
    bases = [Path(chosen) if chosen else sources / "__pycache__", *_user_folders()]
    return next((base / name for base in bases if _can_write(base / name)), None)


def _user_folders() -> Iterator[Path]:
    """Yield folders that belong to the user alone: what is in them is executed."""
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collplan"
    if sys.platform != "win32":
        folder = Path(tempfile.gettempdir()) / f"collplan-{os.geteuid()}"
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            # Others may have made a folder of that name, for us to load their code.
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not is_open:
                yield folder


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def compiling_alone(path: Path) -> Iterator[None]:
    """Wait until no other process compiles what is kept at a path, and keep others from it.

    If files cannot be locked, or the process that compiles was stopped, two processes compile.
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
    """Say once that machine code cannot be kept; the next process compiles it again."""
    _say_once(
        f"machine code cannot be kept in {folder}: {error.strerror or error}; "
        "let NUMBA_CACHE_DIR name a folder with room"
    )


def warn_uncached() -> None:
    """Say once, not again in processes that this one starts, what costs time everywhere."""
    if _SAID not in os.environ:
        os.environ[_SAID] = "1"
        _say_once(
            "no folder for compiled code can be written, so every process compiles for itself; "
            "name a folder in NUMBA_CACHE_DIR"
        )


@cache
def _say_once(text: str) -> None:
    with suppress(OSError, AttributeError):  # standard error may be full or closed, too
        sys.stderr.write(f"collplan: warning: {text}\n")
