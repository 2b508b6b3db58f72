"""Environments for Debian's own MPICH and Open MPI; `make test` runs this file as a script.

Each has the packages of `.venv` but no MPI of its own: mpi4py loads the library
that apt installed, and ranks are started by the mpiexec that apt installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from folders import ROOT

FOLDER: Final = ROOT / ".venv-debian"
WHY_NOT: Final = FOLDER / "why-not"
"""Exists where there are no such environments, and says why."""
LIBRARIES: Final = {"debian-mpich": "libmpich.so.12", "debian-openmpi": "libmpi.so.40"}
LAUNCHERS: Final = {
    "debian-mpich": Path("/usr/bin/mpiexec.mpich"),
    "debian-openmpi": Path("/usr/bin/mpiexec.openmpi"),
}
PACKAGES: Final = (
    *("mpich", "openmpi-bin"),
    *("gcc", "libc6-dev", "gfortran", "libmpich-dev", "libopenmpi-dev"),  # for programs of tests
)
_COMPILERS: Final = ("mpicc.mpich", "mpicc.openmpi", "mpif90.mpich", "mpif90.openmpi", "gfortran")
_APT: Final = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]
_PATIENCE_S: Final = 600


def python_of(mpi: str) -> Path:
    """Return the interpreter of one of the environments."""
    return FOLDER / mpi / "bin" / "python"


def set_up() -> str | None:
    """Install what is missing, make the environments, and return why that failed, if it did."""
    has_all = all(map(_library, LIBRARIES)) and all(map(Path.exists, LAUNCHERS.values()))
    if not has_all or not all(map(shutil.which, _COMPILERS)):
        reason = install(PACKAGES)
        if reason is not None and not has_all:
            return reason
    for mpi in LIBRARIES:
        library = _library(mpi)
        if library is None or not LAUNCHERS[mpi].exists():
            return f"apt-get installed no {LIBRARIES[mpi]} or no {LAUNCHERS[mpi]}"
        venv.create(FOLDER / mpi, clear=True, symlinks=True)
        packages = next((FOLDER / mpi / "lib").glob("python*/site-packages"))
        shared = sysconfig.get_path("purelib")
        (packages / "shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n")
        _links(mpi).mkdir()
        # Names by which mpi4py's wheel finds and loads an MPI; Debian's are of either, or missing.
        for name in ("libmpi.so", f"libmpi.so.{library.suffix[1:]}"):
            (_links(mpi) / name).symlink_to(library)
    return None


def environment_of(mpi: str) -> dict[str, str]:
    """Return the environment variables that one of the environments needs."""
    return {"LD_LIBRARY_PATH": str(_links(mpi))}


def _links(mpi: str) -> Path:
    return FOLDER / mpi / "links"


def _library(mpi: str) -> Path | None:
    return next(Path("/usr/lib").glob(f"*-linux-gnu/{LIBRARIES[mpi]}"), None)


def install(packages: Sequence[str]) -> str | None:
    """Install Debian's packages, and return why that failed, if it did."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        return f"{names} are not installed, and there is no apt-get here"
    if os.geteuid() != 0:
        return f"only root can install packages: apt-get install {names}"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    arguments = ["install", "-y", "--no-install-recommends", *packages]
    for command in ([*_APT, "update"], [*_APT, *arguments]):
        try:
            subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                timeout=_PATIENCE_S, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            return f"{names} could not be installed: {error}"
    return None


def main() -> None:
    """Set up; leave a file that says why where that is not possible."""
    FOLDER.mkdir(exist_ok=True)
    reason = set_up()
    if reason is None:
        WHY_NOT.unlink(missing_ok=True)
    else:
        WHY_NOT.write_text(reason + "\n")
        sys.stderr.write(f"tests of Debian's MPIs are skipped: {reason}\n")


if __name__ == "__main__":
    main()
