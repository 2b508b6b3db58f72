"""What is installed for executing and drawing plans, what would be used, what is wrong."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from executors.mpi.errors import LaunchError
from executors.mpi.launching.jobs import INSTALL, capture_job
from executors.mpi.launching.launch import (
    Launcher,
    Library,
    clean_environment,
    find_launcher,
    is_compatible,
    launch_environment,
    launcher_family,
    n_cores,
    path_launchers,
    probe_library,
)

LAUNCH_TIMEOUT_S: Final = 30

_HELLO: Final = """
import json
from mpi4py import MPI
comm = MPI.COMM_WORLD
names = comm.allgather(MPI.Get_processor_name())
if comm.rank == 0:
    print(json.dumps({"size": comm.size, "tag_ub": comm.Get_attr(MPI.TAG_UB)}))
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
        missing = Finding("mpi4py", False, "not installed; plans cannot be executed", INSTALL)
        return [missing, *_strangers(None)]
    try:
        library = probe_library()
    except LaunchError as error:
        return [mpi4py, Finding("MPI library", False, str(error), INSTALL), *_strangers(None)]
    loads = Finding("MPI library", True, f"{library.version}, {library.library or library.module}")
    try:
        launcher = find_launcher()
    except LaunchError as error:
        return [mpi4py, loads, Finding("mpiexec", False, str(error), INSTALL)]
    chosen = Finding("mpiexec", True, str(launcher.mpiexec))
    return [mpi4py, loads, chosen, *_launch(launcher), *_strangers(library)]


def _launch(launcher: Launcher) -> list[Finding]:
    """Start two ranks and look at the world they see."""
    command = launcher.command(2, [sys.executable, "-c", _HELLO])
    environment = clean_environment() | launch_environment(launcher.library.family, 2)
    advice = f"mpiexec must be of {launcher.library.version}; {INSTALL} in a fresh environment"
    try:
        result = capture_job(command, environment, LAUNCH_TIMEOUT_S)
    except LaunchError as error:
        return [Finding("launch of 2 ranks", False, str(error), advice)]
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode != 0 or not lines:
        reason = (result.stderr.strip().splitlines() or ["no output"])[0]
        found = f"exit {result.returncode}: {reason}"
        return [Finding("launch of 2 ranks", False, found, advice)]
    seen = json.loads(lines[0])
    ok = seen["size"] == 2
    return [
        Finding("launch of 2 ranks", ok, f"a world of {seen['size']}", "" if ok else advice),
        Finding("largest tag", True, str(seen["tag_ub"])),
    ]


def _strangers(library: Library | None) -> list[Finding]:
    """Name launchers on PATH whose ranks would each be alone."""
    findings: list[Finding] = []
    for position, mpiexec in enumerate(path_launchers()):
        family = launcher_family(mpiexec)
        if library is None:
            advice = f"mpi4py is missing for it; {INSTALL}"
            findings.append(Finding("mpiexec on PATH", True, f"{mpiexec} of {family}", advice))
        elif family is not None and not is_compatible(family, library.family):
            # Typed without a path, the first one is what starts.
            findings.append(
                Finding(
                    "mpiexec on PATH",
                    position > 0,
                    f"{mpiexec} is of {family}: n ranks would be n worlds of one",
                    f"start with {find_launcher().mpiexec}, or let collplan run start it",
                )
            )
    return findings


def _graphviz() -> Finding:
    dot = shutil.which("dot")
    if dot is not None:
        return Finding("graphviz", True, dot)
    if importlib.util.find_spec("pygraphviz") is None:
        advice = "apt install graphviz, or pip install pygraphviz"
        return Finding("graphviz", False, "neither dot nor pygraphviz", advice)
    draws = "import pygraphviz as g; a = g.AGraph(); a.add_edge(1, 2); a.layout('dot')"
    result = subprocess.run(
        [sys.executable, "-c", f"{draws}; assert a.draw(format='svg')"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if result.returncode == 0:
        return Finding("graphviz", True, "no dot on PATH; pygraphviz's bundled libraries draw")
    reason = (result.stderr.strip().splitlines() or [f"exit {result.returncode}"])[-1]
    return Finding("graphviz", False, f"pygraphviz cannot draw: {reason}", "apt install graphviz")
