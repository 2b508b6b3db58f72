"""Standard input of ranks, from the process that started them."""

from __future__ import annotations

import os
import platform
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from collplan.executors.mpi.launch.environment import launcher_rank

INPUT: Final = "COLLPLAN_INPUT"
"""Environment variable with the process whose standard input rank 0 reads; see `offer_input`."""


def offer_input() -> str:
    """Return the host and the id of this process, whose standard input rank 0 is to read."""
    return f"{platform.node()} {os.getpid()}"


def take_input() -> None:
    """Give rank 0 the standard input of the process that started the ranks; give others none.

    On another host than that of the process, rank 0 has none either.
    """
    offered = os.environ.pop(INPUT, None)
    if offered is None:
        return
    host, _, starter = offered.rpartition(" ")
    with suppress(OSError):
        is_first = launcher_rank() == 0 and host == platform.node()
        # MPICH's launcher keeps the input of other ranks open, so they would not see its end.
        source = os.open(f"/proc/{starter}/fd/0" if is_first else os.devnull, os.O_RDONLY)
        if stat.S_ISREG(os.fstat(source).st_mode):
            words = Path(f"/proc/{starter}/fdinfo/0").read_text().split()
            os.lseek(source, int(words[words.index("pos:") + 1]), os.SEEK_SET)
        os.dup2(source, 0)
        os.close(source)


def can_be_opened_again(descriptor: int) -> bool:
    """Return whether another process can open the same input: a file or a pipe, on Linux."""
    mode = os.fstat(descriptor).st_mode
    is_named = Path(f"/proc/{os.getpid()}/fd/{descriptor}").exists()
    return is_named and (stat.S_ISREG(mode) or stat.S_ISFIFO(mode))
