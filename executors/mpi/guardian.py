"""Stand between Hydra and a rank, so that survivors of a rank that dies may speak.

Hydra kills all ranks at once when a process of its own dies. Run as a script with
a rank's command line; imports next to nothing, for there is one for each rank.
"""

from __future__ import annotations

import os
import signal
import sys
import time

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that reach the rank by themselves, for it is in the same process group."""
LINGER_S = 1.0
"""How long others may speak before Hydra hears of it."""


def main(command: list[str]) -> int:
    """Run a command, and return its exit status when it is over."""
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)
    try:
        # A child that inherited ignored signals could not be interrupted.
        child = os.posix_spawnp(command[0], command, os.environ, setsigdef=PASSED_ON)
    except OSError as error:
        say(f"{command[0]} cannot be started: {error.strerror}")
        return 127
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    killer = os.WTERMSIG(status)
    if killer not in PASSED_ON:
        name = signal.Signals(killer).name
        say(f"process {child} was killed by signal {killer} ({name}); the job is ended")
        for rank in cousins():
            tell(rank)
        time.sleep(LINGER_S)
    return 128 + killer


def say(text: str) -> None:
    """Write a line to standard error, at once."""
    os.write(2, f"collplan: rank {os.environ.get('PMI_RANK', '?')}: {text}\n".encode())


def cousins() -> list[int]:
    """Return the processes that other guardians of this launcher stand before."""
    parents = {int(name): parent_of(name) for name in os.listdir("/proc") if name.isdecimal()}
    mine, launcher = os.getpid(), os.getppid()
    siblings = {pid for pid, parent in parents.items() if parent == launcher and pid != mine}
    return [pid for pid, parent in parents.items() if parent in siblings]


def parent_of(pid: str) -> int:
    """Return a process's parent, 0 if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            # The name, in brackets, may hold anything; what follows is fixed.
            return int(stat.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def tell(pid: int) -> None:
    """Tell a rank that another has died."""
    try:
        os.kill(pid, signal.SIGUSR1)
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
