"""Folders of machine code that is never stale.

Numba keeps machine code beside the source file and renews it when that file
changes, but what a function calls or takes from another file is compiled into
it, too. So the cache lies in a folder named after the contents of all files with
kernels in the function's own folder; kernels call no kernels of other folders,
and take constants from files with kernels only.

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
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path


def is_missing(source: Path, function: str) -> bool:
    """Return whether machine code of a function could be kept, but is not.

    Parameters
    ----------
    source : Path
        File of the function.
    function : str
        Its name.
    """
    folder = cache_folder(source.parent, os.environ.get("NUMBA_CACHE_DIR", ""))
    python = "py{}{}".format(*sys.version_info)
    pattern = f"{source.stem}.{function}-*.{python}*.nbi"
    return folder is not None and not any(folder.glob(f"*/{pattern}"))


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
