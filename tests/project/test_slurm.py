"""The commands under a real Slurm, whose nodes are pretended by this machine."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import slurm
from collplan.specs.loading import load_machine
from collplan.tables.table import save_table
from folders import PROGRAMS
from mpi_launching import ALL, do_without, mpi_environment, mpi_python, mpiexec_of, run
from tables_everywhere import planning_table

PMI = {
    "mpich": "pmi2",
    "openmpi": "pmix",
    "debian-mpich": "pmi2",
    "debian-openmpi": "pmix",
    "intel": "pmix",
}
"""Interface by which srun starts ranks of each MPI."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """Run a Slurm of three nodes, and return the variables in which its commands find it."""
    reason = slurm.why_no_slurm()
    if reason is not None:
        pytest.skip(f"there is no Slurm: {reason}")
    with ExitStack() as running:
        try:
            environment = running.enter_context(slurm.slurm(3))
        except slurm.RefusedError as error:
            do_without(str(error))
        yield {name: environment[name] for name in ("SLURM_CONF", "PATH", *slurm.PRETENDING)}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "machine: {nodes: 2, ranks_per_node: 2}\n"
        "collective: {kind: allreduce, count: 256, datatype: float64, op: sum}\n"
    )
    return path


def collplan(mpi: str, *words: object) -> list[str]:
    return [str(mpi_python(mpi)), "-m", "collplan", *map(str, words)]


ALLOCATE = ["salloc", "--quiet", "-N", "2", "-n", "4"]
ENDS_S = 60.0


def run_in_slurm(mpi: str, command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command under Slurm, again where MPICH 4.0.2 did not leave its own MPI_Finalize.

    It sometimes does not, also without collplan: see docs/cluster.md.
    """
    if mpi == "debian-mpich":
        for _ in range(2):
            with suppress(AssertionError):
                return run(command, ENDS_S, **env)
    return run(command, **env)


@pytest.mark.system
@pytest.mark.parametrize("mpi", ALL)
def test_the_doctor_starts_ranks_by_srun(mpi: str, cluster: dict[str, str]) -> None:
    done = run_in_slurm(mpi, [*ALLOCATE, *collplan(mpi, "doctor", "--json")], **cluster)
    findings = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    wrong = [one for name, one in findings.items() if not one["ok"] and "PATH" not in name]
    assert wrong == []
    assert findings["launcher"]["found"].endswith(f"srun --mpi={PMI[mpi]}")
    assert findings["launch of 2 ranks"]["found"].startswith("a world of 2")
    assert findings["batch system"]["found"] == "a job of Slurm: 2 nodes, 4 tasks"


@pytest.mark.system
@pytest.mark.parametrize("mpi", ALL)
def test_under_srun_it_just_runs(mpi: str, cluster: dict[str, str], spec: Path) -> None:
    line = ["srun", f"--mpi={PMI[mpi]}", "-N", "2", "--ntasks-per-node=2"]
    words = collplan(mpi, "run", spec, "--repetitions", 2, "--json")
    done = run_in_slurm(mpi, [*line, *words], **cluster)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["correct"]
    assert document["ranks"] == 4


def ranks_are_started_by(mpi: str, cluster: dict[str, str], table: Path, *options: str) -> str:
    """Tune a little inside of a job, and return what the ranks were started by."""
    little = ("--sizes", "1KiB", "--at-most", 1, "--least", 6, "--most", 6, "--seconds", 0.5)
    kinds = ("--collectives", "allreduce", *options)
    words = collplan(mpi, "tune", "-o", table, *little, *kinds)
    done = run_in_slurm(mpi, [*ALLOCATE, *words], **cluster)
    assert done.returncode == 0, done.stderr
    fingerprint = json.loads(table.read_text())["fingerprint"]
    assert fingerprint["nodes"] == (n_nodes_of_mpiexec(mpi, cluster) if options else 2)
    return str(fingerprint["mpiexec"])


def n_nodes_of_mpiexec(mpi: str, cluster: dict[str, str]) -> int:
    """Return on how many nodes the MPI's own mpiexec starts four ranks.

    Open MPI 5 puts them all on the first node if it is told that ranks may share cores.
    """
    python = mpi_python(mpi)
    line = [str(mpiexec_of(python)), "-n", "4", str(python), "-m", "mpi4py.bench", "helloworld"]
    done = run([*ALLOCATE, *line], **cluster)
    assert done.returncode == 0, done.stderr
    hosts = re.findall(r"process \d of 4 on (\w+)", done.stdout)
    assert len(hosts) == 4
    return len(set(hosts))


@pytest.mark.system
@pytest.mark.parametrize("mpi", ["debian-openmpi", "intel"])
def test_in_a_job_srun_starts_the_ranks(mpi: str, cluster: dict[str, str], tmp_path: Path) -> None:
    assert ranks_are_started_by(mpi, cluster, tmp_path / "table.json") == "slurm"


@pytest.mark.system
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_in_a_job_their_own_mpiexec_starts_ranks(
    mpi: str, cluster: dict[str, str], tmp_path: Path
) -> None:
    table = tmp_path / "table.json"
    by = ranks_are_started_by(mpi, cluster, table, "--launcher", "mpiexec")
    assert by == mpi


