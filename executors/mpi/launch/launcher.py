"""The mpiexec that belongs to the MPI of mpi4py.

If mpiexec and MPI library do not belong together, n processes start, and each is alone in its
world. This module finds the right mpiexec, and detects that a wrong one was used. It does not
import mpi4py into a process that is not a rank.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch.environment import (
    EXPECTED_RANKS,
    MPIEXEC,
    clean_environment,
    launch_environment,
    usable_environment,
)

_GUARDIAN: Final = Path(__file__).parents[1] / "host" / "processes.py"
"""Script that starts each rank, because launchers kill all ranks as soon as one dies."""

_PROBE: Final = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
paths = []
try:
    with open("/proc/self/maps") as maps:
        paths = [line.strip().split(None, 5)[-1] for line in maps if "libmpi" in line]
except OSError:
    pass
print(json.dumps({
    "version": MPI.Get_library_version(),
    "vendor": MPI.get_vendor()[0],
    "module": MPI.__file__,
    "library": paths[0] if paths else "",
}))
"""


@dataclass(frozen=True, slots=True)
class MpiLibrary:
    """The MPI library that mpi4py loads.

    Parameters
    ----------
    version : str
        Short version string of the library, see `short_version`.
    family : str
        "mpich", "openmpi", "intelmpi", or the name of another vendor in lower case.
    module, library : str
        Paths of mpi4py's backend and of the library; the latter is empty if it is unknown.
    """

    version: str
    family: str
    module: str
    library: str


@dataclass(frozen=True, slots=True)
class Launcher:
    """The program that starts ranks, and the MPI library that they load.

    Parameters
    ----------
    mpiexec : Path
        An mpiexec, or another program that starts ranks.
    library : MpiLibrary
        The MPI library.
    """

    mpiexec: Path
    library: MpiLibrary

    def command(self, n_ranks: int, program: Sequence[str]) -> list[str]:
        """Return the command that runs `program` on `n_ranks` ranks.

        Parameters
        ----------
        n_ranks : int
        program : sequence of str
            Command line of each rank.
        """
        return [str(self.mpiexec), "-n", str(n_ranks), *self.guard(), *program]

    def guard(self) -> list[str]:
        """Return the command that precedes the program of each rank; empty for most MPIs."""
        if self.library.family == "mpich" and hasattr(os, "fork"):
            return [sys.executable, "-I", "-S", str(_GUARDIAN)]
        return []

    def environment(self, n_ranks: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the whole environment for ranks, which tells them their number.

        Parameters
        ----------
        n_ranks : int
            Number of ranks.
        base : mapping of str to str, optional
            Environment that is extended. The default is `usable_environment`.
        """
        return {
            **(usable_environment() if base is None else base),
            **launch_environment(self.library.family, n_ranks),
            EXPECTED_RANKS: str(n_ranks),
            MPIEXEC: str(self.mpiexec),
        }


def probe_library() -> MpiLibrary:
    """Return the MPI library that mpi4py loads.

    A separate process imports mpi4py, without initializing MPI.

    Raises
    ------
    LaunchError
        If mpi4py is not installed, cannot load its library, or takes more than 60 s.
    """
    try:
        result = ask([sys.executable, "-P", "-c", _PROBE], timeout_s=60)
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"mpi4py: {sys.executable} did not import it within 60 s; reinstall it"
        ) from None
    if result.returncode == 0:
        found = json.loads(result.stdout.splitlines()[-1])
        family = family_of(found["vendor"])
        return MpiLibrary(
            short_version(found["version"]), family, found["module"], found["library"]
        )
    reason = (result.stderr.strip().splitlines() or [f"exit {result.returncode}"])[-1]
    if "No module named 'mpi4py'" in reason:
        raise LaunchError(f"mpi4py is not installed, it executes plans; {way_to_mpi()}")
    raise LaunchError(f"mpi4py cannot load its MPI library ({reason}); {way_to_mpi()}")


def way_to_mpi() -> str:
    """Return advice on installing an MPI that mpi4py can load, and its mpiexec."""
    there = path_launchers()
    if not there:
        return "install both: pip install mpi4py mpich"
    # The wheel of mpi4py tries few file names, and does not find the MPI of some systems.
    return (
        f"pip install mpi4py mpich, or build mpi4py for the MPI of {there[0]}: "
        "pip install --no-binary mpi4py mpi4py"
    )


@cache
def find_launcher() -> Launcher:
    """Return the mpiexec that belongs to the MPI of mpi4py in this environment.

    It is the first compatible mpiexec in this Python environment, near the library, or on PATH, in
    this order. An mpiexec that does not name its family counts as compatible.

    Raises
    ------
    LaunchError
        If mpi4py or a compatible mpiexec is missing.
    """
    library = probe_library()
    strangers = []
    for mpiexec in _candidates(library):
        family = launcher_family(mpiexec)
        if family is None or is_compatible(family, library.family):
            return Launcher(mpiexec, library)
        strangers.append(f"{mpiexec} is of {family}")
    others = f" ({', '.join(strangers)})" if strangers else ""
    raise LaunchError(f"no mpiexec found for mpi4py's {library.version}{others}; {way_to_mpi()}")


def launcher_family(mpiexec: Path) -> str | None:
    """Return the MPI family that an mpiexec names with its version, None if it names none."""
    try:
        result = ask([mpiexec, "--version"], timeout_s=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = (result.stdout + result.stderr).lower()
    for words, family in (
        (("open mpi", "openrte", "prrte"), "openmpi"),
        (("intel(r) mpi",), "intelmpi"),
        (("hydra", "mpich"), "mpich"),
    ):
        if any(word in text for word in words):
            return family
    return None


def ask(command: list[str | Path], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command in a clean environment, and return its output.

    Parameters
    ----------
    command : list of str or Path
    timeout_s : float
        Time limit in seconds.

    Raises
    ------
    OSError
        If the command cannot be started.
    subprocess.TimeoutExpired
        If it exceeds the time limit.
    """
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
    )


