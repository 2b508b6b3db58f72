"""Diagnosis of the installation: programs that execute and draw plans, and their problems."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch.allocation import find_allocation
from collplan.executors.mpi.launch.environment import clean_environment, is_under_mpi, n_cores
from collplan.executors.mpi.launch.hello import hello
from collplan.executors.mpi.launch.jobs import run_job
from collplan.executors.mpi.launch.launcher import (
    Launcher,
    MpiLibrary,
    find_launcher,
    is_compatible,
    launcher_family,
    path_launchers,
    probe_library,
    way_to_mpi,
)
from collplan.executors.mpi.launch.select import Srun, find_srun, offered_types, select_launcher
from collplan.executors.mpi.loop.entries import code_folder, is_kept
from collplan.planner.draw.rendering import WHEEL, DrawError, find_renderer, render
from collplan.planner.memory import free_machine_bytes

if sys.platform != "win32":
    import resource

LAUNCH_TIMEOUT_S: Final = 30
TIMEOUT_PER_RANK_S: Final = 0.5
LEAST_LOCKED: Final = 1 << 30
"""Locked memory in bytes that drivers of InfiniBand need for buffers of plans."""

_HELLO: Final = Path(__file__).with_name("hello.py")
_TIGHT_SHARED_BYTES: Final = 1 << 26
"""Size in bytes up to which shared memory counts as too small, as by default in containers."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    Parameters
    ----------
    name : str
        Name of the checked item.
    ok : bool
        Whether it works.
    found : str
        Description of the item, or of its problem.
    advice : str
        Remedy; empty if none is needed.
    """

    name: str
    ok: bool
    found: str
    advice: str = ""


def diagnose(join: Callable[[], Any]) -> list[Finding]:
    """Check everything that collplan uses. This works without MPI, too.

    MPI runs in separate processes, so that a crash of the library is a finding. In a process that a
    launcher has started, the world of its ranks is checked instead, and the call is collective.

    Parameters
    ----------
    join : callable
        Function that initializes MPI, and checks and returns the communicator of the world.

    Returns
    -------
    list of Finding
        Findings about Python and packages, MPI, launchers, graphviz, and the machine.
    """
    return [
        Finding("python", True, f"{platform.python_version()} at {sys.executable}"),
        *(_package(name) for name in ("numpy", "numba")),
        *_mpi(join),
        _graphviz(),
        _cache(),
        Finding("cores", True, f"{n_cores()} usable by this process"),
        *_memory(),
        _batch_system(),
    ]


def _package(name: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", f"pip install {name}")
    return Finding(name, True, version)


def _mpi(join: Callable[[], Any]) -> list[Finding]:
    mpi4py = _package("mpi4py")
    if not mpi4py.ok:
        missing = Finding("mpi4py", False, "not installed; plans cannot be executed", way_to_mpi())
        return [missing, *_strangers(None)]
    try:
        library = probe_library()
    except LaunchError as error:
        return [mpi4py, _missing("MPI library", error), *_strangers(None)]
    loads = Finding("MPI library", True, f"{library.version}, {library.library or library.module}")
    findings = [mpi4py, loads, Finding("MPI ABI", True, _abi(library))]
    try:
        if is_under_mpi():
            return [*findings, *_world(join)]
    except LaunchError as error:
        return [*findings, _missing("world", error)]
    try:
        own = Finding("mpiexec", True, str(find_launcher().mpiexec))
    except LaunchError as error:
        own = _missing("mpiexec", error)
    findings.append(own)
    try:
        launcher = select_launcher()
    except LaunchError as error:
        return [*findings, *([_missing("launcher", error)] if own.ok else [])]
    if isinstance(launcher, Srun):
        # With srun, the MPI's own launcher is not needed.
        findings[-1] = Finding("mpiexec", True, own.found, own.advice)
    starts = " ".join(launcher.command(2, [])[: 2 if isinstance(launcher, Srun) else 1])
    findings.append(Finding("launcher", True, starts))
    return [*findings, *_launch(launcher), *_strangers(library)]


def _abi(library: MpiLibrary) -> str:
    """Describe the MPIs for which mpi4py's module is built, according to its file name."""
    parts = Path(library.module).name.split(".")
    built_for_many = len(parts) > 2 and not parts[1].startswith(("cpython", "abi3", "cp"))
    return f"{parts[1]}, by mpi4py's wheel" if built_for_many else "mpi4py is built for this MPI"


