"""Files that are written beside and renamed, so that a failure loses nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from specs.errors import CollplanError


@contextmanager
def replacing(path: str | Path, error: type[CollplanError] = CollplanError) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of `path` once it is complete.

    Parameters
    ----------
    path : str or Path
        The file to write; what is there stays as it is until the block ends.
    error : type of CollplanError
        What to raise where the file system refuses.

    Yields
    ------
    binary file
        Open for writing and seekable, in the folder of `path`.

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
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        with beside.open("wb") as file:
            yield file
        os.replace(beside, path)
    except OSError as refusal:
        raise error(
            f"{path}: cannot be written: {refusal.strerror or refusal}; "
            f"name a file in a folder that exists and is writable"
        ) from refusal
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file so that it is there whole or not at all.

    Raises
    ------
    CollplanError
        If it can't be written; what was there stays as it is.
    """
    with replacing(path) as file:
        file.write(text.encode())