def is_compatible(launcher: str, library: str) -> bool:
    """Return whether a launcher of one family can start ranks of another family.

    MPICH and its derivatives have a common protocol. Open MPI has its own.
    """
    return (launcher == "openmpi") == (library == "openmpi")


def family_of(vendor: str) -> str:
    """Return the family of an MPI library, given the name of its vendor in mpi4py.

    Examples
    --------
    >>> family_of("Open MPI")
    'openmpi'
    """
    return vendor.replace(" ", "").lower()


def short_version(version: str) -> str:
    """Return the name and the number in the version string of an MPI library.

    Examples
    --------
    >>> short_version("MPICH Version:      5.0.2\\nMPICH Release date: ...")
    'MPICH 5.0.2'
    >>> short_version("Intel(R) MPI Library 2021.18.1 for Linux* OS")
    'Intel MPI 2021.18.1'
    """
    first = " ".join(version.partition("\n")[0].split()).strip("\0")
    first = first.partition(",")[0].partition(" for Linux")[0]
    return first.replace(" Version:", "").replace("(R)", "").replace(" Library", "")


def path_launchers() -> list[Path]:
    """Return every mpiexec and mpirun on PATH, in the order of PATH, and each file once."""
    found: dict[Path, Path] = {}
    for directory in os.get_exec_path():
        for name in ("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich", "mpiexec.openmpi"):
            program = shutil.which(name, path=directory)
            if program is not None:
                found.setdefault(Path(program).resolve(), Path(program))
    return list(found.values())


def _candidates(library: MpiLibrary) -> list[Path]:
    near = [Path(sys.prefix) / "bin" / "mpiexec"]
    # The bin folder of lib/libmpi.so or lib/x86_64-linux-gnu/libmpi.so is some levels above.
    near += [parent / "bin" / "mpiexec" for parent in list(Path(library.library).parents)[1:4]]
    usable = [path for path in near if shutil.which(path) is not None]
    return list(dict.fromkeys([*usable, *path_launchers()]))