def _world(join: Callable[[], Any]) -> list[Finding]:
    """Check the world of this rank, which a launcher has started; collective."""
    try:
        comm = join()
    except LaunchError as error:
        return [_missing("world", error)]
    seen = hello(comm)
    return [_size("world", seen), *_abilities(seen)]


def _size(name: str, seen: Mapping[str, Any]) -> Finding:
    size, nodes = seen["size"], seen["nodes"]
    where = f" on {nodes} nodes" if nodes > 1 else ""
    found = f"a world of {size}{where}"
    if not seen["arrives"]:
        return Finding(name, False, f"{found}; messages are lost", "take another release of MPI")
    return Finding(name, True, f"{found}; messages arrive")


def _missing(name: str, error: LaunchError) -> Finding:
    found, _, advice = str(error).rpartition("; ")
    return Finding(name, False, found, advice)


def _launch(launcher: Launcher) -> list[Finding]:
    """Start two ranks, and more ranks than cores, and check the functions that plans need."""
    crowd = n_cores() + 1
    findings: list[Finding] = []
    seen: dict[str, Any] = {}
    for n_ranks in sorted({2, crowd}):
        name = f"launch of {n_ranks} ranks"
        try:
            seen = _say_hello(launcher, n_ranks)
        except LaunchError as error:
            advice = f"see that {launcher.mpiexec} -n {n_ranks} hostname works"
            return [*findings, Finding(name, False, str(error), advice)]
        if seen["size"] != n_ranks:
            advice = f"mpiexec must be of {launcher.library.version}; {way_to_mpi()}"
            return [*findings, Finding(name, False, f"a world of {seen['size']}", advice)]
        findings.append(_size(name, seen))
    return [*findings, *_abilities(seen)]


