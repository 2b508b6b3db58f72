"""The two tiers of tests: those that need a system around them, and those that need nothing.

A test that starts MPI, a browser, Slurm, pip, a compiler or a namespace has the mark `system`,
and `make check` leaves it out. While a test without the mark runs, this process refuses to start
such a program, so that no test is in the wrong tier.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

MARK: Final = "system"
_PROGRAMS: Final = re.compile(
    r"(mpi(exec|run|cc|f90)|hydra|prte|srun|sbatch|salloc|slurm|munge|chrom|apt-get|gfortran|gcc)"
    r"|(cc|ip|tc|unshare|nsenter)$"
)
"""Names, or beginnings of names, of programs that only tests with the mark may start."""
_STARTS: Final = ("subprocess.Popen", "os.posix_spawn", "os.exec")
"""Audit events whose first two arguments are the program and the words of its command line."""
LINKED: Final = "function.o"
"""Compiled code that becomes a library if there is a C compiler, which collplan can do without."""
FAKES: Final = (tempfile.gettempdir(), "/nowhere")
"""Beginnings of folders where programs are scripts that a test has written, or missing."""
_running: list[str] = []
"""The test without the mark that runs, if one does."""


@contextmanager
def needing_nothing(item: pytest.Item) -> Iterator[None]:
    """Refuse to start programs of the system, unless the test has the mark."""
    if item.get_closest_marker(MARK) is None:
        _running.append(item.nodeid)
    try:
        yield
    finally:
        _running.clear()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _running or event not in _STARTS:
        return
    program, words = arguments[:2]
    words = [words] if isinstance(words, str | bytes) else list(words)
    if LINKED in words:
        return
    # A program may be started by another, as by `env` or by an interpreter.
    for word in filter(None, (program, *words[:3])):
        name = os.path.basename(os.fsdecode(word))
        if not _PROGRAMS.match(name):
            continue
        path = shutil.which(os.fsdecode(word)) or os.fsdecode(word)
        if not path.startswith(FAKES):
            raise AssertionError(
                f"{_running[0]} starts {name}: mark it with @pytest.mark.{MARK}, or do without"
            )


sys.addaudithook(_refuse)
