"""The one way in which output files are written: whole, or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Final, cast

from collplan.specs.errors import CollplanError

_MOST_IN_MEMORY: Final = 1 << 26
"""Bytes for a device that are kept in memory; more wait in a temporary file."""


@contextmanager
def replacing(path: str | Path, error: type[CollplanError] = CollplanError) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of `path` once it is complete.

    A symbolic link stays; the file it names is replaced. A device, a FIFO or the
    standard output cannot be replaced: the complete content is written into it.

    Parameters
    ----------
    path : str or Path
        The file to write; what is there stays as it is until the block ends.
    error : type of CollplanError
        What to raise where the file system refuses.

    Yields
    ------
    binary file
        Open for writing and seekable.

    Raises
    ------
    CollplanError
        Of type `error`, naming `path` and what the system said.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "plan.txt")) as file:
    ...         _ = file.write(b"#0 rank 0: send")
    ...     sorted(entry.name for entry in Path(folder).iterdir())
    ['plan.txt']
    """
    path = Path(path)
    try:
        with _spooled(path) if _is_written_into(path) else _beside(path) as file:
            yield file
    except OSError as refusal:
        raise error(
            f"{path}: cannot be written: {refusal.strerror or refusal}; "
            f"name a file in a folder that exists and is writable"
        ) from refusal


def write_text(path: str | Path, text: str) -> None:
    """Write a text file so that it is there whole or not at all.

    Raises
    ------
    CollplanError
        If it can't be written; what was there stays as it is.
    """
    with replacing(path) as file:
        file.write(text.encode())


def is_standard_output(path: Path) -> bool:
    """Return whether `path` names what standard output writes into, as /dev/stdout does."""
    try:
        return os.path.samestat(path.stat(), os.fstat(_standard_output()))
    except (OSError, ValueError):
        return False


def _standard_output() -> int:
    """Return its descriptor; where it was closed, number 1 may be anything."""
    if sys.__stdout__ is None:
        raise ValueError("standard output is closed")
    return sys.__stdout__.fileno()


def _is_written_into(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return is_standard_output(path) or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _beside(path: Path) -> Iterator[IO[bytes]]:
    if path.is_dir():
        raise IsADirectoryError(None, "it is a folder")
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            yield file
        if target.exists():
            shutil.copymode(target, beside)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _spooled(path: Path) -> Iterator[IO[bytes]]:
    """Give a file whose content goes to `path` at the end; a failure before writes nothing."""
    with SpooledTemporaryFile(_MOST_IN_MEMORY) as file:
        yield cast(IO[bytes], file)
        file.seek(0)
        # Opened a second time, a file would be written from its beginning.
        target = os.dup(_standard_output()) if is_standard_output(path) else path
        with open(target, "wb") as device:
            shutil.copyfileobj(file, device)
