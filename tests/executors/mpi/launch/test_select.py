"""The choice of a launcher, without any cluster; `test_slurm` has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from collplan.cli.main import main
from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch import environment, launcher, select
from collplan.executors.mpi.launch.environment import (
    is_under_mpi,
    launch_environment,
    usable_cores,
    usable_environment,
)
from collplan.executors.mpi.launch.jobs import check_crowd, check_room
from collplan.executors.mpi.launch.launcher import Launcher, MpiLibrary
from mpi_launching import mpi_python, mpiexec_of, run

MPICH = MpiLibrary("MPICH 5.0.2", "mpich", "", "")
OPENMPI = MpiLibrary("Open MPI v5.0.11", "openmpi", "", "")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "PBS_NODEFILE", select.LAUNCHER):
        monkeypatch.delenv(name, raising=False)
    for function in (select._select, select.offered_types, select._version, select.working_srun):
        function.cache_clear()
    select.why_not.cache_clear()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Make a program that comes first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return make


SRUN = """case "$1" in
--version) echo 'slurm 23.02.1';;
--mpi=list) printf 'MPI plugin types are...\\n\\tnone\\n\\tpmi2\\n\\tpmix\\n' >&2;;
*) echo '{"size": 4, "neighbors": 4}';;
esac"""


@pytest.mark.system
def test_mpiexec_is_the_one_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for choice in ("mpiexec", "auto", ""):
        monkeypatch.setenv(select.LAUNCHER, choice)
        assert select.select_launcher() == launcher.find_launcher()


def test_a_path_is_taken_if_it_fits(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "probe_library", lambda: MPICH)
    fits = program("hydra", "echo HYDRA build details:")
    monkeypatch.setenv(select.LAUNCHER, str(fits))
    assert select.select_launcher() == Launcher(fits, MPICH)
    stranger = program("stranger", "echo 'mpiexec (OpenRTE) 4.1.4'")
    monkeypatch.setenv(select.LAUNCHER, "stranger")
    with pytest.raises(LaunchError, match=f"{stranger} is of openmpi.*give --launcher mpiexec"):
        select.select_launcher()


def test_what_is_no_launcher_is_refused_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--launcher", "/nowhere/mpiexec"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "--launcher: /nowhere/mpiexec is not a program that can be started" in line
    assert "auto, srun, mpiexec or the path" in line


def test_the_variable_is_named_if_it_has_the_wrong_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "probe_library", lambda: MPICH)
    monkeypatch.setenv(select.LAUNCHER, "/nowhere/other")
    with pytest.raises(LaunchError, match=r"^COLLPLAN_LAUNCHER: /nowhere/other is not a program"):
        select.select_launcher()


def test_srun_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(select, "probe_library", lambda: MPICH)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(select.LAUNCHER, "srun")
    with pytest.raises(LaunchError, match=r"srun is not on PATH.*give --launcher mpiexec"):
        select.select_launcher()


@pytest.mark.parametrize(("library", "pmi"), [(MPICH, "pmi2"), (OPENMPI, "pmix")])
def test_srun_by_what_both_speak(
    library: MpiLibrary,
    pmi: str,
    program: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = program("srun", SRUN)
    monkeypatch.setattr(select, "probe_library", lambda: library)
    monkeypatch.setenv(select.LAUNCHER, "srun")
    chosen = select.select_launcher()
    assert isinstance(chosen, select.Srun)
    assert chosen.command(4, ["app"])[:2] == [str(path), f"--mpi={pmi}"]
    assert chosen.command(4, ["app"])[-1] == "app"
    monkeypatch.setenv(select.CHOSEN_TYPE, "pmix_v4")
    select._select.cache_clear()
    assert "--mpi=pmix_v4" in select.select_launcher().command(1, [])


def test_srun_that_offers_nothing(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program("srun", "printf 'srun: MPI types are...\\nsrun: none\\n' >&2")
    monkeypatch.setattr(select, "probe_library", lambda: OPENMPI)
    monkeypatch.setenv(select.LAUNCHER, "srun")
    with pytest.raises(LaunchError, match=r"finds its ranks by pmix, srun offers none"):
        select.select_launcher()


@pytest.mark.system
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('echo \'{"size": 4, "neighbors": 4}\'', None),
        ('echo \'{"size": 1, "neighbors": 1}\'', "starts 4 ranks in worlds of 1"),
        ('echo \'{"size": 4, "neighbors": 1}\'', "do not see that they share a node"),
        ("echo no such plugin >&2; exit 3", "ends with 3: no such plugin"),
        ("exit 0", "no output"),
    ],
)
def test_auto_takes_srun_only_where_ranks_meet(
    text: str,
    reason: str | None,
    program: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = launcher.find_launcher()
    program("srun", SRUN.replace('echo \'{"size": 4, "neighbors": 4}\'', text))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    chosen = select.select_launcher()
    if reason is None:
        assert isinstance(chosen, select.Srun)
    else:
        assert chosen == own
        tried = select.Srun(Path("srun"), own.library, "pmi2")
        assert reason in str(select.why_not(tried))


def test_options_of_srun(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program("srun", SRUN)
    chosen = select.Srun(path, OPENMPI, "pmix")
    outside = chosen.command(3, ["app"])
    assert "--overlap" not in outside
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-4]")
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "2(x4)")
    assert chosen.command(3, ["app"])[-3:] == ["-N", "3", "app"]
    assert {"--overlap", "--kill-on-bad-exit=1"} <= set(chosen.command(8, ["app"]))
    assert "--overcommit" not in chosen.command(8, ["app"])
    assert "--overcommit" in chosen.command(9, ["app"])
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "2")
    assert chosen.environment(4)["SRUN_CPUS_PER_TASK"] == "2"


def test_ranks_of_a_job_have_the_cores_and_the_memory_of_all_its_nodes(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program("srun", SRUN)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-1000]")
    assert usable_cores() == 1000 * environment.n_cores()
    check_crowd(1000 * environment.n_cores(), usable_cores())
    check_room(1000)
    assert "MPIR_CVAR_ENABLE_HEAVY_YIELD" not in launch_environment("mpich", 1000)
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "48(x1000)")
    assert usable_cores() == 48_000
    # Where launchers cannot know of the nodes, there is this one.
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert usable_cores() == environment.n_cores()


def test_a_shell_that_srun_started_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = {"SLURM_PTY_PORT": "9", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
    shell |= {"PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "9"}
    assert not is_under_mpi(shell)
    assert is_under_mpi({**shell, "SLURM_STEP_NUM_TASKS": "2"})
    assert is_under_mpi({**shell, "COLLPLAN_EXPECTED_RANKS": "1"})
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PMIX_MCA_gds", "hash")
    assert not {"PMI_RANK", "PMI_FD"} & set(usable_environment())
    assert usable_environment()["PMIX_MCA_gds"] == "hash"


@pytest.mark.system
@pytest.mark.parametrize("mpi", ["mpich", "openmpi", "debian-mpich", "debian-openmpi"])
def test_nodes_of_pbs(mpi: str, tmp_path: Path) -> None:
    """This node, by its name; the library's own launcher starts as many as there are lines."""
    python = mpi_python(mpi)
    nodes = tmp_path / "nodes"
    nodes.write_text("localhost\n" * 3)
    command = [str(python), "-m", "collplan", "machine", "-n", "3", "-o", str(tmp_path / "m.yaml")]
    done = run(command, PBS_NODEFILE=str(nodes), PBS_ENVIRONMENT="PBS_BATCH", PBS_JOBID="7.here")
    assert done.returncode == 0, done.stderr
    assert "ranks_per_node: 3" in done.stdout
    assert mpiexec_of(python).exists()