@pytest.mark.system
def test_without_an_interface_one_task_says_it(cluster: dict[str, str], spec: Path) -> None:
    done = run(["srun", "--mpi=none", "-n", "4", *collplan("mpich", "run", spec)], **cluster)
    lines = [line for line in done.stderr.splitlines() if line.startswith("collplan")]
    assert done.returncode != 0
    assert len(lines) == 1
    assert "srun started 4 tasks, and each is alone in its MPI world" in lines[0]


@pytest.mark.system
def test_a_batch_script_calibrates_tunes_and_executes(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    python = mpi_python("mpich")
    script = tmp_path / "job.sh"
    little = "--sizes 1KiB --at-most 1 --least 6 --most 6 --seconds 0.5 --collectives allreduce"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2\nset -e\n"
        f"collplan='{python} -m collplan'\n"
        "$collplan machine -o machine.yaml\n"
        "$collplan machine -n $SLURM_NTASKS -o seen.yaml\n"
        "$collplan calibrate --quick --machine seen.yaml -o here.yaml\n"
        f"$collplan tune --machine here.yaml -o table.json {little}\n"
        f"$collplan exec --table table.json -n $SLURM_NTASKS {PROGRAMS / 'unchanged.py'} word\n"
    )
    line = ["sbatch", "--wait", f"--chdir={tmp_path}", "--output=out", "--export=ALL", str(script)]
    done = run(line, **cluster)
    output = (tmp_path / "out").read_text()
    assert done.returncode == 0, output
    assert "unchanged mpi4py __main__ ['word'] 10.0" in output
    for name in ("machine.yaml", "seen.yaml", "here.yaml"):
        machine = load_machine(str(tmp_path / name))
        assert (machine.nodes, machine.ranks_per_node, machine.n_ranks) == (2, 2, 4), name
    assert json.loads((tmp_path / "table.json").read_text())["fingerprint"]["nodes"] == 2


@pytest.mark.system
def test_machines_of_uneven_jobs(cluster: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    line = ["salloc", "--quiet", "-N", "3", "-n", "7", *collplan("mpich", "machine", "-o", path)]
    done = run(line, **cluster)
    assert done.returncode == 0, done.stderr
    machine = load_machine(str(path))
    assert (machine.nodes, machine.n_ranks) == (3, 7)
    assert len(set(machine.node_to_n_ranks)) > 1
    assert "not known here: the default" in path.read_text()
    seen = tmp_path / "seen.yaml"
    done = run([*line[:6], *collplan("mpich", "machine", "-n", 7, "-o", seen)], **cluster)
    assert done.returncode == 0, done.stderr
    assert load_machine(str(seen)).rank_to_node == machine.rank_to_node


@pytest.mark.system
def test_machines_of_ranks_in_another_order(cluster: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    line = ["srun", "--mpi=pmi2", "-N", "2", "--ntasks-per-node=2", "--distribution=cyclic"]
    done = run([*line, *collplan("mpich", "machine", "-o", path, "--json")], **cluster)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["machine"]["rank_order"] == "cyclic"
    assert load_machine(str(path)).rank_to_node == (0, 1, 0, 1)


@pytest.mark.system
def test_programs_read_what_the_command_reads(cluster: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "reads.py"
    program.write_text(
        "import sys\nfrom mpi4py import MPI\n"
        "text = MPI.COMM_WORLD.bcast(sys.stdin.read() if MPI.COMM_WORLD.rank == 0 else None)\n"
        "if MPI.COMM_WORLD.rank == 0: print(repr(text), MPI.COMM_WORLD.size)\n"
    )
    table = tmp_path / "table.json"
    save_table(planning_table(2, ("bcast",)), table)
    done = subprocess.run(
        [*ALLOCATE, *collplan("mpich", "exec", "--table", table, "--force", "-n", 2, program)],
        input="two\nlines\n", env={**mpi_environment(), **cluster},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == r"'two\nlines\n' 2"


@pytest.mark.system
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_rank_is_left_behind(end: signal.Signals, cluster: dict[str, str]) -> None:
    """However the command ends, the ranks' connections close: the kernel says they are gone."""
    environment = {**mpi_environment(), **cluster}
    with socket.create_server(("127.0.0.1", 0)) as server, job_of(2, environment) as job:
        server.settimeout(120)
        port = str(server.getsockname()[1])
        program = [str(PROGRAMS / "relaunching.py"), "waiting.py", "60", port]
        inside = {"SLURM_JOB_ID": job, "COLLPLAN_LAUNCHER": "srun"}
        command = subprocess.Popen(
            [str(mpi_python("mpich")), *program], env=environment | inside,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        ranks = [server.accept()[0] for _ in range(2)]
        for rank in ranks:
            rank.settimeout(120)
            assert rank.recv(2) == b"up"
        command.send_signal(end)
        command.wait(120)
        for rank in ranks:
            with suppress(ConnectionResetError):
                assert rank.recv(1) == b""
            rank.close()
    assert command.returncode == (-end if end == signal.SIGKILL else 130)


@contextmanager
def job_of(n_tasks: int, environment: dict[str, str]) -> Iterator[str]:
    """Allocate nodes, and return the job's number."""
    line = ["salloc", "--no-shell", "-N", "2", "-n", str(n_tasks)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
    job = re.findall(r"Granted job allocation (\d+)", done.stderr)[0]
    try:
        yield job
    finally:
        slurm.ask(["scancel", job], environment)
