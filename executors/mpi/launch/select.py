"""Selection of the program that starts ranks: MPI's own mpiexec, srun, or any program."""

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
from collplan.executors.mpi.launch.allocation import Allocation, find_allocation
from collplan.executors.mpi.launch.environment import clean_environment
from collplan.executors.mpi.launch.launcher import (
    Launcher,
    MpiLibrary,
    ask,
    find_launcher,
    is_compatible,
    launcher_family,
    probe_library,
)

CHOSEN_TYPE: Final = "SLURM_MPI_TYPE"
"""Environment variable of Slurm for the option ``--mpi`` of srun."""
TYPES: Final = {
    "openmpi": ("pmix",),
    # With pmi2, Intel MPI may treat ranks of different nodes as ranks of one node.
    "intelmpi": ("pmix", "pmi2"),
    "": ("pmi2", "cray_shasta", "pmix"),
}
"""Interfaces by family of MPI, the best first. The last entry is for all other families."""
PROBE_RANKS: Final = 4
"""Number of ranks of a probe, on one node. Some mismatches need at least three ranks to appear."""
_PROBE_TIMEOUT_S: Final = 30.0

_PROBE: Final = """
import json
from mpi4py import MPI
comm = MPI.COMM_WORLD
neighbor = comm.sendrecv(comm.rank, (comm.rank + 1) % comm.size, source=comm.rank - 1 + (
    comm.size if comm.rank == 0 else 0))
node = comm.Split_type(MPI.COMM_TYPE_SHARED)
least = comm.allreduce(node.size, MPI.MIN)
node.Free()
if comm.rank == 0:
    print(json.dumps({"size": comm.size, "neighbors": least}))
"""


@dataclass(frozen=True, slots=True)
class Srun(Launcher):
    """The srun that starts ranks, and the interface with which they find each other.

    Parameters
    ----------
    mpiexec : Path
        Path of srun.
    library : MpiLibrary
        The MPI library.
    pmi : str
        Value of the option ``--mpi``.
    """

    pmi: str

    def command(self, n_ranks: int, program: Sequence[str]) -> list[str]:
        """Return the command that runs `program` on `n_ranks` ranks."""
        job = find_allocation()
        options = [*_options(job, n_ranks), "-n", str(n_ranks)]
        if job is not None and n_ranks < len(job.nodes):
            options += ["-N", str(n_ranks)]
        return [str(self.mpiexec), f"--mpi={self.pmi}", *options, *self.guard(), *program]

    def environment(self, n_ranks: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the whole environment for `n_ranks` ranks. See `Launcher.environment`."""
        # super() without arguments does not work in dataclasses with slots.
        found = Launcher.environment(self, n_ranks, base)
        # Steps do not inherit the number of processors per task that the job requested.
        if "SLURM_CPUS_PER_TASK" in found:
            found.setdefault("SRUN_CPUS_PER_TASK", found["SLURM_CPUS_PER_TASK"])
        return found


def _options(job: Allocation | None, n_ranks: int) -> list[str]:
    """Return the options with which srun behaves like an mpiexec."""
    options = ["--export=ALL", "--kill-on-bad-exit=1", "--quit-on-interrupt"]
    if job is not None:
        if _version() >= (20, 11):
            options.append("--overlap")  # an interactive shell may use the whole job
        if job.n_cpus is not None and n_ranks > job.n_cpus:
            options.append("--overcommit")
    return options


def find_srun() -> Path | None:
    """Return the path of srun, None if it is not on PATH."""
    found = shutil.which("srun")
    return None if found is None else Path(found)


@cache
def _version() -> tuple[int, ...]:
    try:
        words = ask(["srun", "--version"], timeout_s=20).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(int(part) for part in (words or [""])[-1].split(".") if part.isdecimal())


@cache
def offered_types() -> tuple[str, ...]:
    """Return the interfaces that srun lists; empty if it does not answer."""
    try:
        done = ask(["srun", "--mpi=list"], timeout_s=20)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_types(done.stdout + "\n" + done.stderr)


def parse_types(text: str) -> tuple[str, ...]:
    """Return the interfaces in the output of ``srun --mpi=list``.

    Older releases print ``srun:`` before each of them. Newer releases add a line with versions of
    pmix.

    Examples
    --------
    >>> parse_types("MPI plugin types are...\\n\\tnone\\n\\tpmi2\\nspecific pmix: pmix_v4\\n")
    ('none', 'pmi2')
    >>> parse_types("srun: MPI types are...\\nsrun: pmi2\\nsrun: none")
    ('pmi2', 'none')
    """
    lines = (line.removeprefix("srun:").strip() for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if line and len(line.split()) == 1))


def types_to_try(library: MpiLibrary) -> tuple[str, ...]:
    """Return the interfaces that an MPI may support and srun lists, the best first.

    If the user has chosen an interface with `CHOSEN_TYPE`, it is the only one.
    """
    chosen = os.environ.get(CHOSEN_TYPE)
    if chosen and chosen != "none":
        return (chosen,)
    offered = offered_types()
    wanted = TYPES.get(library.family, TYPES[""])
    return tuple(name for name in wanted if name in offered)


def srun_for(library: MpiLibrary) -> Srun:
    """Return the srun for ranks of an MPI, without a test.

    Raises
    ------
    LaunchError
        If there is no srun, or it has no interface that this MPI supports.
    """
    srun = find_srun()
    if srun is None:
        raise LaunchError(
            "--launcher: srun is not on PATH; load Slurm's commands, or give --launcher mpiexec"
        )
    types = types_to_try(library)
    if not types:
        wanted = " or ".join(TYPES.get(library.family, TYPES[""]))
        raise LaunchError(
            f"--launcher: {library.version} finds its ranks by {wanted}, srun offers "
            f"{', '.join(offered_types()) or 'nothing'}; give --launcher mpiexec"
        )
    return Srun(srun, library, types[0])


@cache
def working_srun(library: MpiLibrary) -> Srun | None:
    """Return an srun whose ranks find each other in this allocation, None if there is none."""
    srun = find_srun()
    if srun is None:
        return None
    sruns = (Srun(srun, library, name) for name in types_to_try(library))
    return next((one for one in sruns if why_not(one) is None), None)


@cache
def why_not(srun: Srun) -> str | None:
    """Start a few ranks in this allocation, and check that they find each other.

    Returns
    -------
    str or None
        Reason why srun does not work; None if the ranks find each other and detect that they
        share a node.
    """
    n_ranks = PROBE_RANKS
    where = ["-N", "1", f"--ntasks-per-node={n_ranks}", "--overcommit", "-n", str(n_ranks)]
    program = [sys.executable, "-P", "-c", _PROBE]
    options = [*_options(find_allocation(), 1), *where]
    command = [str(srun.mpiexec), f"--mpi={srun.pmi}", *options, *program]
    try:
        done = subprocess.run(
            command,
            env=srun.environment(n_ranks, clean_environment()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"srun --mpi={srun.pmi} did not start {n_ranks} ranks: {error}"
    worlds = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not worlds:
        lines = filter(str.strip, done.stderr.splitlines())
        return f"srun --mpi={srun.pmi} ends with {done.returncode}: {next(lines, 'no output')}"
    if worlds[0]["size"] != n_ranks:
        return f"srun --mpi={srun.pmi} starts {n_ranks} ranks in worlds of {worlds[0]['size']}"
    if worlds[0]["neighbors"] < 2:
        return f"by srun --mpi={srun.pmi} ranks do not see that they share a node"
    return None


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
