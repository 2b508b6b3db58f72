"""Locks of files, which the kernel releases when their process ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

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
