"""Processes of one machine: their parents, their ages, and how they end with each other.

Run as a script with a rank's command line, this is a guardian between Hydra and that rank:
Hydra kills all ranks at once when a process of its own dies, and survivors of a rank that
dies may speak before. It imports next to nothing, for there is one for each rank. When its own
parent dies, however that is, it ends with its rank.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that reach the rank by themselves, for it is in the same process group."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
LINGER_S = 1.0
"""Time for other ranks to speak before Hydra hears of it, in seconds."""


def main(command: list[str]) -> int:
    """Run a command, and return its exit status when it is over."""
    die_with(os.getppid(), signal.SIGKILL)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)
    own = os.getpid()
    child = os.fork()
    if child == 0:
        become(command, own)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    killer = os.WTERMSIG(status)
    if killer not in PASSED_ON:
        name = signal.Signals(killer).name
        say(f"process {child} was killed by signal {killer} ({name}); the job is ended")
        for rank in other_ranks():
            with suppress(OSError):
                os.kill(rank, signal.SIGUSR1)
        time.sleep(LINGER_S)
    return 128 + killer


def become(command: list[str], parent: int) -> NoReturn:
    """Run a command in this process, which is a child of the guardian's."""
    die_with(parent, signal.SIGKILL)
    for number in PASSED_ON:
        # Who inherits ignored signals cannot be interrupted.
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        say(f"{command[0]} cannot be started: {error.strerror}")
    os._exit(127)


def die_with(parent: int, number: int) -> None:
    """Let the kernel send this process a signal when its parent dies, by whatever.

    It does so when the parent's thread ends that made this process, and goes on to
    do so when the process becomes another program.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)
    if os.getppid() != parent:
        # It died before it was asked.
        os.kill(os.getpid(), number)


def say(text: str) -> None:
    """Write a line to standard error, at once."""
    os.write(2, f"collplan: rank {os.environ.get('PMI_RANK', '?')}: {text}\n".encode())


def other_ranks() -> list[int]:
    """Return the processes that other guardians of this launcher stand before."""
    parents = {pid: parent for pid, (parent, _) in all_processes().items()}
    mine, launcher = os.getpid(), os.getppid()
    siblings = {pid for pid, parent in parents.items() if parent == launcher and pid != mine}
    return [pid for pid, parent in parents.items() if parent in siblings]


def stat_of(pid: int) -> tuple[int, int]:
    """Return a process's parent and when it began, in ticks since boot; zeros if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            # The name, in brackets, may hold anything; what follows is fixed.
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return (0, 0) if not fields or fields[0] in "ZXx" else (int(fields[1]), int(fields[19]))


def all_processes() -> dict[int, tuple[int, int]]:
    """Return what `stat_of` says of every process."""
    return {int(name): stat_of(int(name)) for name in os.listdir("/proc") if name.isdecimal()}


def affinity() -> set[int]:
    """Return the processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
