"""A program in any language as a rank: this process becomes it, with the library preloaded."""

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
"""Names of the processes that start Open MPI's ranks. Those of MPICH's have others."""


def native_program(name: str) -> Path | None:
    """Return the file of a program that is not one in Python, None if it is.

    A file that the system can start is a machine's program, or a script that names another
    interpreter than Python. Without a slash, PATH is searched, too.
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
    """Replace this process by a program whose collectives follow a table.

    Where the library cannot be preloaded, the program runs without, and a line says why.
    """
    environment = dict(os.environ)
    try:
        environment |= preload_environment(table, force=force)
    except CollplanError as error:
        say_once(f"{error}; all collectives are native")
    _end_with_launcher()
    # Python ignores it, and who is started inherits that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, [str(program), *arguments], environment)
    except OSError as error:
        raise CollplanError(f"{program} cannot be started: {error.strerror}") from None


def _end_with_launcher() -> None:
    """Let the kernel end this rank with Open MPI's launcher, however that ends.

    Natively, ranks hear of it inside of MPI, and leave. A rank that waits for others in shared
    memory is not inside of MPI.
    """
    from collplan.executors.mpi.host.processes import die_with

    parent = os.getppid()
    with suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text().strip() in _DAEMONS:
            die_with(parent, signal.SIGKILL)


def preload_environment(table: Path, *, force: bool) -> dict[str, str]:
    """Return the environment variables by which a program's collectives follow a table.

    Raises
    ------
    CollplanError
        If the library cannot be built.
    """
    from collplan.executors.mpi.launch.launcher import family_of
    from collplan.preload.mpi import vendor_and_library

    # First of all: other modules import mpi4py, which initializes MPI unless it is told not to.
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
    """Write a line to standard error on rank 0, as the error is the same on all ranks."""
    from collplan.executors.mpi.launch.launcher import launcher_rank

    if launcher_rank() == 0:
        with suppress(OSError):
            sys.stderr.write(f"collplan: {text}\n")
