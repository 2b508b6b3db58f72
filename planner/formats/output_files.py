"""Atomic writing of output files: a file is written completely or not at all."""

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
"""Number of bytes for a device that are kept in memory; larger content is kept in a file."""


@contextmanager
def replacing(path: str | Path, error: type[CollplanError] = CollplanError) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends without an error.

    A symbolic link is kept, and the file to which it points is replaced. A device, a FIFO
    and the standard output cannot be replaced. Instead, the complete content is written to it.

    Parameters
    ----------
    path : str or Path
        File to write; an existing file is unchanged until the block ends.
    error : type of CollplanError
        Type of the error if the file cannot be written.

    Yields
    ------
    binary file
        File that is open for writing and seekable.

    Raises
    ------
    CollplanError
        An `error`, if the file cannot be written. It names `path` and the system's reason.

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
    """Write a text file completely or not at all.

    Raises
    ------
    CollplanError
        If the file cannot be written. An existing file is then unchanged.
    """
    with replacing(path) as file:
        file.write(text.encode())


def is_standard_output(path: Path) -> bool:
    """Return whether `path` is the target of standard output, such as /dev/stdout."""
    try:
        return os.path.samestat(path.stat(), os.fstat(_standard_output()))
    except (OSError, ValueError):
        return False


def _standard_output() -> int:
    """Return the file descriptor of standard output; raise `ValueError` if it is closed."""
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
    """Open a temporary file whose content is written to `path` if the block has no error."""
    with SpooledTemporaryFile(_MOST_IN_MEMORY) as file:
        yield cast(IO[bytes], file)
        file.seek(0)
        # If standard output is a file, opening it again would overwrite its beginning.
        target = os.dup(_standard_output()) if is_standard_output(path) else path
        with open(target, "wb") as device:
            shutil.copyfileobj(file, device)
