"""Machine code, kept for other processes, which load it without numba.

It is kept as an object file, and as a shared library where there is a C compiler. The system
loads the library. The object file can be linked into other libraries, and LLVM loads it where
there is no library.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from collplan.executors.mpi.loop.linking import NO_FOLDER, link
from collplan.planner.arrays.code_folders import (
    cache_folder,
    compiling_alone,
    warn_of_disk,
    warn_uncached,
)
from collplan.specs.errors import CollplanError

SOURCES: Final = Path(__file__).parent
_PYTHON: Final = "py{}{}".format(*sys.version_info)
_OF_PROCESSOR: Final = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)
"""Lines of /proc/cpuinfo that are equal on processors of a kind, of x86 and of Arm."""
_loaded: list[Any] = []
"""Keeps objects alive whose code has been handed out."""


class ObjectFile:
    """One C function's machine code, and the file that keeps it.

    Parameters
    ----------
    name : str
        The function's name, unique among all that compiled code has.

    Attributes
    ----------
    symbol : str
        Its name in C.
    code : bytes or None
        The content, once it is read or compiled.
    """

    def __init__(self, name: str) -> None:
        folder = code_folder()
        self.symbol = f"collplan_{name}"
        self._path = folder and folder / f"{self.symbol}-{_target()}.o"
        self.code: bytes | None = None

    @property
    def _library(self) -> Path | None:
        return self._path and self._path.with_suffix(".so")

    def read(self) -> bool:
        """Return whether there is machine code; read it."""
        if self._path is not None:
            with suppress(FileNotFoundError):
                self.code = self._path.read_bytes()
        return self.code is not None

    def alone(self) -> AbstractContextManager[None]:
        """Wait until no other process compiles the function, and keep others from it."""
        return nullcontext() if self._path is None else compiling_alone(self._path)

    def keep(self, code: bytes) -> None:
        """Take machine code, and write it where other processes look for it."""
        self.code = code
        if self._path is None:
            warn_uncached()
            return
        beside = self._path.with_suffix(f".{os.getpid()}")
        try:
            beside.write_bytes(code)
            beside.replace(self._path)
        except OSError as error:
            warn_of_disk(self._path.parent, error)
            with suppress(OSError):
                beside.unlink()
            return
        with suppress(CollplanError):
            self.link()

    def link(self) -> Path:
        """Return a shared library with the function, made of its machine code if it is not kept.

        Raises
        ------
        CollplanError
            If it cannot be made, for lack of a C compiler or of a folder.
        """
        if self._library is None or self.code is None:
            raise CollplanError(NO_FOLDER)
        if not self._library.exists():
            link(self._library, {"function.o": self.code}, f"{self.symbol};")
        return self._library

    def load(self) -> int:
        """Bring the machine code into this process; return the function's address.

        The system loads a shared library in a hundredth of the time in which LLVM is imported.
        """
        if self._library is not None:
            with suppress(OSError):  # there is none, or its folder must not have programs
                function = getattr(ctypes.CDLL(str(self._library)), self.symbol)
                return ctypes.cast(function, ctypes.c_void_p).value or 0
        machine_code = _llvm().ObjectFileRef.from_data(self.code)
        # LLVM refers to both as long as the code is used.
        _loaded.append((self.code, machine_code))
        engine = _engine()
        engine.add_object_file(machine_code)
        engine.finalize_object()
        return int(engine.get_function_address(self.symbol))


def is_kept(name: str) -> bool:
    """Return whether a function need not be compiled, as far as the names of files say.

    Also if nothing that is compiled can be kept. Needs no LLVM.
    """
    folder = code_folder()
    return folder is None or any(folder.glob(f"collplan_{name}-{_PYTHON}-*.o"))


def code_folder() -> Path | None:
    """Return where machine code is kept, None if nowhere."""
    return cache_folder(SOURCES, os.environ.get("NUMBA_CACHE_DIR", ""))


@cache
def _target() -> str:
    """Return a short name of Python's version and of the kind of processor."""
    return f"{_PYTHON}-{sha256(processor().encode()).hexdigest()[:12]}"


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


@cache
def _llvm() -> Any:
    """Return LLVM, which is imported when it is needed: that takes a third as long as numpy."""
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def _engine() -> Any:
    """Return what places code into this process's memory."""
    llvm = _llvm()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
