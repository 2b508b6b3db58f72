"""Selection of the program that starts ranks: MPI's own mpiexec, srun, or any program."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from typing import Final

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch.launcher import (
    Launcher,
    find_launcher,
    is_compatible,
    launcher_family,
    probe_library,
)
from collplan.executors.mpi.launch.srun import srun_for, working_srun

LAUNCHER: Final = "COLLPLAN_LAUNCHER"
"""Environment variable with the choice, which the option ``--launcher`` sets."""
AUTO: Final = "auto"
CHOICES: Final = (AUTO, "srun", "mpiexec")


def check_choice(text: str, name: str = "--launcher") -> str:
    """Check a choice of launcher, and return it.

    Parameters
    ----------
    text : str
        One of `CHOICES`, or the name or path of a program.
    name : str
        Option or environment variable with the choice, for messages.

    Raises
    ------
    LaunchError
        If `text` is neither of them.
    """
    if text in CHOICES:
        return text
    if shutil.which(text) is None:
        raise LaunchError(
            f"{name}: {text} is not a program that can be started; give {', '.join(CHOICES)} "
            "or the path of an mpiexec"
        )
    return text


def select_launcher() -> Launcher:
    """Return the launcher that is chosen by the variable ``COLLPLAN_LAUNCHER``.

    ``auto`` chooses srun in a Slurm allocation, if a few ranks that it starts find each other.
    Otherwise, it is the mpiexec that belongs to the MPI of mpi4py.

    Raises
    ------
    LaunchError
        If there is no launcher, or the chosen one does not fit the MPI.
    """
    return _select(os.environ.get(LAUNCHER) or AUTO, "SLURM_JOB_ID" in os.environ)


@cache
def _select(choice: str, is_in_slurm: bool) -> Launcher:
    library = probe_library()
    if choice == "mpiexec":
        return find_launcher()
    if Path(choice).name == "srun":
        return srun_for(library)
    if choice == AUTO:
        return (working_srun(library) if is_in_slurm else None) or find_launcher()
    program = Path(shutil.which(check_choice(choice, LAUNCHER)) or choice)
    family = launcher_family(program)
    if family is not None and not is_compatible(family, library.family):
        raise LaunchError(
            f"--launcher, {LAUNCHER}: {program} is of {family}, and mpi4py loads "
            f"{library.version}: each rank would be alone; give --launcher mpiexec"
        )
    return Launcher(program, library)
