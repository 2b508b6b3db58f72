"""MPI library that mpi4py loads, found without initializing MPI."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import mpi4py


def vendor_and_library() -> tuple[str, str]:
    """Return the MPI library that mpi4py loads.

    Returns
    -------
    vendor : str
        Name of the vendor in mpi4py.
    path : str
        File of the library; empty if it is unknown.
    """
    mpi4py.rc.initialize = False
    from mpi4py import MPI

    paths: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text().splitlines()
        paths = [line.split()[-1] for line in lines if "libmpi" in line]
    return str(MPI.get_vendor()[0]), paths[0] if paths else ""