def _say_hello(launcher: Launcher, n_ranks: int) -> dict[str, Any]:
    """Return the results of `hello` on `n_ranks` ranks.

    Raises
    ------
    LaunchError
        If the ranks cannot be started, or fail.
    """
    command = launcher.command(n_ranks, [sys.executable, "-P", str(_HELLO)])
    environment = launcher.environment(n_ranks, clean_environment())
    limit_s = LAUNCH_TIMEOUT_S + TIMEOUT_PER_RANK_S * n_ranks
    result = run_job(
        command, environment, limit_s, name=f"{launcher.mpiexec.name} -n {n_ranks}", capture=True
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode != 0 or not lines:
        reason = next(filter(str.strip, result.stderr.splitlines()), "no output")
        raise LaunchError(f"exit {result.returncode}: {reason.strip()}")
    seen: dict[str, Any] = json.loads(lines[0])
    return seen


def _abilities(seen: Mapping[str, Any]) -> list[Finding]:
    """Return findings about the functions of MPI that plans need."""
    wrong = [name for name, least in seen["least"].items() if least != 1]
    found, advice = "right for int64 and uint64", ""
    if wrong == ["uint64"]:
        # A known defect of MPICH 4.0 and Open MPI 4.1, which does not affect collplan.
        found = "compares uint64 as if it were signed, a known defect of this release"
        advice = "plans are not affected; for native calls take a newer MPI"
    elif wrong:
        found, advice = f"wrong for {', '.join(wrong)}", "take another release"
    minimum = Finding("MPI_MIN", wrong in ([], ["uint64"]), found, advice)
    found, advice = "ranks see what others write", ""
    if not seen["shares"]:
        found, advice = "ranks do not see what others write", "use no plans with transport: shared"
    shared = Finding("shared memory", seen["shares"], found, advice)
    has_threads = seen["threads"] == "THREAD_MULTIPLE"
    advice = "" if has_threads else "non-blocking calls of exec stay native; take another MPI build"
    threads = Finding("thread level", True, f"MPI_{seen['threads']}", advice)
    return [Finding("largest tag", True, str(seen["tag_ub"])), threads, minimum, shared]


def _strangers(library: MpiLibrary | None) -> list[Finding]:
    """Return findings about launchers on PATH: the first one, and all that are incompatible."""
    findings: list[Finding] = []
    for position, mpiexec in enumerate(path_launchers()):
        family = launcher_family(mpiexec)
        if library is None:
            findings.append(Finding("mpiexec on PATH", True, f"{mpiexec} of {family}"))
        elif family is not None and not is_compatible(family, library.family):
            # A command without a path starts the first one.
            found = f"{mpiexec} is of {family}: n ranks would be n worlds of one"
            advice = f"start with {_own_launcher()}, or let collplan run start it"
            findings.append(Finding("mpiexec on PATH", position > 0, found, advice))
        elif position == 0:
            findings.append(Finding("mpiexec on PATH", True, f"{mpiexec} fits"))
    return findings


def _own_launcher() -> str:
    try:
        return str(find_launcher().mpiexec)
    except LaunchError:
        return "srun"


def _cache() -> Finding:
    """Check for a folder in which compiled code is cached."""
    folder = code_folder()
    if folder is None:
        advice = "name a folder that can be written, as NUMBA_CACHE_DIR=$HOME/.cache/numba"
        return Finding("compiled code", False, "nowhere to keep it; each run compiles it", advice)
    kept = "" if is_kept("run_loop") else "; the first run compiles the engine once"
    return Finding("compiled code", True, f"kept in {folder}{kept}")


def _memory() -> list[Finding]:
    """Check limits of memory that stop programs, or slow down networks."""
    free = free_machine_bytes()
    memory = Finding("memory", True, f"{free / 1e9:.3g} GB free")
    if sys.platform == "win32":
        return [memory]
    limits = {"address space": resource.RLIMIT_AS, "locked memory": resource.RLIMIT_MEMLOCK}
    soft = {name: resource.getrlimit(limit)[0] for name, limit in limits.items()}
    shown = [f"{name} {_shown(n_bytes)}" for name, n_bytes in soft.items()]
    advice = ""
    if is_limited(soft["locked memory"], LEAST_LOCKED) and has_infiniband():
        advice = "InfiniBand needs more locked memory: ulimit -l unlimited in the job script"
    findings = [memory, Finding("limits", not advice, ", ".join(shown), advice)]
    with suppress(OSError):
        n_bytes = shutil.disk_usage("/dev/shm").total
        few = n_bytes <= _TIGHT_SHARED_BYTES
        advice = "enlarge it, as with docker run --shm-size 1g" if few else ""
        findings.append(Finding("/dev/shm", not few, f"{n_bytes / 1e9:.3g} GB", advice))
    return findings


def _shown(n_bytes: int) -> str:
    return "unlimited" if n_bytes == resource.RLIM_INFINITY else f"up to {n_bytes / 1e6:.3g} MB"


def is_limited(n_bytes: int, least: int) -> bool:
    """Return whether a memory limit is lower than `least`."""
    return n_bytes != resource.RLIM_INFINITY and n_bytes < least


def has_infiniband(folder: Path = Path("/sys/class/infiniband")) -> bool:
    """Return whether this node has InfiniBand or Omni-Path adapters."""
    with suppress(OSError):
        return any(folder.iterdir())
    return False


def _batch_system() -> Finding:
    """Return a finding about the batch system of this job, or of installed commands."""
    try:
        job = find_allocation()
    except LaunchError as error:
        return _missing("batch system", error)
    if job is not None:
        n_nodes = len(job.nodes)
        nodes = f"{n_nodes} node{'s' * (n_nodes > 1)}"
        tasks = "" if job.tasks is None else f", {sum(job.tasks)} tasks"
        return Finding("batch system", True, f"a job of {job.scheduler}: {nodes}{tasks}")
    if find_srun() is not None:
        types = ", ".join(offered_types())
        found = f"Slurm, outside of a job; srun offers {types}"
        return Finding("batch system", True, found if types else "Slurm's commands, no cluster")
    if shutil.which("qsub") is not None:
        return Finding("batch system", True, "PBS or Grid Engine, outside of a job")
    return Finding("batch system", True, "none here")


def _graphviz() -> Finding:
    renderer = find_renderer()
    if renderer is None:
        advice = f"apt install graphviz, or pip install {WHEEL}"
        return Finding("graphviz", False, f"neither dot nor {WHEEL}", advice)
    try:
        render("digraph { a }", "svg")
    except DrawError as error:
        advice = f"pip install --force-reinstall {WHEEL}"
        return Finding("graphviz", False, str(error), advice)
    is_dot = renderer.name != WHEEL
    return Finding("graphviz", True, str(renderer) if is_dot else f"{WHEEL}, as there is no dot")
