"""Early loading of the modules and machine code that plans need.

Modules are loaded early because a program may later remove or replace them in ``sys.modules``, or
forbid imports. Numba is not among them, because its import takes a third of the time of the others
together, and most programs find all machine code in the cache. It is imported when something must
be compiled, even if the program hides it (see `as_loaded`). If a table has no plan, all is loaded
before plans are tried for the first time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from mpi4py import MPI

from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.executors.mpi.together import first_alone

_PACKAGES: Final = ("collplan", "llvmlite", "numba", "numpy")
_MAKING: Final = "collplan.dropin.making"
_loaded: dict[str, ModuleType] = {}
_finders: list[Any] = []
"""Finders of modules before the program could add its own."""


def load_all(comm: MPI.Intracomm) -> None:
    """Import all modules that plans need, and load their machine code; collective.

    Raises
    ------
    Exception
        On all ranks, if loading fails on any rank.
    """
    # Rank 0 compiles missing machine code, which the other ranks then find in the cache.
    RollCall(comm, None, "load machine code").together(lambda: first_alone(comm, _load))
    _loaded.update(_present())
    _finders[:] = _finders or sys.meta_path


def _present() -> dict[str, ModuleType]:
    """Return the modules of our packages that are imported, without those that are hidden."""
    return {
        name: module
        for name, module in [*sys.modules.items()]
        if name.partition(".")[0] in _PACKAGES and getattr(module, "__spec__", None)
    }


def _load() -> None:
    making().load()


def making() -> Any:
    """Return the module whose functions make plans, which `load_all` has imported."""
    return _loaded.get(_MAKING) or import_module(_MAKING)


@contextmanager
def as_loaded() -> Iterator[None]:
    """Restore, within a context, modules and finders that the program has removed or replaced.

    These are the modules that were imported by `load_all` or in an earlier context. Others can be
    imported although the program hides their package. Afterwards, they are hidden, too. Numba
    imports some of its modules late, and cached machine code refers to modules by name.
    """
    finders, modules = sys.meta_path, _present()
    hidden = {name for name, one in _loaded.items() if modules.get(name) is not one}
    hidden |= {
        name
        for name, one in [*sys.modules.items()]
        if name.partition(".")[0] in _PACKAGES and name not in modules
    }
    before = {name: sys.modules.pop(name) for name in hidden if name in sys.modules}
    sys.modules.update({name: _loaded[name] for name in hidden if name in _loaded})
    sys.meta_path = _finders or finders
    try:
        yield
    finally:
        sys.meta_path = finders
        packages = {name.partition(".")[0] for name in hidden}
        if "numba" in packages:
            packages.add("llvmlite")  # numba alone uses it
        for name, module in _present().items():
            _loaded[name] = module
            if name in hidden or (name not in modules and name.partition(".")[0] in packages):
                del sys.modules[name]
        sys.modules.update(before)
