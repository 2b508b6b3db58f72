"""Fingerprints of the current machine, MPI library and package versions."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from collplan.executors.mpi.launch.environment import OF_HYDRA
from collplan.measure.lanes import node_of_ranks
from collplan.measure.timing import everywhere, library_name
from collplan.tables.table import Fingerprint

_CPUS: Final = Path("/proc/cpuinfo")


def take_fingerprint(comm: Any, lanes: int | None = None) -> Fingerprint:
    """Return the fingerprint of rank 0 on all ranks; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    lanes : int, optional
        Lanes per node, if known.
    """
    n_nodes = len(set(node_of_ranks(comm)))
    return everywhere(comm, fingerprint_of(library_name(), n_nodes, lanes))


def fingerprint_of(library: str, n_nodes: int, lanes: int | None = None) -> Fingerprint:
    """Return the fingerprint of this machine.

    Parameters
    ----------
    library : str
        Name and version of the MPI library.
    n_nodes : int
        Number of nodes in use.
    lanes : int, optional
        Lanes per node, if known.
    """
    return Fingerprint(
        cpu=cpu_model(),
        cores_per_node=os.cpu_count() or 1,
        nodes=n_nodes,
        lanes=lanes,
        mpi=library,
        mpiexec=launcher_name(),
        **{package: _version(package) for package in ("mpi4py", "numpy", "collplan")},
    )


def cpu_model() -> str:
    """Return the model name of the processors, as the operating system reports it."""
    try:
        lines = _CPUS.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor() or platform.machine()])[0]


def launcher_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return the family of the launcher of this rank, or ``none`` if it has no launcher.

    Examples
    --------
    >>> launcher_name({"PMI_RANK": "0", "PMI_SIZE": "4"}), launcher_name({})
    ('mpich', 'none')
    """
    if "OMPI_COMM_WORLD_SIZE" in environ:
        return "openmpi"
    if "SLURM_PROCID" in environ and not any(name in environ for name in OF_HYDRA):
        return "slurm"
    return "mpich" if "PMI_RANK" in environ else "none"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
