"""Environment variables of launchers: what they say about a process, and those that ranks get."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Final

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.launch.allocation import Allocation, find_allocation

EXPECTED_RANKS: Final = "COLLPLAN_EXPECTED_RANKS"
"""Environment variable with which `relaunch` tells ranks their expected number."""
YIELDS: Final = "COLLPLAN_YIELDS"
"""Environment variable with the names of those that make idle ranks yield their cores."""
MPICH_CROWD: Final = 8
"""Number of ranks per core from which idle ranks of MPICH yield.

With fewer, small calls lose more by it than calls gain that wait for a late rank.
"""
MPIEXEC: Final = "COLLPLAN_MPIEXEC"
"""Environment variable with which `relaunch` tells ranks the program that started them."""
OF_HYDRA: Final = ("HYDI_CONTROL_FD", "MPI_LOCALRANKID")
"""Environment variables of ranks that Hydra has started, with srun or without."""


def is_under_mpi(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether an MPI launcher started this process.

    Parameters
    ----------
    environ : mapping of str to str
        Environment variables, by default those of this process.

    Raises
    ------
    LaunchError
        In the first task, if srun started several tasks that cannot find each other.
    SystemExit
        In the other tasks, so that the message appears once.

    Examples
    --------
    >>> is_under_mpi({"PMI_RANK": "0", "PMI_SIZE": "4"})
    True
    >>> is_under_mpi({"SLURM_PROCID": "0"})  # a batch script, not a rank
    False
    """
    names = environ.keys()
    if is_shell_of_srun(environ):
        return False
    by_slurm = "SLURM_PROCID" in names and any(name.startswith("PMI") for name in names)
    by_openmpi = names & {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}
    if by_slurm or by_openmpi or names >= {"PMI_RANK", "PMI_SIZE"}:
        return True
    if slurm_tasks(environ) > 1:
        if launcher_rank(environ) > 0:
            raise SystemExit(2)  # the first task reports the error
        raise lone_tasks(environ)
    return False


