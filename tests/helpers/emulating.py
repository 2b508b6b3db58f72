"""Run `collplan emulate` with the MPI of an environment, where this machine allows it.

`make test` runs this file as a script to install the programs that build clusters.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import debian_mpi
from collplan.emulate.cluster import EmulationError
from collplan.emulate.running import find_tools
from folders import PROGRAMS
from mpi_launching import do_without, mpi_python, run

PACKAGES = ("iproute2", "util-linux")


@cache
def refusal() -> str:
    """Return why this machine can't emulate clusters, empty where it can."""
    command = [*emulate("mpich"), "--nodes", "1", "--per-node", "1", "--", "true"]
    done = run(command)
    return "" if done.returncode == 0 else done.stderr.strip()


def need_emulation() -> None:
    """Skip where this machine does not allow it; fail where tests must be complete."""
    if refusal():
        do_without(refusal())


def emulate(mpi: str) -> list[str]:
    """Return the command of an environment, without its options."""
    return [str(mpi_python(mpi)), "-m", "collplan", "emulate"]


def run_program(
    mpi: str,
    program: str,
    *options: str,
    arguments: tuple[str, ...] = (),
    prefix: list[str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program of ``mpi_programs`` on a cluster."""
    command = [*(prefix or []), *emulate(mpi), *options, "--timeout", "200", "--"]
    return run([*command, "python", "-m", "mpi4py", str(PROGRAMS / program), *arguments])


def look(
    mpi: str,
    *options: str,
    n_bytes: int = 0,
    messages: tuple[str, ...] = (),
    prefix: list[str] | None = None,
) -> dict[str, Any]:
    """Return what ``emulated.py`` says of a cluster."""
    arguments = (str(n_bytes), *messages)
    done = run_program(mpi, "emulated.py", *options, arguments=arguments, prefix=prefix)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def gone(namespaces: set[str], within_s: float = 120) -> bool:
    """Return whether no process is left in these namespaces, after a moment to end."""
    deadline = time.monotonic() + within_s
    while processes_in(namespaces):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def processes_in(namespaces: set[str]) -> set[str]:
    """Return all processes that are in one of these namespaces."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("net", "uts", "ipc", "mnt", "pid"):
            try:
                if os.readlink(process / "ns" / name) in namespaces:
                    found.add(process.name)
            except OSError:
                continue  # It has ended, or is not ours.
    return found


def set_up() -> str | None:
    """Install the programs that build clusters if one is missing; return why that failed."""
    try:
        find_tools()
    except EmulationError:
        return debian_mpi.install(PACKAGES)
    return None


if __name__ == "__main__":
    reason = set_up()
    if reason is not None:
        sys.stderr.write(f"tests of emulated clusters are skipped: {reason}\n")
