"""The right launcher, the right world, and nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collplan.cli.main import main
from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch import environment
from collplan.executors.mpi.launch import launcher as launch
from collplan.executors.mpi.launch.environment import is_under_mpi, launcher_rank
from collplan.executors.mpi.launch.jobs import run_job
from collplan.executors.mpi.launch.launcher import MpiLibrary
from folders import PROGRAMS
from mpi_launching import MPIS, assert_passes, mpi_environment, mpi_python, mpiexec_of
from mpi_launching import mpirun as mpirun_program
from mpi_launching import run as run_command


@pytest.mark.quick
@pytest.mark.parametrize(
    ("environ", "under", "rank"),
    [
        ({}, False, 0),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, True, 2),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}, True, 3),
        ({"PMIX_RANK": "1"}, True, 1),
        ({"SLURM_PROCID": "0"}, False, 0),
        ({"SLURM_PROCID": "5", "PMI_FD": "9"}, True, 5),
        ({"PMI_PORT": "host:1"}, False, 0),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, False, 0),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, False, 0),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "PMI_FD": "9"}, True, 3),
    ],
)
def test_recognises_launchers(environ: dict[str, str], under: bool, rank: int) -> None:
    assert is_under_mpi(environ) is under
    assert launcher_rank(environ) == rank


def one_line(text: str) -> str:
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_relaunch_uses_the_mpiexec_of_its_environment(mpi: str) -> None:
    python = mpi_python(mpi)
    # Foreign launchers come first on PATH and must not matter.
    others = [mpiexec_of(mpi_python(other)).parent for other in MPIS if other != mpi]
    path = ":".join([*map(str, others), "/usr/bin", "/bin"])
    command = [str(python), str(PROGRAMS / "relaunching.py"), "worlds.py", "0", "2"]
    result = run_command(command, PATH=path)
    assert_passes(result)
    assert "a world of 2" in result.stdout


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_exit_code_and_error_of_ranks_pass_through(mpi: str) -> None:
    command = [str(mpi_python(mpi)), str(PROGRAMS / "relaunching.py"), "worlds.py", "0", "3"]
    result = run_command(command)
    assert result.returncode == 2
    assert "the spec needs 3 ranks, the MPI world has 2; start it with -n 3" in result.stderr


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_foreign_mpiexec_is_named_once(mpi: str) -> None:
    """Two processes under the other MPI's mpiexec: neither aborts nor runs alone."""
    python = mpi_python(mpi)
    (other,) = set(MPIS) - {mpi}
    foreign = mpiexec_of(mpi_python(other))
    result = run_command([str(foreign), "-n", "2", str(python), str(PROGRAMS / "worlds.py")])
    assert result.returncode != 0
    assert "passed" not in result.stdout
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("the MPI world")]
    assert "has 1 rank where 2 were started" in line
    assert line.endswith(f"use {mpiexec_of(python)}")


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_silent_world_of_one_is_detected(mpi: str) -> None:
    """A launcher that leaves no trace: only what relaunch says tells the ranks."""
    command = [str(mpi_python(mpi)), str(PROGRAMS / "worlds.py")]
    result = run_command(command, COLLPLAN_EXPECTED_RANKS="4", COLLPLAN_MPIEXEC="/opt/x/mpiexec")
    assert result.returncode == 2
    line = one_line(result.stderr)
    assert "has 1 rank where 4 were started: /opt/x/mpiexec is not of the MPI" in line


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_one_rank_without_mpiexec_is_a_world(mpi: str) -> None:
    assert_passes(run_command([str(mpi_python(mpi)), str(PROGRAMS / "worlds.py"), "1"]))


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_wrong_number_of_ranks(mpi: str) -> None:
    result = mpirun_program(2, "worlds.py", "8", mpi=mpi)
    assert result.returncode == 2
    assert "the spec needs 8 ranks, the MPI world has 2; start it with -n 8" in result.stderr


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def start_waiting(python: Path, limit_s: int, port: int) -> subprocess.Popen[str]:
    """Start two ranks that wait, with a time limit."""
    command = [str(python), str(PROGRAMS / "relaunching.py"), "waiting.py", str(limit_s), str(port)]
    return subprocess.Popen(
        command, env=mpi_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip


def accept_ranks(server: socket.socket, job: subprocess.Popen[str]) -> list[socket.socket]:
    """Return the connections of the ranks that have said that they are up before the job ends."""
    server.settimeout(0.2)
    ranks: list[socket.socket] = []
    while len(ranks) < 2 and job.poll() is None:
        with suppress(TimeoutError, ConnectionResetError):
            rank = server.accept()[0]
            rank.settimeout(300)
            # A rank that is killed as soon as it is connected would not have said it.
            if rank.recv(2) == b"up":
                ranks.append(rank)
    return ranks


def require_gone(ranks: list[socket.socket]) -> None:
    """Wait for the kernel to say that the ranks are gone."""
    for rank in ranks:
        with suppress(ConnectionResetError):
            assert rank.recv(1) == b""
        rank.close()


@pytest.mark.system
@pytest.mark.parametrize(("end", "mpi"), [*product(ENDS, MPIS)])
def test_no_rank_is_left_behind(end: signal.Signals, mpi: str) -> None:
    """However it ends, the ranks' connections close: the kernel says they are gone."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        job = start_waiting(mpi_python(mpi), 600, server.getsockname()[1])
        ranks = accept_ranks(server, job)
        assert len(ranks) == 2
        job.send_signal(end)
        _, errors = job.communicate(timeout=300)
        require_gone(ranks)
    # Nobody can handle SIGKILL: there the kernel tells the ranks.
    assert job.returncode == (-signal.SIGKILL if end == signal.SIGKILL else 130)
    assert "was stopped" not in errors


@pytest.mark.system
def test_no_rank_is_left_behind_by_a_time_limit() -> None:
    """Give the ranks more time if they have not started by then."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for limit_s in (3, 30, 300):
            job = start_waiting(mpi_python("mpich"), limit_s, server.getsockname()[1])
            ranks = accept_ranks(server, job)
            _, errors = job.communicate(timeout=600)
            require_gone(ranks)
            assert job.returncode == 2
            assert f"did not end within {limit_s} s and was stopped" in errors
            if len(ranks) == 2:
                break
        else:
            raise AssertionError("the ranks never came up")


def test_no_mpi4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ModuleNotFoundError(\"No module named 'mpi4py'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LaunchError, match=r"mpi4py is not installed.*pip install mpi4py mpich"):
        launch.probe_library()
    result = run_command(
        [sys.executable, str(PROGRAMS / "worlds.py")],
        PYTHONPATH=f"{tmp_path}:{mpi_environment()['PYTHONPATH']}",
    )
    assert result.returncode == 2
    assert "pip install mpi4py mpich" in one_line(result.stderr)


def test_broken_mpi4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('libmpi.so: cannot open')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LaunchError, match=r"cannot load its MPI library .*libmpi\.so: cannot open"):
        launch.probe_library()


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_chooses_the_first_launcher_of_the_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = MpiLibrary("MPICH 5.0.2", "mpich", "", str(tmp_path / "mpi" / "lib" / "libmpi.so.12"))
    monkeypatch.setattr(launch, "probe_library", lambda: library)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    find = launch.find_launcher.__wrapped__
    script(tmp_path / "path" / "mpiexec", "echo 'mpiexec (Open MPI) 5.0.3'")
    with pytest.raises(LaunchError) as refused:
        find()
    assert f"{tmp_path / 'path' / 'mpiexec'} is of openmpi" in one_line(str(refused.value))
    hydra = script(tmp_path / "path" / "mpiexec.hydra", "echo HYDRA build details:")
    assert find().mpiexec == hydra
    beside = script(tmp_path / "mpi" / "bin" / "mpiexec", "echo HYDRA build details:")
    assert find().mpiexec == beside
    own = script(tmp_path / "venv" / "bin" / "mpiexec", "echo HYDRA build details:")
    assert find().mpiexec == own


def test_environment_lets_ranks_share_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.launch_environment("openmpi", 10**6) | environment.launch_environment(
        "mpich", 10**6
    ):
        monkeypatch.delenv(name, raising=False)
    crowded = environment.launch_environment("openmpi", environment.n_cores() + 1)
    assert crowded["PRTE_MCA_rmaps_default_mapping_policy"] == ":oversubscribe"
    assert crowded["OMPI_MCA_rmaps_base_oversubscribe"] == "1"  # Open MPI 4 reads no other
    assert crowded["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert environment.launch_environment("mpich", environment.n_cores(), are_late=True) == {}
    assert environment.launch_environment("mpich", 8 * environment.n_cores() - 1) == {}
    monkeypatch.setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "7")
    added = environment.launch_environment("mpich", environment.n_cores() + 1, are_late=True)
    assert added == environment.launch_environment("mpich", 8 * environment.n_cores())
    assert added == {
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        environment.YIELDS: "MPIR_CVAR_ENABLE_HEAVY_YIELD",
    }


def test_jobs_that_cannot_start() -> None:
    with pytest.raises(LaunchError, match="/nowhere/mpiexec cannot be started: No such file"):
        run_job(["/nowhere/mpiexec"], {})


def test_output_of_a_job_is_captured() -> None:
    result = run_job(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], {}, capture=True)
    assert (result.returncode, result.stdout, result.stderr) == (3, "out\n", "err\n")


