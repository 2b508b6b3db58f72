"""MPI calls of a program that its drop-in does not see, because compiled code makes them."""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from collplan.dropin.statistics import Statistics
from collplan.specs import COLLECTIVES

_NAMES: Final = tuple(f"MPI_{kind.capitalize()}" for kind in COLLECTIVES)
_LOOKUP: Final = "ctypes.dlsym"
"""Audit event of the lookup of a function, with a library and the name of the function."""


def watch(statistics: Statistics) -> None:
    """Have this rank say at program exit that compiled code may have called MPI.

    It says so if the drop-in has seen no call, and if the program has looked up collectives of MPI
    with ctypes, or has loaded a library that calls them, from now on.

    Parameters
    ----------
    statistics : Statistics
        Calls that the drop-in has seen.
    """
    looked_up: list[str] = []
    before = mapped_libraries()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == _LOOKUP and arguments[1] in _NAMES:
            looked_up.append(arguments[1])

    def say() -> None:
        if statistics.rows:
            return
        callers = [f"{name} by ctypes" for name in looked_up[:1]]
        callers += callers_among(sorted(mapped_libraries() - before))[:1]
        if callers:
            sys.stderr.write(
                f"collplan: mpi4py has called no collective, but the program uses {callers[0]}: "
                "calls of compiled code are native and not counted\n"
            )

    sys.addaudithook(note)
    atexit.register(say)


def mapped_libraries() -> set[str]:
    """Return the shared libraries of this process, as far as the system lists them."""
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {line.split(maxsplit=5)[-1] for line in lines if ".so" in line}
    return set()


def callers_among(libraries: Iterable[str]) -> list[str]:
    """Return the libraries that contain the names of collectives of MPI."""
    pattern = re.compile(rb"\0(?:" + "|".join(_NAMES).encode() + rb")\0")
    found = []
    for library in libraries:
        with suppress(OSError):
            if pattern.search(Path(library).read_bytes()):
                found.append(library)
    return found
