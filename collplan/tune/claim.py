"""Exclusive access of a tuning run to its table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from collplan.planner.machine_code.file_lock import locked
from collplan.specs.errors import CollplanError

PATIENCE_S: Final = 20.0
"""Time in seconds for which a new run waits for the end of an earlier run."""

_LOCK_POLL_S: Final = 0.2


@contextmanager
def claimed(output: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold an exclusive lock on a table while it is tuned.

    The kernel releases the lock of a process that ends.

    Parameters
    ----------
    output : Path
        Path of the table.
    patience_s : float
        Time to wait for another run to release the lock, in seconds.

    Raises
    ------
    CollplanError
        If another run still holds the lock, or the lock file cannot be written.
    """
    path = output.with_name(f".{output.name}.lock")
    with ExitStack() as held:
        try:
            is_held = held.enter_context(locked(path, patience_s, _LOCK_POLL_S))
        except OSError as error:
            raise CollplanError(
                f"{output}: cannot be written: {error.strerror}; give another path"
            ) from None
        if not is_held:
            raise CollplanError(
                f"{output}: another run is tuning it; wait for that, or give another --output"
            )
        yield
        path.unlink(missing_ok=True)