def test_folders_on_path_that_cannot_be_read_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    is_root = os.geteuid() == 0
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        locked, usable = Path(folder, "locked"), Path(folder, "usable")
        for place in (locked, usable):
            place.mkdir()
            (place / "mpiexec").write_text("#!/bin/sh\n")
            (place / "mpiexec").chmod(0o755)
        locked.chmod(0)
        # A name that is too long is refused like a folder without permission, to root, too.
        monkeypatch.setenv("PATH", os.pathsep.join([str(locked), "x" * 300, str(usable)]))
        if is_root:
            os.seteuid(65534)
        try:
            found = launch.path_launchers()
        finally:
            if is_root:
                os.seteuid(0)
            locked.chmod(0o700)
        assert found == [usable / "mpiexec"]


def slurm_task(
    task: int, spec: Path, mpi: str = "mpich", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a spec of 4 ranks as one of 4 tasks of srun does."""
    spec.write_text("machine: {ranks_per_node: 4}\ncollective: {kind: bcast, count: 4}\n")
    step = {"SLURM_PROCID": str(task), "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}
    command = [str(mpi_python(mpi)), "-m", "collplan", "run", str(spec)]
    return run_command(command, **step, **env)


PMI2 = {"PMI_RANK": "0", "PMI_SIZE": "4"}


@pytest.mark.system
@pytest.mark.parametrize(("mpi", "pmi"), [("mpich", {}), ("mpich", PMI2), ("openmpi", PMI2)])
def test_tasks_of_srun_that_find_no_others_stop_with_one_line(
    mpi: str, pmi: dict[str, str], tmp_path: Path
) -> None:
    """Without a PMI, or with one that does not work; they do not start jobs of their own."""
    result = slurm_task(0, tmp_path / "spec.yaml", mpi, **pmi)
    assert result.returncode == 2, result.stderr
    line = one_line(result.stderr)
    assert "srun started 4 tasks, and each is alone in its MPI world" in line
    assert line.endswith("--mpi=pmi2 for MPICH and --mpi=pmix for Open MPI")


@pytest.mark.system
def test_the_first_task_of_srun_speaks_for_all(tmp_path: Path) -> None:
    result = slurm_task(1, tmp_path / "spec.yaml")
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "")


def test_slurm_without_srun_is_no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Launchers that believe in it hang."""
    launcher = launch.Launcher(Path("mpiexec"), MpiLibrary("MPICH 5", "mpich", "", ""))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "SLURM_JOB_ID" not in launcher.environment(2)
    assert "SLURM_JOB_ID" not in environment.clean_environment()
    script(tmp_path / "srun", "exit 0")
    assert launcher.environment(2)["SLURM_JOB_ID"] == "7"


@pytest.mark.parametrize("command", ["tune", "calibrate"])
def test_the_tasks_of_a_slurm_job_are_the_ranks_by_default(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[int] = []

    def note(_program: object, n_ranks: int, **_options: object) -> int:
        started.append(n_ranks)
        return 0

    monkeypatch.setattr("collplan.executors.mpi.launch.jobs.relaunch", note)
    monkeypatch.setenv("SLURM_NTASKS", "6")
    assert main([command, "-o", str(tmp_path / "out.yaml")]) == 0
    assert started == [6]


def test_a_rank_whose_neighbors_never_initialize_mpi_ends_with_one_line() -> None:
    waits = (
        "import time; from collplan.executors.mpi.world import limit_start\n"
        "with limit_start({0}): time.sleep({1})\n"
    )
    done = run_command([sys.executable, "-c", waits.format(0.2, 600)])
    assert done.returncode == -signal.SIGKILL
    assert done.stderr == (
        "collplan: error: MPI_Init has not returned after 0.2 s; start the same command in all "
        "processes of this mpiexec or srun\n"
    )
    done = run_command([sys.executable, "-c", waits.format(600, 0)])
    assert (done.returncode, done.stderr) == (0, "")
