"""The library that is preloaded into programs, built once by the C compiler that is there.

It consists of the C files in `shim/`, and of the compiled loop that also runs plans in Python.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.executors.mpi.engine.portable import header
from collplan.executors.mpi.loop.entries import linkable_entry
from collplan.executors.mpi.loop.object_files import code_folder
from collplan.executors.mpi.loop.reductions import linkable_reduction
from collplan.planner.arrays.code_folders import compiling_alone
from collplan.specs import CollplanError

SHIM: Final = Path(__file__).parent / "shim"
FAMILIES: Final = {"openmpi": ("-DCOLLPLAN_OPENMPI",), "mpich": (), "intelmpi": ()}
"""MPI libraries that programs may use, and the compiler's options for them."""
_FLAGS: Final = (
    *("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ftls-model=initial-exec"),
    *("-Wl,-z,now", "-Wl,-Bsymbolic", "-pthread"),
)
_COMPILING_S: Final = 300


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
    symbol, code = linkable_entry("run_loop")
    assert symbol == "collplan_linked_run_loop"  # what the C files call
    sources = {path.name: path.read_bytes() for path in sorted(SHIM.glob("*.[ch]"))}
    files = {**sources, "records.h": header().encode(), "loop.o": code}
    exported = "MPI_*; mpi_*; ompi_*;"
    return _built(f"libcollplan-{family}", files, exported, FAMILIES[family])


@cache
def reduction_library(name: str, dtype: np.dtype[Any]) -> tuple[Path, str]:
    """Return a library with the reduction of a predefined operation, and its name in C.

    Raises
    ------
    CollplanError
        If it cannot be built.
    """
    symbol, code = linkable_reduction(name, dtype)
    return _built(f"lib{symbol}", {"reduction.o": code}, "collplan_*;"), symbol


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
    name: str, files: dict[str, bytes], exported: str, options: tuple[str, ...] = ()
) -> Path:
    """Return the library that is made of some files, built if it is not kept."""
    folder = code_folder()
    if folder is None:
        raise CollplanError("no folder for compiled code can be written; set NUMBA_CACHE_DIR")
    script = f"{{ global: {exported} local: *; }};\n".encode()
    files = {**files, "exported.map": script}
    digest = sha256(repr((_FLAGS, options)).encode())
    for file, content in sorted(files.items()):
        digest.update(f"{file} {len(content)}\n".encode() + content)
    path = folder / f"{name}-{digest.hexdigest()[:16]}.so"
    if not path.exists():
        with compiling_alone(path):
            if not path.exists():
                _build(path, files, options)
    return path


def _build(path: Path, files: dict[str, bytes], options: tuple[str, ...]) -> None:
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
