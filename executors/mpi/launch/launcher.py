"""The mpiexec that belongs to the MPI of mpi4py, and the launcher that started this process.

If mpiexec and MPI library do not belong together, n processes start, and each is alone in its
world. This module finds the right mpiexec, and detects that a wrong one was used. It does not
import mpi4py into a process that is not a rank.
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
_GUARDIAN: Final = Path(__file__).parents[1] / "host" / "processes.py"
"""Script that starts each rank, because launchers kill all ranks as soon as one dies."""

_PROBE: Final = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
paths = []
try:
    with open("/proc/self/maps") as maps:
        paths = [line.strip().split(None, 5)[-1] for line in maps if "libmpi" in line]
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
class MpiLibrary:
    """The MPI library that mpi4py loads.

    Parameters
    ----------
    version : str
        Short version string of the library, see `short_version`.
    family : str
        "mpich", "openmpi", "intelmpi", or the name of another vendor in lower case.
    module, library : str
        Paths of mpi4py's backend and of the library; the latter is empty if it is unknown.
    """

    version: str
    family: str
    module: str
    library: str


@dataclass(frozen=True, slots=True)
class Launcher:
    """The program that starts ranks, and the MPI library that they load.

    Parameters
    ----------
    mpiexec : Path
        An mpiexec, or another program that starts ranks.
    library : MpiLibrary
        The MPI library.
    """

    mpiexec: Path
    library: MpiLibrary

    def command(self, n_ranks: int, program: Sequence[str]) -> list[str]:
        """Return the command that runs `program` on `n_ranks` ranks.

        Parameters
        ----------
        n_ranks : int
        program : sequence of str
            Command line of each rank.
        """
        return [str(self.mpiexec), "-n", str(n_ranks), *self.guard(), *program]

    def guard(self) -> list[str]:
        """Return the command that precedes the program of each rank; empty for most MPIs."""
        if self.library.family == "mpich" and hasattr(os, "fork"):
            return [sys.executable, "-I", "-S", str(_GUARDIAN)]
        return []

    def environment(self, n_ranks: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the whole environment for ranks, which tells them their number.

        Parameters
        ----------
        n_ranks : int
            Number of ranks.
        base : mapping of str to str, optional
            Environment that is extended. The default is `usable_environment`.
        """
        return {
            **(usable_environment() if base is None else base),
            **launch_environment(self.library.family, n_ranks),
            EXPECTED_RANKS: str(n_ranks),
            MPIEXEC: str(self.mpiexec),
        }


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


def first_number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the number in the first of the named variables that is a number, None if none is."""
    texts = (environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal()), None)


def probe_library(python: str = sys.executable) -> MpiLibrary:
    """Return the MPI library that mpi4py loads.

    A separate process imports mpi4py, without initializing MPI.

    Parameters
    ----------
    python : str
        Path of the Python interpreter.

    Raises
    ------
    LaunchError
        If mpi4py is not installed, cannot load its library, or takes more than 60 s.
    """
    try:
        result = ask([python, "-P", "-c", _PROBE], timeout_s=60)
    except subprocess.TimeoutExpired:
        raise LaunchError(f"mpi4py: {python} did not import it within 60 s; reinstall it") from None
    if result.returncode == 0:
        found = json.loads(result.stdout.splitlines()[-1])
        family = family_of(found["vendor"])
        return MpiLibrary(
            short_version(found["version"]), family, found["module"], found["library"]
        )
    reason = (result.stderr.strip().splitlines() or [f"exit {result.returncode}"])[-1]
    if "No module named 'mpi4py'" in reason:
        raise LaunchError(f"mpi4py is not installed, it executes plans; {way_to_mpi()}")
    raise LaunchError(f"mpi4py cannot load its MPI library ({reason}); {way_to_mpi()}")


def way_to_mpi() -> str:
    """Return advice on installing an MPI that mpi4py can load, and its mpiexec."""
    there = path_launchers()
    if not there:
        return "install both: pip install mpi4py mpich"
    # The wheel of mpi4py tries few file names, and does not find the MPI of some systems.
    return (
        f"pip install mpi4py mpich, or build mpi4py for the MPI of {there[0]}: "
        "pip install --no-binary mpi4py mpi4py"
    )


@cache
def find_launcher() -> Launcher:
    """Return the mpiexec that belongs to the MPI of mpi4py in this environment.

    It is the first compatible mpiexec in this Python environment, near the library, or on PATH, in
    this order. An mpiexec that does not name its family counts as compatible.

    Raises
    ------
    LaunchError
        If mpi4py or a compatible mpiexec is missing.
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
    """Return the MPI family that an mpiexec names with its version, None if it names none."""
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
    """Run a command in a clean environment, and return its output.

    Parameters
    ----------
    command : list of str or Path
    timeout_s : float
        Time limit in seconds.

    Raises
    ------
    OSError
        If the command cannot be started.
    subprocess.TimeoutExpired
        If it exceeds the time limit.
    """
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
    )


def is_compatible(launcher: str, library: str) -> bool:
    """Return whether a launcher of one family can start ranks of another family.

    MPICH and its derivatives have a common protocol. Open MPI has its own.
    """
    return (launcher == "openmpi") == (library == "openmpi")


def family_of(vendor: str) -> str:
    """Return the family of an MPI library, given the name of its vendor in mpi4py.

    Examples
    --------
    >>> family_of("Open MPI")
    'openmpi'
    """
    return vendor.replace(" ", "").lower()


def short_version(version: str) -> str:
    """Return the name and the number in the version string of an MPI library.

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


def launch_environment(family: str, n_ranks: int, *, are_late: bool = False) -> dict[str, str]:
    """Return the additional environment variables for ranks of an MPI family on this machine.

    Variables that are already set are not included.

    Parameters
    ----------
    family : str
        Family of the MPI library, see `MpiLibrary`.
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


def path_launchers() -> list[Path]:
    """Return every mpiexec and mpirun on PATH, in the order of PATH, and each file once."""
    found: dict[Path, Path] = {}
    for directory in os.get_exec_path():
        for name in ("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich", "mpiexec.openmpi"):
            program = shutil.which(name, path=directory)
            if program is not None:
                found.setdefault(Path(program).resolve(), Path(program))
    return list(found.values())


def _candidates(library: MpiLibrary) -> list[Path]:
    near = [Path(sys.prefix) / "bin" / "mpiexec"]
    # The bin folder of lib/libmpi.so or lib/x86_64-linux-gnu/libmpi.so is some levels above.
    near += [parent / "bin" / "mpiexec" for parent in list(Path(library.library).parents)[1:4]]
    usable = [path for path in near if shutil.which(path) is not None]
    return list(dict.fromkeys([*usable, *path_launchers()]))


def current_job() -> Allocation | None:
    """Return the job of a batch system in which launchers start ranks, None outside of a job.

    Without srun, as in containers, a job of Slurm is ignored, because launchers cannot use it.
    """
    return find_allocation(usable_environment())


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
