"""The mpiexec that belongs to mpi4py's MPI, and the launcher that started this process.

An mpiexec of another MPI starts n processes that each believe to be alone;
everything here is about using the right one, and about saying so when the
wrong one was used. Nothing here imports mpi4py into a process that is not a rank.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.launch.allocation import Allocation, find_allocation

EXPECTED_RANKS: Final = "COLLPLAN_EXPECTED_RANKS"
"""Environment variable by which `relaunch` tells ranks how many they must be."""
MPIEXEC: Final = "COLLPLAN_MPIEXEC"
"""Environment variable by which `relaunch` tells ranks what started them."""
OF_HYDRA: Final = ("HYDI_CONTROL_FD", "MPI_LOCALRANKID")
"""Environment variables of ranks that Hydra has started, by srun or otherwise."""
_GUARDIAN: Final = Path(__file__).parents[1] / "host" / "processes.py"
"""Script that is started instead of ranks: launchers kill all ranks as soon as one dies."""

_PROBE: Final = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
paths = []
try:
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if "libmpi" in line]
except OSError:
    pass
print(json.dumps({
    "version": MPI.Get_library_version(),
    "vendor": MPI.get_vendor()[0],
    "module": MPI.__file__,
    "library": paths[0] if paths else "",
}))
"""


@dataclass(frozen=True, slots=True)
class Library:
    """The MPI library that mpi4py loads.

    Parameters
    ----------
    version : str
        First line of what the library says of itself.
    family : str
        "mpich", "openmpi", "intelmpi", or another vendor's name in lower case.
    module, library : str
        Files of mpi4py's backend and of the library; empty where unknown.
    """

    version: str
    family: str
    module: str
    library: str


