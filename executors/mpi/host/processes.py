"""Processes of one machine: parents, start times, and common termination.

As a script with a rank's command line, this module is a guardian between Hydra and the rank. Hydra
kills all ranks at once when one of its processes dies. With the guardian, the other ranks can
report before that. It imports very little, as there is one guardian per rank. When its parent
dies, it ends together with its rank.
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
"""Signals that the rank also receives, as it is in the same process group."""
LAUNCHERS = ("prterun", "prted", "orterun", "orted", "mpiexec", "mpirun")
"""Names of the processes that start ranks of Open MPI. Launchers of MPICH have other names."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
LINGER_S = 1.0
"""Time for reports of other ranks before Hydra is notified, in seconds."""


def main(command: list[str]) -> int:
    """Run a command, and return its exit status."""
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
    """Run a command in this process, which is a child of the guardian."""
    die_with(parent, signal.SIGKILL)
    for number in PASSED_ON:
        # Processes that inherit ignored signals cannot be interrupted.
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        say(f"{command[0]} cannot be started: {error.strerror}")
    os._exit(127)


def die_with(parent: int, number: int) -> None:
    """Make the kernel send this process a signal when its parent dies.

    The signal is sent when the thread of the parent that created this process ends, also after
    this process has executed another program.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)
    if os.getppid() != parent:
        # The parent died before this call.
        os.kill(os.getpid(), number)


def end_with_launcher() -> None:
    """Have the kernel kill this rank when the Open MPI process that started it ends.

    A rank that is in an MPI call detects the end of the launcher and exits. A rank that computes,
    or waits for other ranks in shared memory, makes no MPI calls, so it would not detect it. The
    guardian does the same for ranks of MPICH.
    """
    parent = os.getppid()
    with suppress(OSError), open(f"/proc/{parent}/comm", encoding="utf-8") as name:
        if name.read().strip() in LAUNCHERS:
            die_with(parent, signal.SIGKILL)


def say(text: str) -> None:
    """Write a line to standard error in one call."""
    os.write(2, f"collplan: rank {os.environ.get('PMI_RANK', '?')}: {text}\n".encode())


def other_ranks() -> list[int]:
    """Return the ranks' processes of the other guardians of this launcher."""
    parents = {pid: parent for pid, (parent, _) in all_processes().items()}
    mine, launcher = os.getpid(), os.getppid()
    siblings = {pid for pid, parent in parents.items() if parent == launcher and pid != mine}
    return [pid for pid, parent in parents.items() if parent in siblings]


def stat_of(pid: int) -> tuple[int, int]:
    """Return a process's parent and start time in ticks since boot; zeros if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            # The name in parentheses may contain any characters; the rest has a fixed format.
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return (0, 0) if not fields or fields[0] in "ZXx" else (int(fields[1]), int(fields[19]))


def all_processes() -> dict[int, tuple[int, int]]:
    """Return the result of `stat_of` for every process."""
    return {int(name): stat_of(int(name)) for name in os.listdir("/proc") if name.isdecimal()}


def affinity() -> set[int]:
    """Return the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
