"""Diagnosis of the installation: what executes and draws plans, and what is wrong with it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch.jobs import run_job
from collplan.executors.mpi.launch.launcher import (
    Launcher,
    Library,
    ask,
    clean_environment,
    find_launcher,
    is_compatible,
    launcher_family,
    n_cores,
    path_launchers,
    probe_library,
    way_to_mpi,
)

LAUNCH_TIMEOUT_S: Final = 30
TIMEOUT_PER_RANK_S: Final = 0.5

_HELLO: Final = """
import json
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
least = {}
for name in "int64", "uint64":
    # Not above 1 on rank 0, the type's largest number on all others.
    mine = np.array([1 if comm.rank == 0 else np.iinfo(name).max], name)
    found = np.empty_like(mine)
    comm.Iallreduce(mine, found, MPI.MIN).Wait()
    least[name] = int(found[0])
node = comm.Split_type(MPI.COMM_TYPE_SHARED)
window = MPI.Win.Allocate_shared(8, 8, comm=node)
memory, _ = window.Shared_query(0)
window.Lock_all()
if node.rank == 0:
    memory[0] = 7
window.Sync()
node.Barrier()
window.Sync()
shares = comm.allreduce(int(memory[0] == 7), MPI.MIN)
window.Unlock_all()
window.Free()
tag_ub = comm.Get_attr(MPI.TAG_UB)
if comm.rank == 0:
    print(json.dumps({"size": comm.size, "tag_ub": tag_ub, "least": least, "shares": shares}))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Parameters
    ----------
    name : str
        What was looked at.
    ok : bool
        Whether it works.
    found : str
        What there is.
    advice : str
        What to do, empty where nothing is to be done.
    """

    name: str
    ok: bool
    found: str
    advice: str = ""


def diagnose() -> list[Finding]:
    """Look at everything collplan uses; works without any MPI.

    MPI runs in processes of its own, so a library that crashes is a finding.

    Returns
    -------
    list of Finding
        Python and packages, MPI, launchers, graphviz, the machine.
    """
    return [
        Finding("python", True, f"{platform.python_version()} at {sys.executable}"),
        *(_package(name) for name in ("numpy", "numba")),
        *_mpi(),
        _graphviz(),
        Finding("cores", True, f"{n_cores()} usable by this process"),
    ]


def _package(name: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", f"pip install {name}")
    return Finding(name, True, version)


def _mpi() -> list[Finding]:
    mpi4py = _package("mpi4py")
    if not mpi4py.ok:
        missing = Finding("mpi4py", False, "not installed; plans cannot be executed", way_to_mpi())
        return [missing, *_strangers(None)]
    try:
        library = probe_library()
    except LaunchError as error:
        return [mpi4py, _missing("MPI library", error), *_strangers(None)]
    loads = Finding("MPI library", True, f"{library.version}, {library.library or library.module}")
    try:
        launcher = find_launcher()
    except LaunchError as error:
        return [mpi4py, loads, _missing("mpiexec", error)]
    chosen = Finding("mpiexec", True, str(launcher.mpiexec))
    return [mpi4py, loads, chosen, *_launch(launcher), *_strangers(library)]


def _missing(name: str, error: LaunchError) -> Finding:
    found, _, advice = str(error).rpartition("; ")
    return Finding(name, False, found, advice)


def _launch(launcher: Launcher) -> list[Finding]:
    """Start ranks, few and more than there are cores, and let them do what plans need."""
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
        crowded = ", more than there are cores" if n_ranks > n_cores() else ""
        findings.append(Finding(name, True, f"a world of {seen['size']}{crowded}"))
    return [*findings, Finding("largest tag", True, str(seen["tag_ub"])), *_abilities(seen)]


def _say_hello(launcher: Launcher, n_ranks: int) -> dict[str, Any]:
    """Return what rank 0 of `n_ranks` ranks found out.

    Raises
    ------
    LaunchError
        If they do not start or do not end well.
    """
    command = launcher.command(n_ranks, [sys.executable, "-P", "-c", _HELLO])
    environment = launcher.environment(n_ranks, clean_environment())
    limit_s = LAUNCH_TIMEOUT_S + TIMEOUT_PER_RANK_S * n_ranks
    result = run_job(command, environment, limit_s, name=f"mpiexec -n {n_ranks}", capture=True)
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode != 0 or not lines:
        reason = next(filter(str.strip, result.stderr.splitlines()), "no output")
        raise LaunchError(f"exit {result.returncode}: {reason.strip()}")
    seen: dict[str, Any] = json.loads(lines[0])
    return seen


def _abilities(seen: Mapping[str, Any]) -> list[Finding]:
    """Say whether the library did rightly what ranks asked of it."""
    wrong = [name for name, least in seen["least"].items() if least != 1]
    found, advice = "right for int64 and uint64", ""
    if wrong == ["uint64"]:
        # A known defect of MPICH 4.0 and Open MPI 4.1, which collplan itself does not meet.
        found = "compares uint64 as if it were signed, a known defect of this release"
        advice = "plans are not affected; for native calls take a newer MPI"
    elif wrong:
        found, advice = f"wrong for {', '.join(wrong)}", "take another release"
    minimum = Finding("MPI_MIN", wrong in ([], ["uint64"]), found, advice)
    if seen["shares"]:
        return [minimum, Finding("shared memory", True, "ranks see what others write")]
    found, advice = "ranks do not see what others write", "use no plans with transport: shared"
    return [minimum, Finding("shared memory", False, found, advice)]


def _strangers(library: Library | None) -> list[Finding]:
    """Name launchers on PATH whose ranks would each be alone."""
    findings: list[Finding] = []
    for position, mpiexec in enumerate(path_launchers()):
        family = launcher_family(mpiexec)
        if library is None:
            findings.append(Finding("mpiexec on PATH", True, f"{mpiexec} of {family}"))
        elif family is not None and not is_compatible(family, library.family):
            # Typed without a path, the first one is what starts.
            found = f"{mpiexec} is of {family}: n ranks would be n worlds of one"
            advice = f"start with {find_launcher().mpiexec}, or let collplan run start it"
            findings.append(Finding("mpiexec on PATH", position > 0, found, advice))
    return findings


def _graphviz() -> Finding:
    dot = shutil.which("dot")
    if dot is not None:
        return Finding("graphviz", True, dot)
    if importlib.util.find_spec("pygraphviz") is None:
        advice = "apt install graphviz, or pip install pygraphviz"
        return Finding("graphviz", False, "neither dot nor pygraphviz", advice)
    draws = "import pygraphviz as g; a = g.AGraph(); a.add_edge(1, 2); a.layout('dot')"
    program = f"{draws}; assert a.draw(format='svg')"
    result = ask([sys.executable, "-P", "-c", program], timeout_s=60)
    if result.returncode == 0:
        return Finding("graphviz", True, "no dot on PATH; pygraphviz's bundled libraries draw")
    reason = (result.stderr.strip().splitlines() or [f"exit {result.returncode}"])[-1]
    return Finding("graphviz", False, f"pygraphviz cannot draw: {reason}", "apt install graphviz")
