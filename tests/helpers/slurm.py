"""A Slurm of pretended nodes on this machine, for tests; `make test` runs this file as a script.

Debian's munged, slurmctld and a slurmd per node run in a temporary folder, on free ports. As
root, each slurmd has its own host name and shared memory, as a node has.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import debian_mpi

PACKAGES: Final = ["slurmctld", "slurmd", "slurm-client", "munge", "libpmix-dev"]
"""Debian's packages; srun's pmix needs a file that only the last one has."""
PROGRAMS: Final = ("munged", "munge", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "sinfo")
WHY_NOT: Final = debian_mpi.FOLDER / "why-no-slurm"
"""Exists where Slurm could not be installed, and says why."""
CPUS_PER_NODE: Final = 4
_START_S: Final = 60.0
_PORTS: Final = range(20_000, 32_000)
"""Below the ports that Linux gives to sockets without one (ip_local_port_range)."""
_CONF: Final = """\
ClusterName=pretended
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
TmpFS={folder}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=3
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
_NODE: Final = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Boards=1 "
    "SocketsPerBoard=2 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=2000 State=UNKNOWN\n"
)
PRETENDING: Final = {"OMPI_MCA_reachable": "weighted"}
"""Variables of ranks: the kernel has no routes between nodes, since all have the same address."""
_CGROUPS: Final = ("CgroupPlugin=disabled\n", "")
"""Texts of cgroup.conf: nothing here needs control groups, but an old slurmd insists on them."""
_OWN_NAMESPACES: Final = 'hostname "$1" && mount -t tmpfs tmpfs /dev/shm && shift && exec "$@"'
"""Shell commands of a process that has its own namespaces of host names and mounts."""


class RefusedError(RuntimeError):
    """A slurmd that ended at once, as where it needs what the machine does not have."""


def why_no_slurm() -> str | None:
    """Return why there is no Slurm here to start, None where there is."""
    missing = [name for name in PROGRAMS if _which(name) is None]
    if not missing:
        return None
    if WHY_NOT.exists():
        return WHY_NOT.read_text().strip()
    return f"{', '.join(missing)} are not installed; 'make test' installs Slurm"


@contextmanager
def slurm(n_nodes: int = 3) -> Iterator[dict[str, str]]:
    """Run a Slurm of some nodes, and return the environment in which its commands find it.

    Raises
    ------
    RefusedError
        If slurmd does not start on this machine.
    RuntimeError
        If it does not come up.
    """
    # Sockets have short names, so that the folder is not the test's.
    with TemporaryDirectory(prefix="slurm-") as name, ExitStack() as running:
        folder = Path(name)
        folder.chmod(0o755)
        environment = {
            **os.environ,
            **PRETENDING,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        names = [f"node{number}" for number in range(n_nodes)]
        _configure(folder, names)
        running.enter_context(_daemon(_munged(folder), environment, folder))
        _wait_for(lambda: (folder / "munge" / "socket").exists(), "munged", folder)
        running.enter_context(_daemon(["slurmctld", "-D", "-c"], environment, folder))
        running.enter_context(_nodes(names, environment, folder))
        try:
            yield environment
        finally:
            ask(["scancel", "--quiet", "--user", str(os.geteuid())], environment)
            with suppress(RuntimeError):
                _wait_for(lambda: _n_idle(environment) == n_nodes, "the nodes", folder)


@contextmanager
def _nodes(names: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Run a slurmd for every node, until all of them are idle."""
    commands = [_apart(node, ["slurmd", "-D", "-N", node]) for node in names]
    for text in _CGROUPS:
        (folder / "cgroup.conf").write_text(text)
        logged = len((folder / "log").read_text())
        with ExitStack() as running:
            nodes = [
                running.enter_context(_daemon(command, environment, folder)) for command in commands
            ]
            _wait_for(
                lambda nodes=nodes: _n_idle(environment) == len(nodes) or _has_ended(nodes),
                "slurmctld and slurmd",
                folder,
            )
            if not _has_ended(nodes):
                yield
                return
    reason = re.search(r"slurmd-\w+: error: (.*)", (folder / "log").read_text()[logged:])
    raise RefusedError(f"slurmd does not start here: {reason[1] if reason else 'no reason given'}")


def _has_ended(daemons: Sequence[subprocess.Popen[bytes]]) -> bool:
    return any(daemon.poll() is not None for daemon in daemons)


def ask(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what a command of Slurm prints."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout


def _configure(folder: Path, names: Sequence[str]) -> None:
    for part in ("state", "munge"):
        (folder / part).mkdir(mode=0o700)
    (folder / "munge" / "key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge" / "key").chmod(0o400)
    port, *ports = _free_ports(1 + len(names))
    host = socket.gethostname()
    user = os.environ.get("USER", "root") if os.geteuid() else "root"
    text = _CONF.format(host=host, user=user, folder=folder, port=port)
    for name, own_port in zip(names, ports, strict=True):
        for part in ("spool", "."):
            (folder / part / name).mkdir(parents=True)
        text += _NODE.format(name=name, host=host, port=own_port, cpus=CPUS_PER_NODE)
    (folder / "slurm.conf").write_text(text)


def _munged(folder: Path) -> list[str]:
    files = {"socket": "socket", "key-file": "key", "log-file": "log", "pid-file": "pid"}
    files["seed-file"] = "seed"
    options = [f"--{option}={folder / 'munge' / name}" for option, name in files.items()]
    return ["munged", "--foreground", "--force", "--num-threads=2", *options]


def _apart(host: str, command: list[str]) -> list[str]:
    """Return a command with a host name and shared memory of its own, where that is allowed."""
    if os.geteuid() != 0 or _which("unshare") is None:
        return command
    namespaces = ["unshare", "--uts", "--ipc", "--mount"]
    return [*namespaces, "sh", "-c", _OWN_NAMESPACES, "sh", host, *command]


@contextmanager
def _daemon(
    command: list[str], environment: Mapping[str, str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _n_idle(environment: Mapping[str, str]) -> int:
    lines = ask(["sinfo", "--noheader", "--Node", "--format=%T"], environment).split()
    return lines.count("idle")


def _wait_for(is_there: Callable[[], bool], what: str, folder: Path) -> None:
    until = time.monotonic() + _START_S
    while not is_there():
        if time.monotonic() > until:
            raise RuntimeError(f"{what} did not come up:\n{(folder / 'log').read_text()[-4000:]}")
        time.sleep(0.1)


def _free_ports(n: int) -> list[int]:
    """Return ports that are free and that the kernel gives to no socket of its own choice.

    A port that the kernel chose may be taken by a test beside this one before its daemon starts.
    """
    with ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(_PORTS, len(_PORTS)):
            if len(ports) == n:
                break
            one = held.enter_context(socket.socket())
            with suppress(OSError):
                one.bind(("", port))
                ports.append(port)
        return ports


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def main() -> None:
    """Install Slurm; leave a file that says why where that is not possible."""
    debian_mpi.FOLDER.mkdir(exist_ok=True)
    WHY_NOT.unlink(missing_ok=True)
    reason = None if why_no_slurm() is None else debian_mpi.install(PACKAGES)
    if reason is not None:
        WHY_NOT.write_text(reason + "\n")
        sys.stderr.write(f"tests under Slurm are skipped: {reason}\n")


if __name__ == "__main__":
    main()
