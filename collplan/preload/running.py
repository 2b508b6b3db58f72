"""Execution of a program in any language as a rank, with the preloaded library."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NoReturn

from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.host.processes import end_with_launcher
from collplan.preload.python_script import MODULE
from collplan.preload.settings import (
    BEFORE,
    CHECK,
    CORES,
    FORCE,
    HANG_AFTER,
    HELPER,
    LIBRARY,
    PYTHON,
    TABLE,
    THREADS,
)
from collplan.specs import CollplanError
from collplan.watch.options import WatchOptions

_ELF: Final = b"\x7fELF"
_ELF64: Final = _ELF + b"\x02"
_HEAD: Final = struct.Struct("32x Q 14x HH 4x")
"""Header of an ELF file of 64 bits: place, size and number of the headers of its segments."""
_INTERPRETER: Final = struct.pack("I", 3)
"""Type of the segment that names the loader of shared libraries."""
_PYTHON: Final = re.compile(r"python[\d.]*")
_PLANNED_WINNER: Final = re.compile(rb'"?winner"?: *+"?+(?!native"?\s*[,}\n])')
"""Winner of a table's point that is not native, in the text of a file in YAML or JSON."""
_BESIDE: Final = re.compile(rb'"?computation_s"?: *(?!null)')
"""Computation beside which non-blocking calls were tuned, in such a text."""
_NO_WATCH: Final = WatchOptions()
_SEPARATORS: Final = re.compile("[ :]")
"""Separators of paths in ``LD_PRELOAD``, which has no quotation marks."""


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


def without_interpreter(words: Sequence[str]) -> list[str]:
    """Return a command line as an interpreter of this environment sees it.

    Other interpreters, and those with options, are programs like others: their MPI calls are
    intercepted in C.

    Parameters
    ----------
    words : sequence of str
        A program and its arguments.

    Returns
    -------
    list of str
        A file and its arguments, or ``-m``, a module and its arguments, if the program is an
        interpreter of this environment; otherwise the same words.
    """
    found = shutil.which(words[0])
    if found is None or not _PYTHON.fullmatch(Path(found).name):
        return list(words)
    is_ours = Path(found).parent.resolve() == Path(sys.executable).parent.resolve()
    is_module = list(words[1:2]) == ["-m"] and len(words) > 2
    is_file = len(words) > 1 and not words[1].startswith("-")
    return list(words[1:] if is_ours and (is_module or is_file) else words)


def python_command(words: Sequence[str], *, module: bool) -> list[str]:
    """Return the command line that runs a Python program as a rank.

    Parameters
    ----------
    words : sequence of str
        File of the program, or the name of a module, and its arguments.
    module : bool
        Whether the program is the name of a module.
    """
    script = str(Path(__file__).with_name("python_script.py"))
    return [sys.executable, script, *([MODULE] if module else []), *words]


def become(
    program: Path,
    words: list[str],
    table: Path,
    *,
    force: bool,
    watch: WatchOptions = _NO_WATCH,
    cores: str = "",
) -> NoReturn:
    """Replace this process with a program whose collectives run by a tuning table.

    Whatever fails before the program starts, it runs natively, and rank 0 prints the reason.

    Parameters
    ----------
    program : Path
        File of the program.
    words : list of str
        The program as the user names it, and its arguments.
    table : Path
        File of the tuning table.
    force : bool
        Whether to use a table that was tuned on another machine or with other software.
    watch : WatchOptions
        Choice of what is reported about ranks that wait; by default, nothing.
    cores : str
        Processor of each core of a node, to which ranks are bound, separated by commas; empty if
        ranks are not bound.

    Raises
    ------
    CollplanError
        If the program cannot be started.
    """
    environment = dict(os.environ)
    environment.pop(CORES, None)
    try:
        check_dynamic(program)
        environment |= preload_environment(table, force=force)
        environment |= dict(zip((HANG_AFTER, CHECK), watch.words(), strict=True))
        environment |= {CORES: cores} if cores else {}
    except Exception as error:
        say_once(f"{one_line(error)}; all collectives are native")
    end_with_launcher()
    # Python ignores this signal, and the program would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, words, environment)
    except OSError as error:
        raise CollplanError(f"{program} cannot be started: {error.strerror}") from None


def check_dynamic(program: Path) -> None:
    """Check that the system can preload a library into a program.

    Raises
    ------
    CollplanError
        If the program is an ELF file of 64 bits without an interpreter.
    """
    with program.open("rb") as file:
        head = file.read(_HEAD.size)
        if not head.startswith(_ELF64) or len(head) < _HEAD.size:
            return
        place, size, n = _HEAD.unpack(head)
        file.seek(place)
        types = [file.read(size)[:4] for _ in range(n)]
    if _INTERPRETER not in types:
        raise CollplanError(f"{program} is linked statically, so no library can be preloaded")


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
    from collplan.executors.mpi.launch.environment import launcher_rank
    from collplan.executors.mpi.launch.launcher import family_of
    from collplan.planner.machine_code.code_folders import leave_warnings_to_others
    from collplan.preload.library import vendor_and_library

    # This must come first: other modules import mpi4py, which initializes MPI by default.
    vendor, library = vendor_and_library()
    from collplan.preload.library import preload_library

    if launcher_rank() > 0:
        leave_warnings_to_others()
    path = without_separators(preload_library(family_of(vendor), library))
    before, options = os.environ.get("LD_PRELOAD", ""), os.environ.get("ASAN_OPTIONS", "")
    return {
        # The runtime of AddressSanitizer refuses to be loaded behind other libraries.
        "ASAN_OPTIONS": f"{options}:verify_asan_link_order=0".lstrip(":"),
        "LD_PRELOAD": f"{path}:{before}" if before else str(path),
        BEFORE: before,
        TABLE: str(table.absolute()),
        FORCE: str(int(force)),
        PYTHON: sys.executable,
        HELPER: str(Path(__file__).with_name("__main__.py")),
        LIBRARY: library,
        THREADS: str(int(may_start_plans(table))),
    }


def may_start_plans(table: Path) -> bool:
    """Return whether non-blocking calls were tuned, and the text of a table names plans.

    If MPI has to let several threads call it, the small native calls of Open MPI take half as long
    again. Ranks do not read the table by themselves, as that takes a good part of a second.
    """
    try:
        text = table.read_bytes()
    except OSError:
        return False
    return all(pattern.search(text) for pattern in (_BESIDE, _PLANNED_WINNER))


def without_separators(library: Path) -> Path:
    """Return a path of a library that ``LD_PRELOAD`` can contain: a link, if necessary.

    Raises
    ------
    CollplanError
        If there is no such path.
    """
    if not _SEPARATORS.search(str(library)):
        return library
    from collplan.planner.machine_code.code_folders import temporary_folder

    folder = temporary_folder()
    if folder is None or _SEPARATORS.search(str(folder)):
        raise CollplanError(
            f"{library}: LD_PRELOAD cannot contain a path with a space or a colon; let "
            "NUMBA_CACHE_DIR name a folder without them"
        )
    digest = sha256(os.fsencode(library)).hexdigest()[:16]
    link, beside = folder / f"{digest}.so", folder / f"{digest}.{os.getpid()}"
    beside.symlink_to(library)
    beside.replace(link)
    return link


def say_once(text: str) -> None:
    """Write a line to standard error on rank 0 only, as the text is the same on all ranks."""
    from collplan.executors.mpi.launch.environment import launcher_rank

    if launcher_rank() == 0:
        with suppress(OSError):
            sys.stderr.write(f"collplan: {text}\n")
