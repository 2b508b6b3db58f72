"""Cache of machine code, which processes load without numba.

Each function has an object file and, if there is a C compiler, a shared library. The system loads
the library. The object file can be linked into other libraries, and LLVM loads it if there is no
library.

A wheel brings both for common processors, in the folder `BUILT`. They are used for the sources from
which they were built, whatever versions of Python and numba are installed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, Final

from collplan.planner.machine_code.code_folders import (
    cache_folder,
    compiling_alone,
    digest_of,
    warn_of_disk,
    warn_uncached,
)
from collplan.planner.machine_code.compile_time import getting_kernel, miss
from collplan.planner.machine_code.kept_files import add_time, read_kept, time_in, write_kept
from collplan.planner.machine_code.linking import NO_FOLDER, link
from collplan.specs.errors import CollplanError

_PYTHON: Final = "py{}{}".format(*sys.version_info)
_OF_PROCESSOR: Final = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)
"""Lines of /proc/cpuinfo that identify the model of a processor, on x86 and on Arm."""
BUILT: Final = Path(__file__).parent / "built"
"""Folder of the machine code that came with the package."""
PORTABLE: Final = {
    "x86_64": ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
}
"""Processor for which a wheel is built, and what its line of flags in /proc/cpuinfo must have."""
_METH_FASTCALL: Final = 0x80
_loaded: list[Any] = []
"""Objects that must be kept, because their machine code may be in use."""
_building: list[Path] = []
"""The folder of `build_into`, if there is one."""
_loading = RLock()
"""Lock of the thread that loads or compiles code in this process."""


class ObjectFile:
    """Machine code of a C function, and its file in the cache.

    Parameters
    ----------
    name : str
        Name of the function, unique in its folder.
    sources : Path
        Folder of its source files.

    Attributes
    ----------
    symbol : str
        Name of the function in C.
    code : bytes or None
        Content of the object file; None before it is read or compiled.
    """

    def __init__(self, name: str, sources: Path) -> None:
        self.symbol = f"collplan_{name}"
        self.code: bytes | None = None
        self._path: Path | None = None
        self._built: Path | None = None
        inside = _in_package(name, sources)
        if _building:
            self._path = _building[0] / inside
        elif built_file(inside) is not None:
            self._built = BUILT / inside
        else:
            folder = code_folder(sources)
            self._path = folder and folder / f"{self.symbol}-{_target()}.o"

    def read(self) -> bool:
        """Read the machine code from the cache, or the package; return whether there is any."""
        if self._built is not None:
            self.code = self._built.read_bytes()
        elif self._path is not None:
            self.code = read_kept(self._path)
        return self.code is not None

    def get(self, compile_it: Callable[[], bytes]) -> None:
        """Read the machine code from the cache, or compile it and write it to the cache.

        Parameters
        ----------
        compile_it : callable
            Function that returns the content of the object file. Only one process at a time calls
            it for this file.
        """
        with _loading, getting_kernel():
            if self.code is not None or self.read():
                return
            miss()
            with nullcontext() if self._path is None else compiling_alone(self._path):
                if not self.read():
                    self._keep(compile_it())

    def _keep(self, code: bytes) -> None:
        self.code = code
        if self._path is None:
            warn_uncached()
            return
        try:
            write_kept(self._path, code)
        except OSError as error:
            warn_of_disk(self._path.parent, error)
            return
        with suppress(CollplanError):
            self.link()

    @property
    def spent_s(self) -> float:
        """Time that processes have spent on interpretation of the function, in seconds."""
        return 0.0 if self._path is None else time_in(self._path.with_suffix(".spent"))

    def spend(self, seconds: float) -> None:
        """Add time that this process has spent on interpretation."""
        if self._path is not None:
            add_time(self._path.with_suffix(".spent"), seconds)

    def link(self) -> Path:
        """Return a shared library with the function; create it if the cache does not have it.

        Raises
        ------
        CollplanError
            If it cannot be created, because there is no C compiler or no writable folder.
        """
        if self._built is not None:
            return self._built.with_suffix(".so")
        if self._path is None or self.code is None:
            raise CollplanError(NO_FOLDER)
        library = self._path.with_suffix(".so")
        if read_kept(library) is None:
            link(library, {"function.o": self.code}, f"{self.symbol};")
        return library

    def load(self) -> int:
        """Load the machine code into this process, and return the address of the function.

        Loading a shared library takes a hundredth of the time of importing LLVM.
        """
        with _loading, getting_kernel():
            # There may be no compiler, or the folder does not allow executables.
            with suppress(CollplanError, OSError):
                function = getattr(ctypes.CDLL(str(self.link())), self.symbol)
                return ctypes.cast(function, ctypes.c_void_p).value or 0
            machine_code = _llvm().ObjectFileRef.from_data(self.code)
            # LLVM refers to both while the code is in use.
            _loaded.append((self.code, machine_code))
            engine = _engine()
            engine.add_object_file(machine_code)
            engine.finalize_object()
            return int(engine.get_function_address(self.symbol))

    def load_for_python(self) -> Callable[..., Any]:
        """Load the machine code of a function with the parameters of ``METH_FASTCALL``.

        Returns
        -------
        callable
        """
        method = _Method(self.symbol.encode(), self.load(), _METH_FASTCALL, None)
        # The function refers to it, even while Python ends, when no module keeps anything alive.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
        make: Any = ctypes.pythonapi.PyCFunction_NewEx
        make.restype = ctypes.py_object
        found: Callable[..., Any] = make(ctypes.byref(method), None, None)
        return found


class _Method(ctypes.Structure):
    """Python's structure of a C function, ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def build_into(folder: Path) -> None:
    """Let this process write machine code to a folder that becomes `BUILT` of a package.

    The processor is that of numba's variables ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _building[:] = [folder]


def building_folder() -> Path | None:
    """Return the folder of `build_into`; None if this process does not build a package."""
    return _building[0] if _building else None


def built_file(name: str) -> Path | None:
    """Return a file that the package has brought for this processor; None if there is none."""
    path = BUILT / name
    return path if _can_use_built() and path.exists() else None


def _in_package(name: str, sources: Path) -> str:
    """Return the name of a function's object file in a package.

    It tells the sources, and the sizes in Python that machine code depends on.
    """
    return f"{name}-{digest_of(sources)}-{object.__basicsize__}-{tuple.__basicsize__}.o"


@cache
def _can_use_built() -> bool:
    """Return whether the package has machine code for this processor."""
    if platform.machine() not in PORTABLE or not BUILT.is_dir():
        return False
    flags = next((line for line in processor().splitlines() if line.startswith("flags")), "")
    return PORTABLE[platform.machine()][1] <= {*flags.split()}


def is_kept(name: str, sources: Path) -> bool:
    """Return whether there is a file for a function in the cache, or no cache at all.

    In the first case, the function probably need not be compiled. In the second case, compiling it
    in advance is useless. LLVM is not needed.
    """
    if _can_use_built() and any(BUILT.glob(_in_package(name, sources))):
        return True
    folder = code_folder(sources)
    return folder is None or any(folder.glob(f"collplan_{name}-{_PYTHON}-*.o"))


def code_folder(sources: Path) -> Path | None:
    """Return the folder of the cache for a folder of sources; None if no folder is writable."""
    folder = cache_folder(sources, os.environ.get("NUMBA_CACHE_DIR", ""))
    return folder and folder.absolute()


@cache
def _target() -> str:
    """Return a short name for the version of Python and the model of the processor."""
    return f"{_PYTHON}-{sha256(processor().encode()).hexdigest()[:12]}"


@cache
def processor() -> str:
    """Return the kernel's description of the first processor, and the version of Python.

    Numba compiles for the present processor, so the cache has machine code for each model.
    """
    lines: list[str] = []
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        lines = [line for line in first.splitlines() if line.startswith(_OF_PROCESSOR)]
    return "\n".join([platform.machine(), "{}.{}".format(*sys.version_info), *lines])


@cache
def _llvm() -> Any:
    """Return LLVM, which is imported only if it is needed.

    The import takes a third of the time of importing numpy.
    """
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def _engine() -> Any:
    """Return the LLVM engine that loads code into the memory of this process."""
    llvm = _llvm()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
