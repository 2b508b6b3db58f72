"""Processes of a job that is ended on purpose: found by a mark in their environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from folders import ROOT

HELPER = str(ROOT / "collplan" / "preload" / "__main__.py")
"""Script of the helper process of native programs."""
LAUNCHERS = ("mpiexec", "mpiexec.hydra", "prterun", "mpirun", "orterun")


def marked_processes(mark: str) -> dict[int, list[str]]:
    """Return the command lines of all processes with a mark in their environment, by process."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark.encode() in (entry / "environ").read_bytes():
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if words[0]:  # those that have ended and wait for their parent have none
                    found[int(entry.name)] = words
        except OSError:  # it has ended, or is another user's
            continue
    return found


def kill_marked(mark: str) -> None:
    """Kill all processes with a mark in their environment."""
    for pid in marked_processes(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def launcher_of(running: dict[int, list[str]]) -> int | None:
    """Return which of some processes has started the ranks, None if there is none yet."""
    names = {pid: Path(words[0]).name for pid, words in running.items()}
    return next((pid for pid, name in names.items() if name in LAUNCHERS), None)


def helper_of(running: dict[int, list[str]]) -> int | None:
    """Return which of some processes is the helper, None if there is none yet."""
    return next((pid for pid, words in running.items() if HELPER in words), None)


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Return whether something holds before a time is over."""
    end_s = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.1)
    return True
