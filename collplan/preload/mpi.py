"""The MPI library that mpi4py loads, for a process that is not to initialize it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import mpi4py


def vendor_and_library() -> tuple[str, str]:
    """Return the vendor's name, and the library's file, empty if it is not known."""
    mpi4py.rc.initialize = False
    from mpi4py import MPI

    paths: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text().splitlines()
        paths = [line.split()[-1] for line in lines if "libmpi" in line]
    return str(MPI.get_vendor()[0]), paths[0] if paths else ""
