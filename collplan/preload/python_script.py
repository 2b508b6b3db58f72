"""Script that runs a Python program as a rank, as ``python`` would.

An exception that ends the program on one rank ends all ranks, as they could otherwise wait forever.
The script imports few modules, and none of collplan.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final

MODULE: Final = "-m"
"""First argument if the program is the name of a module."""
LOOKED_UP: Final = "COLLPLAN_LOOKED_UP"
"""Environment variable with a collective that the program looks up by itself, which is not seen."""
_LOOKUP: Final = "ctypes.dlsym"
"""Audit event of the lookup of a function, with a library and the name of the function."""
_COLLECTIVE: Final = re.compile(
    "MPI_I?(barrier|bcast|scan|exscan|(all)?(reduce|gather)|scatter|alltoall)", re.IGNORECASE
)
_FORWARDING_S: Final = 0.1
"""Time in seconds for launchers to forward output of ranks, as Hydra could otherwise end before."""


def main(*words: str) -> None:
    """Run a program.

    Parameters
    ----------
    *words : str
        File of the program, or `MODULE` and the name of a module; and its arguments.
    """
    is_module = words[0] == MODULE
    sys.argv = list(words[is_module:])
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of this script
        folder = Path.cwd() if is_module else Path(sys.argv[0]).resolve().parent
        sys.path.insert(0, str(folder))
    sys.addaudithook(_note_lookup)
    try:
        if is_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit:
        raise  # the other ranks go on
    except BaseException:
        traceback.print_exc()
        _abort()
        sys.exit(1)


def _note_lookup(event: str, arguments: tuple[Any, ...]) -> None:
    """Note that the program looks up a collective, as compiled code calls it by its address."""
    if event != _LOOKUP or LOOKED_UP in os.environ:
        return
    name = arguments[1]
    if isinstance(name, str) and _COLLECTIVE.fullmatch(name):
        os.environ[LOOKED_UP] = name


def _abort() -> None:
    """End all ranks if there are several, as they could wait forever."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    if mpi.COMM_WORLD.Get_size() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_FORWARDING_S)
        mpi.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