def is_shell_of_srun(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process runs in an interactive shell that srun started.

    For such a shell, srun sets the environment variables of a rank, but it is not one.

    Examples
    --------
    >>> is_shell_of_srun({"SLURM_PTY_PORT": "7", "SLURM_STEP_NUM_TASKS": "1", "PMI_RANK": "0"})
    True
    """
    in_shell = "SLURM_PTY_PORT" in environ and environ.get("SLURM_STEP_NUM_TASKS") == "1"
    started_otherwise = (EXPECTED_RANKS, "OMPI_COMM_WORLD_SIZE", *OF_HYDRA)
    return in_shell and not any(name in environ for name in started_otherwise)


def slurm_tasks(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of tasks that srun started as ranks, 0 if there are none.

    There are none in a batch script. Tasks that mpiexec starts with srun are not ranks.

    Examples
    --------
    >>> slurm_tasks({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"})
    4
    >>> slurm_tasks({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})  # a batch script
    0
    """
    started_otherwise = (EXPECTED_RANKS, "OMPI_COMM_WORLD_SIZE", *OF_HYDRA)
    if "SLURM_PROCID" not in environ or any(name in environ for name in started_otherwise):
        return 0
    # A batch script also has the number of tasks of the job.
    names = ["SLURM_NTASKS"] if environ["SLURM_PROCID"] != "0" else []
    return first_number(environ, "SLURM_STEP_NUM_TASKS", *names) or 0


def lone_tasks(environ: Mapping[str, str] = os.environ) -> LaunchError:
    """Return the error for tasks of srun that are not in one MPI world."""
    return LaunchError(
        f"srun started {slurm_tasks(environ)} tasks, and each is alone in its MPI world: tell srun "
        "how MPI finds the others, with --mpi=pmi2 for MPICH and --mpi=pmix for Open MPI"
    )


def default_ranks(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of ranks of a Slurm job; None outside of a job or if it is unknown.

    Examples
    --------
    >>> default_ranks({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}), default_ranks({})
    (4, None)
    """
    return first_number(environ, "SLURM_NTASKS")


def launcher_rank(environ: Mapping[str, str] = os.environ) -> int:
    """Return the rank that the launcher gave this process, 0 without a launcher.

    It is available even if the initialization of MPI fails, so that only rank 0 prints errors that
    all ranks have.

    Examples
    --------
    >>> launcher_rank({"PMI_RANK": "3", "PMI_SIZE": "4"})
    3
    """
    names = "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"
    return first_number(environ, *names) or 0


def launched_ranks(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of ranks that the launcher has started, by its variables; 0 if unset.

    Examples
    --------
    >>> launched_ranks({"PMI_RANK": "3", "PMI_SIZE": "4"}), launched_ranks({})
    (4, 0)
    """
    return first_number(environ, EXPECTED_RANKS, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE") or 0


def first_number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the number in the first of the named variables that is a number, None if none is."""
    texts = (environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal()), None)


def launch_environment(family: str, n_ranks: int, *, are_late: bool = False) -> dict[str, str]:
    """Return the additional environment variables for ranks of an MPI family on this machine.

    Variables that are already set are not included.

    Parameters
    ----------
    family : str
        Family of the MPI library, see `launcher.MpiLibrary`.
    n_ranks : int
        Number of ranks. If there are more ranks than cores, MPI should yield cores while it waits;
        MPICH only from `MPICH_CROWD` ranks per core on.
    are_late : bool
        Whether ranks are known to compute while others wait. MPICH should then yield, too, as soon
        as there are more ranks than cores.

    Examples
    --------
    >>> launch_environment("mpich", 10**6)["MPIR_CVAR_ENABLE_HEAVY_YIELD"]
    '1'
    """
    job = current_job()
    crowd = ranks_on_fullest(n_ranks, job) / n_cores()
    crowded = crowd > 1
    added: dict[str, str] = {}
    yields: dict[str, str] = {}
    if family == "openmpi":
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            added |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        # Open MPI counts physical cores, so ranks on all hardware threads would exceed its limit.
        # Open MPI 5 reads the first of these variables, Open MPI 4 the second.
        added["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        added["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
        if job is not None and job.source == "PBS_NODEFILE":
            # The wheel is built without the library of PBS, so it does not know the nodes.
            nodes = os.environ[job.source]
            added["PRTE_MCA_prte_default_hostfile"] = nodes
            added["OMPI_MCA_orte_default_hostfile"] = nodes
        # Without a network, windows of UCX print warnings. Shared memory does not need UCX.
        added["OMPI_MCA_osc"] = "^ucx"
        if crowded:
            yields["OMPI_MCA_mpi_yield_when_idle"] = "1"
    elif family == "intelmpi" and crowded:
        # With this value, ranks sleep for a short time between polls.
        yields["I_MPI_THREAD_YIELD"] = "3"
    elif family == "mpich" and (crowd >= MPICH_CROWD or (crowded and are_late)):
        yields |= {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
    new_yields = [name for name in yields if name not in os.environ]
    if new_yields:
        yields[YIELDS] = " ".join(new_yields)
    return {name: value for name, value in (added | yields).items() if name not in os.environ}


def clean_environment() -> dict[str, str]:
    """Return the environment without the variables of launchers, as in an interactive shell."""
    prefixes = ("PMI", "OMPI_COMM", "PRTE_LAUNCHED", "HYD")
    here = usable_environment()
    return {name: value for name, value in here.items() if not name.startswith(prefixes)}


def usable_environment() -> dict[str, str]:
    """Return the environment for launchers.

    If there is no srun, the environment lacks the variables of Slurm, because launchers would
    search for srun forever. In an interactive shell of srun, it lacks the variables of a rank.
    """
    left_out: tuple[str, ...] = () if shutil.which("srun") is not None else ("SLURM_",)
    if is_shell_of_srun():
        # These variables describe the shell as a rank. Ranks must not use them.
        left_out += ("PMI_", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def current_job() -> Allocation | None:
    """Return the job of a batch system in which launchers start ranks, None outside of a job.

    Without srun, as in containers, a job of Slurm is ignored, because launchers cannot use it.
    """
    return find_allocation(usable_environment())


def say_shared(ranks_per_core: float) -> str:
    """Return a sentence on times of ranks that share cores; empty if each rank has its own."""
    if ranks_per_core <= 1:
        return ""
    return (
        f"{ranks_per_core:.3g} ranks share a core and take turns: times say little of ranks with "
        "cores of their own"
    )


def ranks_on_fullest(n_ranks: int, job: Allocation | None) -> int:
    """Return the largest number of ranks on a node, if ranks are evenly distributed.

    Parameters
    ----------
    n_ranks : int
        Number of all ranks.
    job : Allocation or None
        Job with the nodes. Without a job, there is one node.
    """
    n_nodes = 1 if job is None else len(job.nodes)
    return -(-n_ranks // n_nodes)


def usable_cores() -> int:
    """Return the number of cores that ranks may use, on all nodes of the job or on this machine."""
    job = current_job()
    return n_cores() if job is None else job.n_cpus or n_cores() * len(job.nodes)


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(affinity())
