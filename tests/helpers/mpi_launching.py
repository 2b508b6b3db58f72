"""Run programs of `mpi_programs` under the mpiexec of the wheels' MPIs or of Debian's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

import debian_mpi
from folders import HELPERS, PROGRAMS, ROOT

OPENMPI_PYTHON = Path(
    os.environ.get("COLLPLAN_OPENMPI_PYTHON", ROOT / ".venv-openmpi" / "bin" / "python")
)
INTEL_PYTHON = ROOT / ".venv-intel" / "bin" / "python"
MPIS = ("mpich", "openmpi")
DEBIAN = tuple(debian_mpi.LIBRARIES)
"""Names of Debian's MPIs, which tests may use beside `MPIS` where apt could install them."""
ALL = (*MPIS, *DEBIAN, "intel")
"""Names of all MPIs that tests may use."""
HANG_S = 300.0
"""Seconds after which a program hangs, even on a machine ten times as busy as it should be."""
NOT_LAUNCHED = "The PMIx server's listener thread failed to start"
"""Words of Open MPI's mpiexec when it starts no rank, about once in a thousand launches."""


def mpi_python(mpi: str) -> Path:
    """Return the interpreter whose mpi4py uses `mpi`, or skip the test."""
    if debian_mpi.WHY_NOT.exists() and mpi in DEBIAN:
        reason = debian_mpi.WHY_NOT.read_text().strip()
        pytest.skip(f"Debian's {mpi.removeprefix('debian-')} cannot be installed here: {reason}")
    if mpi in DEBIAN:
        python = debian_mpi.python_of(mpi)
    elif mpi == "mpich":
        pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")
        python = Path(sys.executable)
    else:
        python = INTEL_PYTHON if mpi == "intel" else OPENMPI_PYTHON
    for program in (python, mpiexec_of(python)):
        if not program.exists():
            do_without(f"no {mpi}: {program} does not exist; 'make test' installs it")
    return python


def do_without(reason: str) -> NoReturn:
    """Skip where somebody runs pytest without the set-up; fail where tests must be complete."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def mpiexec_of(python: Path) -> Path:
    """Return the mpiexec that belongs to an environment."""
    for mpi in DEBIAN:
        if python == debian_mpi.python_of(mpi):
            return debian_mpi.LAUNCHERS[mpi]
    return python.parent / "mpiexec"


def mpi_environment() -> dict[str, str]:
    """Return an environment both MPIs accept: as root, with more ranks than cores.

    Plans are made early, because tests make few calls.
    """
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI_", "COLLPLAN_"))},
        "PYTHONPATH": f"{ROOT}{os.pathsep}{HELPERS}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_osc": "^ucx",
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
        "COLLPLAN_NATIVE_CALLS": "2",
    }


def run(
    command: list[str], timeout_s: float = HANG_S, *, bare: bool = False, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group of its own, which is gone afterwards.

    A `bare` environment has nothing that helps an MPI: collplan has to set it. If mpiexec itself
    did not start, the command runs a second time.
    """
    done = _run_once(command, timeout_s, bare, env)
    if done.returncode and NOT_LAUNCHED in done.stdout + done.stderr:
        return _run_once(command, timeout_s, bare, env)
    return done


def _run_once(
    command: list[str], timeout_s: float, bare: bool, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    given = os.environ.copy() if bare else mpi_environment()
    for mpi in DEBIAN:
        if str(debian_mpi.python_of(mpi)) in command:
            given |= debian_mpi.environment_of(mpi)
    process = subprocess.Popen(
        command,
        env={**given, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        raise AssertionError(f"{command} took over {timeout_s} s\n{out}\n{err}") from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def mpirun(
    n_ranks: int,
    program: str,
    *args: str,
    mpi: str = "mpich",
    timeout_s: float = HANG_S,
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Run ``mpi_programs/<program>`` on `n_ranks` ranks and return what it printed."""
    python = mpi_python(mpi)
    # Run by mpi4py, a rank that fails takes the others along instead of leaving them waiting.
    command = [str(mpiexec_of(python)), "-n", str(n_ranks), str(python), "-m", "mpi4py"]
    return run([*command, str(PROGRAMS / program), *args], timeout_s, **env)


def assert_passes(result: subprocess.CompletedProcess[str]) -> None:
    """Fail with everything the program printed unless it ended well on rank 0."""
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert "passed" in result.stdout, result.stdout + result.stderr
