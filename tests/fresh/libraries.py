"""Check that all libraries and programs below a folder find the libraries that they need.

``tests/fresh/run`` runs this on a fresh machine, where nothing is installed that a package might
take for granted. It runs by hand, too, and needs only Python and ldd::

    python3 tests/fresh/libraries.py [FOLDER]

The folder is ``.venv`` by default.
"""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

EXCUSED: Final = (
    # mpi4py has loaded an MPI by its path before it imports the backend that fits.
    ("*/mpi4py/MPI.*.so", r"libmpi\.so.*"),
    # numba's parallel loops, which nothing here has, find other threads where these are missing.
    ("*/numba/np/ufunc/tbbpool.*.so", r"libtbb\.so.*"),
    ("*/numba/np/ufunc/omppool.*.so", r"libgomp.*\.so.*"),
    # tests/helpers/browser.py installs it with the browser that playwright starts.
    ("*/playwright/driver/node", r"libatomic\.so.*"),
    # UCX and libfabric load the modules of adapters only where the adapters' libraries are.
    ("*/ucx/libuct_*", r"lib(ibverbs|rdmacm|mlx5|efa)\.so.*"),
    ("*/libfabric/*-fi.so", r"lib(ibverbs|rdmacm|efa|psm2)\.so.*"),
    # Intel's mpiexec names the folder of Intel's libraries.
    (".venv-intel/lib/lib*", r"libmpi(fort|_abi)?\.so.*"),
    # Intel MPI loads this one only for Intel's GPUs.
    (".venv-intel/lib/mpi/libmpi_ze_hooks.so", r"libze_loader\.so.*"),
    # These are Intel's own benchmarks, which nothing here runs.
    (".venv-intel/bin/*", r"lib(mpi|iomp5)\.so.*"),
)
"""Files that may lack libraries, as patterns of their paths and of the libraries' names."""


def binaries(folder: Path) -> list[Path]:
    """Return the shared libraries and the compiled programs of a folder."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if ".so" in path.suffixes or path.stat().st_mode & stat.S_IXUSR:
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    found.append(path)
    return found


def missing_libraries(binary: Path) -> list[str]:
    """Return the names of the libraries that the dynamic loader does not find for a binary."""
    done = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return sorted({line.split()[0] for line in lines if line.endswith("not found")})


def is_excused(binary: Path, library: str) -> bool:
    """Return whether a binary may lack a library."""
    return any(fnmatch(str(binary), path) and re.fullmatch(name, library) for path, name in EXCUSED)


def main(folder: Path) -> int:
    """Print the libraries that are missing without an excuse, and return the exit status."""
    found = binaries(folder)
    if not found:
        print(f"{folder} has no compiled files; 'make demo' sets it up", file=sys.stderr)
        return 1
    n_missing = 0
    for binary in found:
        for name in missing_libraries(binary):
            if not is_excused(binary, name):
                print(f"{binary} needs {name}, which is missing", file=sys.stderr)
                n_missing += 1
    print(f"{len(found)} libraries and programs of {folder}: {n_missing} libraries missing")
    return min(n_missing, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".venv")))
