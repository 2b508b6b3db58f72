"""Creation of shared libraries from object files and C files, by the installed C compiler."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from collplan.planner.machine_code.kept_files import write_kept
from collplan.specs.errors import CollplanError, show_value

_FLAGS: Final = (
    *("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ftls-model=initial-exec"),
    *("-Wl,-z,now", "-Wl,-Bsymbolic", "-pthread"),
)
_COMPILING_S: Final = 300
NO_FOLDER: Final = "no folder for compiled code can be written; set NUMBA_CACHE_DIR"


def compiler() -> list[str]:
    """Return the command of a C compiler: that of ``CC``, the system, or the package ziglang.

    Raises
    ------
    CollplanError
        If there is no compiler.
    """
    text = os.environ.get("CC", "")
    try:
        named = shlex.split(text)
    except ValueError as error:
        raise CollplanError(f"CC: {show_value(text)} is no command: {error}") from None
    if named:
        return named
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is not None:
            return [found]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise CollplanError("there is no C compiler; install one, or say pip install ziglang")


def link(
    path: Path, files: Mapping[str, bytes], exported: str, options: Sequence[str] = ()
) -> None:
    """Create a shared library in the cache. The file appears only when it is complete.

    Parameters
    ----------
    path : Path
        File of the library.
    files : mapping of str to bytes
        Names and contents of C files, headers and object files.
    exported : str
        Patterns of exported symbols, each followed by a semicolon.
    options : sequence of str
        Additional options of the compiler.

    Raises
    ------
    CollplanError
        If there is no compiler, it fails, or the file cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="collplan-") as text:
        folder = Path(text)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        (folder / "exported.map").write_text(f"{{ global: {exported} local: *; }};\n")
        made = [name for name in files if name.endswith((".c", ".o"))]
        command = [*compiler(), *_FLAGS, *options, "-I.", *made]
        command += ["-Wl,--version-script=exported.map", "-o", "linked.so", "-ldl"]
        _run(command, folder)
        try:
            write_kept(path, (folder / "linked.so").read_bytes())
        except OSError as error:
            raise CollplanError(f"{path} cannot be written: {error.strerror or error}") from None


def check_compiler() -> None:
    """Run the C compiler, before work that would be in vain without it.

    Raises
    ------
    CollplanError
        If there is no compiler, or it fails.
    """
    _run([*compiler(), "--version"])


def _run(command: Sequence[str], folder: Path | None = None) -> None:
    try:
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_COMPILING_S,
            env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CollplanError(f"the C compiler {command[0]} does not work: {error}") from None
    if result.returncode != 0:
        said = result.stderr.splitlines()
        # The compiler also says at the end that its linker has failed.
        lines = [line for line in said if re.search(r"error(?!: ld returned)|failed", line)]
        reason = (lines or said or [f"exit {result.returncode}"])[0]
        raise CollplanError(f"the C compiler {command[0]} does not work: {reason}")
