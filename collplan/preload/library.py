"""Shared library that is preloaded into programs, built by the system's C compiler and cached.

The library consists of the C files in `shim/` and of the compiled loop, which also runs plans in
Python.
"""

from __future__ import annotations

from ctypes import CDLL
from hashlib import sha256
from pathlib import Path
from typing import Final

from collplan.executors.mpi.loop.entries import code_folder
from collplan.planner.machine_code.code_folders import compiling_alone
from collplan.planner.machine_code.kept_files import read_kept
from collplan.planner.machine_code.linking import NO_FOLDER, check_compiler, link
from collplan.planner.machine_code.object_files import processor
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


def preload_library(family: str, mpi: str) -> Path:
    """Return the library for programs of an MPI family; build it if it is not in the cache.

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
    folder = code_folder()
    if folder is None:
        raise CollplanError(NO_FOLDER)
    functions = CDLL(mpi)
    newer = [option for name, option in NEWER.items() if hasattr(functions, name)]
    options = (*FAMILIES[family], *newer)
    sources = {path.name: path.read_bytes() for path in sorted(SHIM.glob("*.[ch]"))}
    # The folder's name identifies the machine code of the loop. A process that finds the library
    # in the cache therefore imports neither numpy nor a compiler.
    digest = sha256(f"{folder.name} {options} {processor()}".encode())
    for name, content in {**sources, _RECORDS.name: _RECORDS.read_bytes()}.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    path = folder / f"libcollplan-{family}-{digest.hexdigest()[:16]}.so"
    if read_kept(path) is None:
        with compiling_alone(path):
            if read_kept(path) is None:
                check_compiler()  # before seconds of compiling the loop
                files = {**sources, **_compiled()}
                link(path, files, "MPI_*; PMPI_*; mpi_*; ompi_*; PMIx_*;", options)
    return path


def _compiled() -> dict[str, bytes]:
    """Return an object file of the compiled loop, and a header of the records that it uses."""
    from collplan.executors.mpi.engine.portable import header
    from collplan.executors.mpi.loop.entries import linkable_entry

    loop = linkable_entry("run_loop")
    assert loop.symbol == "collplan_linked_run_loop"  # the name in the C files
    assert loop.code is not None
    return {"records.h": header().encode(), "loop.o": loop.code}
