"""Run a command on an emulated cluster, from outside of its namespaces."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from collplan.emulate.cluster import Cluster, EmulationError
from collplan.emulate.launching import FAMILIES, INTERFACE_CHOICES, LANE, prepare_launch
from collplan.emulate.machine import emulated_machine
from collplan.emulate.sandbox import BOOT
from collplan.executors.mpi.launch.environment import clean_environment
from collplan.executors.mpi.launch.jobs import run_job
from collplan.executors.mpi.launch.launcher import Launcher, find_launcher
from collplan.specs.errors import show_value
from collplan.specs.loading import MACHINE
from collplan.specs.machines.machine import Machine

_PACKAGES: Final = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}
_MORE_PATHS: Final = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")


def find_tools() -> dict[str, str]:
    """Return the paths of the programs that build a cluster; PATH need not have system folders.

    Raises
    ------
    EmulationError
        If this is not Linux, or a program is not installed.
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
    return found


MAX_RANKS: Final = 2048
"""Largest number of ranks: all are processes here, and their table must fit one argument."""

_ROOT: Final = Path(__file__).parents[2]
"""Folder that contains the package `collplan`."""
_NAME: Final = "the command on the emulated cluster"
_SCHEDULERS: Final = ("SLURM", "PBS_", "LSB_", "LSF_", "COBALT_", "PE_HOSTFILE", "JOB_ID")
"""Prefixes of environment variables by which launchers find the nodes of a batch job."""


def run_emulated(
    cluster: Cluster,
    program: Sequence[str],
    *,
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
    mpi: str | None = None,
    capture: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program once per rank on a cluster that exists only during the run.

    No processes, namespaces, interfaces or mounts are left after the run, even if it fails.

    Parameters
    ----------
    cluster : Cluster
        Description of the cluster.
    program : sequence of str
        Program and arguments of every rank, from PATH or from the programs of this environment.
    timeout_s : float, optional
        Time limit of the run in s.
    environment : mapping of str to str, optional
        Environment variables for the ranks, in addition to those of this process.
    mpi : "mpich" or "openmpi", optional
        MPI library that this environment must have.
    capture : bool
        Whether to return the output instead of printing it.

    Returns
    -------
    subprocess.CompletedProcess
        Exit status of the launcher, and the output if it was captured.

    Raises
    ------
    EmulationError
        If the cluster is invalid, or cannot be emulated here.
    LaunchError
        If MPI is missing or `program` exceeds the time limit.
    """
    machine = emulated_machine(cluster)
    if machine.n_ranks > MAX_RANKS:
        raise EmulationError(
            f"ranks: {machine.n_ranks} would be started on this machine; give at most {MAX_RANKS}"
        )
    tools, launcher, directory = find_tools(), _launcher_of(mpi), _directory()
    command, needed, files = prepare_launch(launcher, machine, program, striped=cluster.striped)
    variables = _environment(launcher, machine) | needed | dict(environment or {})
    _require_program(program[0], variables["PATH"])
    request = {
        "nodes": cluster.nodes,
        "lane_rates": cluster.lane_rates,
        "leaf_of": cluster.leaf_of,
        "uplink_rates": cluster.uplink_rates,
        **tools,
        "files": files,
        "directory": directory,
    }
    return _run_sandboxed(request, command, variables, timeout_s, capture=capture)


def _require_program(name: str, path: str) -> None:
    if shutil.which(name, path=path) is None:
        raise EmulationError(
            f"CMD: {show_value(name)} is not a program; give one on PATH, or its path"
        )


def _run_sandboxed(
    request: dict[str, object],
    program: list[str],
    variables: Mapping[str, str],
    timeout_s: float | None,
    *,
    capture: bool,
) -> subprocess.CompletedProcess[str]:
    """Run a program in a sandbox, which ends when this end of its socket is closed."""
    # Without site packages, Python starts in a third of the time; nothing inside needs them.
    boot = [sys.executable, "-I", "-S", "-c", BOOT, str(_ROOT), json.dumps(request), "--"]
    command = [*boot, *program]
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            stdin = theirs.fileno()
            done = run_job(command, variables, timeout_s, name=_NAME, stdin=stdin, capture=capture)
        _raise_reported(ours, done.returncode)
    return done


def _directory() -> str:
    directory = Path.cwd()
    for hidden in ("/dev/shm", "/proc", "/sys"):
        if directory.is_relative_to(hidden):
            raise EmulationError(
                f"the current directory is {directory}, and every emulated node has its own "
                f"{hidden}; change to another directory"
            )
    return str(directory)


def _launcher_of(mpi: str | None) -> Launcher:
    launcher = find_launcher()
    family = launcher.library.family
    if mpi is not None and mpi not in FAMILIES:
        raise EmulationError(
            f"mpi: {show_value(mpi)} cannot be emulated on; valid: {', '.join(FAMILIES)}"
        )
    if mpi is not None and mpi != family:
        raise EmulationError(
            f"mpi: {mpi} is asked for, {sys.executable} has {launcher.library.version}; "
            f"run the collplan of an environment with {mpi}"
        )
    if family not in FAMILIES:
        raise EmulationError(
            f"mpi: {launcher.library.version} cannot be started on emulated nodes; "
            f"use an environment with MPICH or Open MPI"
        )
    return launcher


def _environment(launcher: Launcher, machine: Machine) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in clean_environment().items()
        if not name.startswith(_SCHEDULERS) and name not in (*INTERFACE_CHOICES, LANE)
    }
    path = [str(Path(sys.prefix) / "bin"), inherited.get("PATH", os.defpath)]
    return {
        **launcher.environment(machine.n_ranks, inherited),
        "PATH": os.pathsep.join(path),
        MACHINE: machine.model_dump_json(),
    }


def _raise_reported(ours: socket.socket, status: int) -> None:
    """Raise the error that the sandbox has reported, if any."""
    ours.shutdown(socket.SHUT_WR)  # End the sandbox if it still runs.
    with ours.makefile() as report:
        text = report.read()
    if not text:
        raise EmulationError(
            f"the sandbox ended with status {status} before the cluster stood; try again"
        )
    problem = json.loads(text)["error"]
    if problem is not None:
        raise EmulationError(problem)