@dataclass(frozen=True, slots=True)
class Launcher:
    """The program to start ranks with, and the library that they load.

    Parameters
    ----------
    mpiexec : Path
        The mpiexec, or another program that starts ranks.
    library : Library
        The MPI library.
    """

    mpiexec: Path
    library: Library

    def command(self, n_ranks: int, program: Sequence[str]) -> list[str]:
        """Return the command that runs `program` on `n_ranks` ranks."""
        return [str(self.mpiexec), "-n", str(n_ranks), *self.guard(), *program]

    def guard(self) -> list[str]:
        """Return the command that stands before each rank's program; empty for most MPIs."""
        if self.library.family == "mpich" and hasattr(os, "fork"):
            return [sys.executable, "-I", "-S", str(_GUARDIAN)]
        return []

    def environment(self, n_ranks: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the whole environment for `n_ranks` ranks, which then know how many they are.

        It adds to `base`, by default what this process has.
        """
        return {
            **(usable_environment() if base is None else base),
            **launch_environment(self.library.family, n_ranks),
            EXPECTED_RANKS: str(n_ranks),
            MPIEXEC: str(self.mpiexec),
        }


def is_under_mpi(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether an MPI launcher started this process.

    Raises
    ------
    LaunchError
        If srun started several tasks without a way to find each other; in all
        tasks but the first, SystemExit, as one message is enough.

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
            raise SystemExit(2)  # the first task says what is wrong
        raise lone_tasks(environ)
    return False


def is_shell_of_srun(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process runs in an interactive shell that srun started.

    srun prepares even a single shell as a rank, which it is not meant to be.

    Examples
    --------
    >>> is_shell_of_srun({"SLURM_PTY_PORT": "7", "SLURM_STEP_NUM_TASKS": "1", "PMI_RANK": "0"})
    True
    """
    in_shell = "SLURM_PTY_PORT" in environ and environ.get("SLURM_STEP_NUM_TASKS") == "1"
    started_otherwise = (EXPECTED_RANKS, "OMPI_COMM_WORLD_SIZE", *OF_HYDRA)
    return in_shell and not any(name in environ for name in started_otherwise)


def slurm_tasks(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many tasks srun started as ranks of this job, 0 where it started none.

    In a batch script it started none, and those that mpiexec starts by srun are no ranks.

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
    # A batch script has the job's number, too.
    names = ["SLURM_NTASKS"] if environ["SLURM_PROCID"] != "0" else []
    return first_number(environ, "SLURM_STEP_NUM_TASKS", *names) or 0


def lone_tasks(environ: Mapping[str, str] = os.environ) -> LaunchError:
    """Return what is wrong where srun's tasks do not meet in one MPI world."""
    return LaunchError(
        f"srun started {slurm_tasks(environ)} tasks, and each is alone in its MPI world: tell srun "
        "how MPI finds the others, with --mpi=pmi2 for MPICH and --mpi=pmix for Open MPI"
    )


def default_ranks(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return how many ranks a Slurm job is for, None outside of one or where it does not say.

    Examples
    --------
    >>> default_ranks({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}), default_ranks({})
    (4, None)
    """
    return first_number(environ, "SLURM_NTASKS")


def launcher_rank(environ: Mapping[str, str] = os.environ) -> int:
    """Return the rank the launcher gave this process, 0 where there is none.

    Whoever prints an error that all ranks have lets rank 0 print it. This
    number is right even where MPI itself did not come up.

    Examples
    --------
    >>> launcher_rank({"PMI_RANK": "3", "PMI_SIZE": "4"})
    3
    """
    names = "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"
    return first_number(environ, *names) or 0


def first_number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the number in the first of some environment variables that has one."""
    texts = (environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal()), None)


def probe_library(python: str = sys.executable) -> Library:
    """Ask mpi4py, in a process of its own, which MPI it loads; MPI is not initialised.

    Raises
    ------
    LaunchError
        If mpi4py is not installed or cannot load its library.
    """
    try:
        result = ask([python, "-P", "-c", _PROBE], timeout_s=60)
    except subprocess.TimeoutExpired:
        raise LaunchError(f"mpi4py: {python} did not import it within 60 s; reinstall it") from None
    if result.returncode == 0:
        found = json.loads(result.stdout.splitlines()[-1])
        family = family_of(found["vendor"])
        return Library(short_version(found["version"]), family, found["module"], found["library"])
    reason = (result.stderr.strip().splitlines() or [f"exit {result.returncode}"])[-1]
    if "No module named 'mpi4py'" in reason:
        raise LaunchError(f"mpi4py is not installed, it executes plans; {way_to_mpi()}")
    raise LaunchError(f"mpi4py cannot load its MPI library ({reason}); {way_to_mpi()}")


def way_to_mpi() -> str:
    """Say how to install an MPI that mpi4py loads, and its mpiexec."""
    there = path_launchers()
    if not there:
        return "install both: pip install mpi4py mpich"
    # mpi4py's wheel looks for an MPI by few names, and finds some systems' MPI by none.
    return (
        f"pip install mpi4py mpich, or build mpi4py for the MPI of {there[0]}: "
        "pip install --no-binary mpi4py mpi4py"
    )


@cache
def find_launcher() -> Launcher:
    """Return the mpiexec that belongs to the MPI of this environment's mpi4py.

    The first of its family: in this environment, beside the library, on PATH.

    Raises
    ------
    LaunchError
        If mpi4py or a fitting mpiexec is missing.
    """
    library = probe_library()
    strangers = []
    for mpiexec in _candidates(library):
        family = launcher_family(mpiexec)
        if family is None or is_compatible(family, library.family):
            return Launcher(mpiexec, library)
        strangers.append(f"{mpiexec} is of {family}")
    others = f" ({', '.join(strangers)})" if strangers else ""
    raise LaunchError(f"no mpiexec found for mpi4py's {library.version}{others}; {way_to_mpi()}")


def launcher_family(mpiexec: Path) -> str | None:
    """Return the MPI family an mpiexec says it is of, None where it does not say."""
    try:
        result = ask([mpiexec, "--version"], timeout_s=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = (result.stdout + result.stderr).lower()
    for words, family in (
        (("open mpi", "openrte", "prrte"), "openmpi"),
        (("intel(r) mpi",), "intelmpi"),
        (("hydra", "mpich"), "mpich"),
    ):
        if any(word in text for word in words):
            return family
    return None


def ask(command: list[str | Path], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command as if started by hand, and return what it printed."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
    )


def is_compatible(launcher: str, library: str) -> bool:
    """Return whether a launcher of one family can start ranks of another.

    MPICH and what descends from it speak one protocol; Open MPI its own.
    """
    return (launcher == "openmpi") == (library == "openmpi")


def family_of(vendor: str) -> str:
    """Return the family of a vendor as mpi4py names it.

    Examples
    --------
    >>> family_of("Open MPI")
    'openmpi'
    """
    return vendor.replace(" ", "").lower()


def short_version(version: str) -> str:
    """Return the first words of what a library says of itself.

    Examples
    --------
    >>> short_version("MPICH Version:      5.0.2\\nMPICH Release date: ...")
    'MPICH 5.0.2'
    >>> short_version("Intel(R) MPI Library 2021.18.1 for Linux* OS")
    'Intel MPI 2021.18.1'
    """
    first = " ".join(version.partition("\n")[0].split()).strip("\0")
    first = first.partition(",")[0].partition(" for Linux")[0]
    return first.replace(" Version:", "").replace("(R)", "").replace(" Library", "")


def launch_environment(family: str, n_ranks: int) -> dict[str, str]:
    """Return the environment variables `n_ranks` of an MPI family need on this machine.

    Examples
    --------
    >>> launch_environment("mpich", 10**6)["MPIR_CVAR_ENABLE_HEAVY_YIELD"]
    '1'
    """
    job = current_job()
    crowded = ranks_on_fullest(n_ranks, job) > n_cores()
    added: dict[str, str] = {}
    if family == "openmpi":
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            added |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        # Its slots are physical cores, so hardware threads would be too many already.
        # Open MPI 5 reads the first of these variables, Open MPI 4 the second.
        added["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        added["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
        if job is not None and job.source == "PBS_NODEFILE":
            # Built without PBS's library, as the wheel is, it does not know where the nodes are.
            nodes = os.environ[job.source]
            added["PRTE_MCA_prte_default_hostfile"] = nodes
            added["OMPI_MCA_orte_default_hostfile"] = nodes
        # Where UCX has no network its windows complain; those of shared memory need none.
        added["OMPI_MCA_osc"] = "^ucx"
        if crowded:
            added["OMPI_MCA_mpi_yield_when_idle"] = "1"
    elif family == "intelmpi" and crowded:
        # It sleeps a little between polls.
        added["I_MPI_THREAD_YIELD"] = "3"
    elif family == "mpich" and crowded:
        added |= {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
    return {name: value for name, value in added.items() if name not in os.environ}


def clean_environment() -> dict[str, str]:
    """Return the environment without what a launcher put there: as if started by hand."""
    prefixes = ("PMI", "OMPI_COMM", "PRTE_LAUNCHED", "HYD")
    here = usable_environment()
    return {name: value for name, value in here.items() if not name.startswith(prefixes)}


def usable_environment() -> dict[str, str]:
    """Return the environment, without what says that there is Slurm where there is no srun.

    Launchers believe it, and look for srun until they are stopped.
    """
    left_out: tuple[str, ...] = () if shutil.which("srun") is not None else ("SLURM_",)
    if is_shell_of_srun():
        # It is the shell's part as a rank, which ranks would take for theirs.
        left_out += ("PMI_", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def path_launchers() -> list[Path]:
    """Return every mpiexec and mpirun on PATH, in PATH's order, each file once."""
    found: dict[Path, Path] = {}
    for directory in os.get_exec_path():
        for name in ("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich", "mpiexec.openmpi"):
            program = shutil.which(name, path=directory)
            if program is not None:
                found.setdefault(Path(program).resolve(), Path(program))
    return list(found.values())


def _candidates(library: Library) -> list[Path]:
    near = [Path(sys.prefix) / "bin" / "mpiexec"]
    # lib/libmpi.so and lib/x86_64-linux-gnu/libmpi.so both have their bin further up.
    near += [parent / "bin" / "mpiexec" for parent in list(Path(library.library).parents)[1:4]]
    usable = [path for path in near if shutil.which(path) is not None]
    return list(dict.fromkeys([*usable, *path_launchers()]))


def current_job() -> Allocation | None:
    """Return the batch system's job in which launchers start ranks, None outside of one.

    Without srun, as in containers, launchers know nothing of Slurm's nodes.
    """
    return find_allocation(usable_environment())


def ranks_on_fullest(n_ranks: int, job: Allocation | None) -> int:
    """Return how many of some ranks are on the fullest node: of a job's, or of this one."""
    n_nodes = 1 if job is None else len(job.nodes)
    return -(-n_ranks // n_nodes)


def usable_cores() -> int:
    """Return how many cores ranks may use: on all nodes of a job, or on this one."""
    job = current_job()
    return n_cores() if job is None else job.n_cpus or n_cores() * len(job.nodes)


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(affinity())
