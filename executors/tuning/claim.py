"""One run at a time on a table, and none that goes on when whoever started it was killed."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from specs.errors import CollplanError

STARTER: Final = "COLLPLAN_TUNE_STARTER"
"""Environment variable by which a process that starts ranks tells them its id."""
PATIENCE_S: Final = 20.0
"""How long a new run waits for an old one that is ending."""

_POLL_S: Final = 0.2
_LOOK_S: Final = 1.0


@contextmanager
def claimed(output: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Keep other runs away from a table; the kernel forgets the claim of a process that ends.

    Raises
    ------
    CollplanError
        If another run has it and does not end.
    """
    path = output.with_name(f".{output.name}.lock")
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise CollplanError(
            f"{output}: cannot be written: {error.strerror}; give another path"
        ) from None
    try:
        _lock(descriptor, output, patience_s)
        yield
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, output: Path, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise CollplanError(
                    f"{output}: another run is tuning it; wait for that, or give another --output"
                ) from None
            time.sleep(_POLL_S)


def end_with_starter() -> None:
    """Let this process end soon after the one that `STARTER` names, if that is on this machine.

    A launcher that is killed cannot stop what it has launched.
    """
    text = os.environ.get(STARTER, "")
    if not text.isdecimal() or not _is_alive(int(text)):
        return
    threading.Thread(target=_watch, args=(int(text),), name="starter", daemon=True).start()


def _watch(pid: int) -> None:
    while _is_alive(pid):
        time.sleep(_LOOK_S)
    # The launcher ends all other ranks when one is gone.
    os._exit(1)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
