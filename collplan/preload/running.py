"""Execution of a program in any language as a rank, with the preloaded library."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from collplan.preload.settings import BEFORE, FORCE, HELPER, LIBRARY, PYTHON, TABLE
from collplan.specs import CollplanError

_ELF: Final = b"\x7fELF"
_DAEMONS: Final = ("prterun", "prted", "orterun", "orted", "mpiexec", "mpirun")
"""Names of the processes that start ranks of Open MPI. Launchers of MPICH have other names."""


def native_program(name: str) -> Path | None:
    """Return the file of a program that the system can execute without Python; None otherwise.

    Such a program is an executable ELF file, or an executable script whose first line names an
    interpreter other than Python.

    Parameters
    ----------
    name : str
        Path of the program. If no such file exists and the name has no slash, ``PATH`` is
        searched.
    """
    path = Path(name)
    if not path.is_file():
        found = shutil.which(name) if os.sep not in name else None
        path = Path(found) if found is not None else path
    try:
        with path.open("rb") as file:
            begin = file.read(256)
    except OSError:
        return None
    first = begin.partition(b"\n")[0]
    is_script = first.startswith(b"#!") and b"python" not in first
    return path if (begin.startswith(_ELF) or is_script) and os.access(path, os.X_OK) else None


def become(program: Path, arguments: list[str], table: Path, *, force: bool) -> NoReturn:
    """Replace this process with a program whose collectives run by a tuning table.

    If the library cannot be built, the program runs natively, and rank 0 prints the reason.

    Parameters
    ----------
    program : Path
        File of the program.
    arguments : list of str
        Arguments of the program.
    table : Path
        File of the tuning table.
    force : bool
        Whether to use a table that was tuned on another machine or with other software.

    Raises
    ------
    CollplanError
        If the program cannot be started.
    """
    environment = dict(os.environ)
    try:
        environment |= preload_environment(table, force=force)
    except CollplanError as error:
        say_once(f"{error}; all collectives are native")
    _end_with_launcher()
    # Python ignores this signal, and the program would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, [str(program), *arguments], environment)
    except OSError as error:
        raise CollplanError(f"{program} cannot be started: {error.strerror}") from None


def _end_with_launcher() -> None:
    """Have the kernel kill this rank when the Open MPI process that started it ends.

    A rank that is in an MPI call detects the end of the launcher and exits. A rank that waits for
    other ranks in shared memory makes no MPI calls, so it would not detect it.
    """
    from collplan.executors.mpi.host.processes import die_with

    parent = os.getppid()
    with suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text().strip() in _DAEMONS:
            die_with(parent, signal.SIGKILL)


def preload_environment(table: Path, *, force: bool) -> dict[str, str]:
    """Return environment variables that make the collectives of a program run by a table.

    Parameters
    ----------
    table : Path
        File of the tuning table.
    force : bool
        Whether to use a table that was tuned on another machine or with other software.

    Raises
    ------
    CollplanError
        If the library cannot be built.
    """
    from collplan.executors.mpi.launch.launcher import family_of
    from collplan.preload.mpi import vendor_and_library

    # This must come first: other modules import mpi4py, which initializes MPI by default.
    vendor, library = vendor_and_library()
    from collplan.preload.library import preload_library

    path = preload_library(family_of(vendor))
    before = os.environ.get("LD_PRELOAD", "")
    return {
        "LD_PRELOAD": f"{path}:{before}" if before else str(path),
        BEFORE: before,
        TABLE: str(table.absolute()),
        FORCE: str(int(force)),
        PYTHON: sys.executable,
        HELPER: str(Path(__file__).with_name("__main__.py")),
        LIBRARY: library,
    }


def say_once(text: str) -> None:
    """Write a line to standard error on rank 0 only, as the text is the same on all ranks."""
    from collplan.executors.mpi.launch.launcher import launcher_rank

    if launcher_rank() == 0:
        with suppress(OSError):
            sys.stderr.write(f"collplan: {text}\n")
