"""However an emulated cluster ends, nothing of it is left."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emulating import emulate, gone, need_emulation, processes_in
from folders import PROGRAMS
from mpi_launching import mpi_environment, run

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("emulation")]
CLUSTER = ("--nodes", "2", "--per-node", "1", "--lanes", "2")


@pytest.fixture(scope="module")
def emulation() -> None:
    need_emulation()


def start(mpi: str, *command: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*emulate(mpi), *CLUSTER, "--", *command],
        env={**mpi_environment(), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def machine_wide() -> tuple[set[str], str]:
    """Return what a set-up outside of namespaces would change: interfaces and mounts."""
    interfaces = {path.name for path in Path("/sys/class/net").iterdir()}
    return interfaces, Path("/proc/self/mountinfo").read_text()


def kill_outermost(job: subprocess.Popen[str]) -> None:
    """Kill the one child of the command, which waits for all the others."""
    (child,) = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    subprocess.run(["kill", "-KILL", child], check=True)


def signalling(number: signal.Signals) -> Callable[[subprocess.Popen[str]], None]:
    return lambda job: job.send_signal(number)


@pytest.mark.parametrize(
    ("mpi", "end", "status"),
    [
        pytest.param("mpich", signalling(signal.SIGKILL), -9, id="mpich-kill"),
        pytest.param("openmpi", signalling(signal.SIGKILL), -9, id="openmpi-kill"),
        pytest.param("mpich", signalling(signal.SIGTERM), 130, id="mpich-terminate"),
        pytest.param("openmpi", signalling(signal.SIGINT), 130, id="openmpi-interrupt"),
        pytest.param("mpich", kill_outermost, 137, id="mpich-kill-sandbox"),
    ],
)
def test_nothing_is_left_of_a_run(
    mpi: str, end: Callable[[subprocess.Popen[str]], None], status: int
) -> None:
    before = machine_wide()
    with start(mpi, "python", str(PROGRAMS / "lingering.py")) as job:
        assert job.stdout is not None
        line = job.stdout.readline()
        assert line, job.communicate()[1]
        namespaces = {name for rank in json.loads(line) for name in rank}
        assert len(processes_in(namespaces)) >= 6  # Ranks, nodes, launchers.
        end(job)
        # Every process of the sandbox holds standard output: its end is their end.
        job.communicate(timeout=120)
    assert job.returncode == status
    assert gone(namespaces)
    assert machine_wide() == before


def test_nothing_is_left_of_a_set_up(tmp_path: Path) -> None:
    """Killed while ip, here one that never ends, builds switches."""
    slow_ip = tmp_path / "ip"
    here = "for n in net mnt pid ipc uts; do readlink /proc/self/ns/$n; done"
    slow_ip.write_text(f"#!/bin/sh\necho $({here}) >&2\nexec sleep 600\n")
    slow_ip.chmod(0o755)
    with start("mpich", "true", PATH=f"{tmp_path}:/usr/bin:/bin") as job:
        found: list[str] = []
        deadline = time.monotonic() + 120
        while not found and time.monotonic() < deadline:
            found = [pid for pid in children_of_all(job.pid) if command_of(pid) == "sleep"]
            time.sleep(0.05)
        assert found
        namespaces = {str((Path("/proc") / found[0] / "ns" / "net").readlink())}
        job.kill()
        job.communicate(timeout=120)
    assert gone(namespaces)


def children_of_all(pid: int) -> list[str]:
    """Return all descendants of a process."""
    found: list[str] = []
    parents = [str(pid)]
    while parents:
        parent = parents.pop()
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        found += children
        parents += children
    return found


def command_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_what_the_command_leaves_running_ends_with_it() -> None:
    # Closed files: launchers wait for all that hold what they gave their ranks.
    leave = "import subprocess as s; d = s.DEVNULL; "
    leave += "p = s.Popen(['sleep', '600'], stdin=d, stdout=d, stderr=d); "
    leave += "s.run(['readlink', f'/proc/{p.pid}/ns/net'])"
    done = run([*emulate("mpich"), *CLUSTER, "--", "python", "-c", leave])
    assert done.returncode == 0
    namespaces = set(done.stdout.split())
    assert len(namespaces) == 2
    assert gone(namespaces)


def test_timeout_is_one_line_and_leaves_nothing() -> None:
    program = (str(PROGRAMS / "lingering.py"),)
    # A busy machine may not even start the program within the first of these times.
    for timeout_s in ("2", "20", "120"):
        line = [*emulate("mpich"), *CLUSTER, "--timeout", timeout_s, "--", "python", *program]
        done = run(line)
        if done.stdout:
            break
    assert done.returncode == 2
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("collplan: error: the command on the emulated cluster did not end")
    assert f"within {timeout_s} s" in line
    (found,) = done.stdout.splitlines()[:1]
    assert gone({name for rank in json.loads(found) for name in rank})
