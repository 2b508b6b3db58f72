"""The library that is preloaded into programs, built once by the C compiler that is there.

It consists of the C files in `shim/`, and of the compiled loop that also runs plans in Python.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.executors.mpi.loop.object_files import code_folder
from collplan.planner.code_folders import compiling_alone
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    import numpy as np

SHIM: Final = Path(__file__).parent / "shim"
_RECORDS: Final = Path(__file__).parents[1] / "executors" / "mpi" / "engine" / "portable.py"
"""Declares records that the C files share, beside those of the compiled loop."""
FAMILIES: Final = {"openmpi": ("-DCOLLPLAN_OPENMPI",), "mpich": (), "intelmpi": ()}
"""MPI libraries that programs may use, and the compiler's options for them."""
_FLAGS: Final = (
    *("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ftls-model=initial-exec"),
    *("-Wl,-z,now", "-Wl,-Bsymbolic", "-pthread"),
)
_COMPILING_S: Final = 300
_OF_PROCESSOR: Final = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)
"""Lines of /proc/cpuinfo that are equal on processors of a kind, of x86 and of Arm."""


def preload_library(family: str) -> Path:
    """Return the library for programs of an MPI family, built if it is not kept.

    Parameters
    ----------
    family : str
        As `collplan.executors.mpi.launch.launcher.family_of` has it.

    Raises
    ------
    CollplanError
        If it cannot be built.
    """
    if family not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise CollplanError(f"programs of {family} are not known, those of {known} are")
    sources = {path.name: path.read_bytes() for path in sorted(SHIM.glob("*.[ch]"))}
    declared = {**sources, _RECORDS.name: _RECORDS.read_bytes()}
    exported = "MPI_*; mpi_*; ompi_*;"
    return _built(
        f"libcollplan-{family}", declared, lambda: sources | _compiled(), exported, FAMILIES[family]
    )


def _compiled() -> dict[str, bytes]:
    """Return the loop's machine code and the records that it shares with the C files."""
    from collplan.executors.mpi.engine.portable import header
    from collplan.executors.mpi.loop.entries import linkable_entry

    symbol, code = linkable_entry("run_loop")
    assert symbol == "collplan_linked_run_loop"  # what the C files call
    return {"records.h": header().encode(), "loop.o": code}


@cache
def reduction_library(name: str, dtype: np.dtype[Any]) -> tuple[Path, str]:
    """Return a library with the reduction of a predefined operation, and its name in C.

    Raises
    ------
    CollplanError
        If it cannot be built.
    """
    from collplan.executors.mpi.loop.reductions import linkable_reduction

    symbol, code = linkable_reduction(name, dtype)
    files = {"reduction.o": code}
    return _built(f"lib{symbol}", files, lambda: files, "collplan_*;"), symbol


def compiler() -> list[str]:
    """Return the command of a C compiler: what CC names, the system's, or ziglang's.

    Raises
    ------
    CollplanError
        If there is none.
    """
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        return named
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is not None:
            return [found]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise CollplanError("there is no C compiler; install one, or say pip install ziglang")


def _built(
    name: str,
    sources: Mapping[str, bytes],
    files: Callable[[], dict[str, bytes]],
    exported: str,
    options: Sequence[str] = (),
) -> Path:
    """Return the library that is made of some files, built if it is not kept.

    Its name says what it is made of: its sources, the machine code of `code_folder`, and the
    kind of processor. A process that finds it loads neither numpy nor a compiler.
    """
    folder = code_folder()
    if folder is None:
        raise CollplanError("no folder for compiled code can be written; set NUMBA_CACHE_DIR")
    script = f"{{ global: {exported} local: *; }};\n".encode()
    digest = sha256(repr((_FLAGS, tuple(options), folder.name, processor())).encode())
    for file, content in sorted({**sources, "exported.map": script}.items()):
        digest.update(f"{file} {len(content)}\n".encode() + content)
    path = folder / f"{name}-{digest.hexdigest()[:16]}.so"
    if not path.exists():
        with compiling_alone(path):
            if not path.exists():
                _build(path, {**files(), "exported.map": script}, options)
    return path


@cache
def processor() -> str:
    """Return what the kernel says of the first processor, and the version of Python.

    Numba compiles for the processor that is there, so machine code is kept for each kind.
    """
    lines: list[str] = []
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        lines = [line for line in first.splitlines() if line.startswith(_OF_PROCESSOR)]
    return "\n".join([platform.machine(), "{}.{}".format(*sys.version_info), *lines])


def _build(path: Path, files: Mapping[str, bytes], options: Sequence[str]) -> None:
    """Compile and link files, and put the library in its place."""
    with tempfile.TemporaryDirectory(prefix="collplan-") as text:
        folder = Path(text)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        made = [name for name in files if name.endswith((".c", ".o"))]
        command = [*compiler(), *_FLAGS, *options, "-I.", *made]
        beside = path.with_suffix(f".{os.getpid()}")
        command += ["-Wl,--version-script=exported.map", "-o", str(beside), "-ldl"]
        try:
            result = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_COMPILING_S,
                env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CollplanError(f"the C compiler {command[0]} does not work: {error}") from None
        if result.returncode != 0:
            lines = [line for line in result.stderr.splitlines() if "error" in line]
            reason = (lines or result.stderr.splitlines() or [f"exit {result.returncode}"])[0]
            beside.unlink(missing_ok=True)
            raise CollplanError(f"the C compiler {command[0]} does not work: {reason}")
        beside.replace(path)
