"""Find what a cluster needs of this machine, before anything is started."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Final

from collplan.emulate.errors import EmulationError

_PACKAGES: Final = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}
_MORE_PATHS: Final = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of the programs a cluster is built with."""

    ip: str
    tc: str
    nsenter: str


def find_tools() -> Tools:
    """Return the programs a cluster is built with; those of administrators need no PATH.

    Raises
    ------
    EmulationError
        If this is not Linux, or one is not installed.
    """
    if sys.platform != "linux":
        raise EmulationError(
            f"emulation needs the namespaces of Linux, this is {sys.platform}; use a Linux machine"
        )
    path = os.pathsep.join([*os.get_exec_path(), *_MORE_PATHS])
    found = {}
    for name, package in _PACKAGES.items():
        program = shutil.which(name, path=path)
        if program is None:
            raise EmulationError(
                f"the program {name} is not installed; install the system's package {package}"
            )
        found[name] = program
    return Tools(**found)
