"""Nodes that a batch system has allocated to this job, according to environment variables.

Slurm, PBS (OpenPBS and Torque), LSF, Grid Engine and Cobalt are supported. Their servers are not
contacted. Jobs whose nodes variables do not name, as those of Flux, are refused.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collplan.executors.mpi.errors import LaunchError
from collplan.specs.errors import show_value
from collplan.specs.syntax.host_list import MOST_NODES, expand_hosts

_REPEATED: Final = re.compile(r"(\d+)(?:\(x(\d+)\))?")


@dataclass(frozen=True, slots=True)
class Allocation:
    """Nodes that a batch system has allocated to a job.

    Parameters
    ----------
    scheduler : str
        "Slurm", "PBS", "LSF", "Grid Engine" or "Cobalt".
    nodes : tuple of str
        Names of the nodes, each once.
    tasks : tuple of int or None
        Number of ranks on each node, None if it is unknown.
    cpus : tuple of int or None
        Number of processors of each node that the job may use, None if it is unknown.
    order : tuple of int or str
        Node of every rank, or "block" or "cyclic".
    source : str
        Environment variable that names the nodes.
    """

    scheduler: str
    nodes: tuple[str, ...]
    tasks: tuple[int, ...] | None
    cpus: tuple[int, ...] | None
    order: tuple[int, ...] | str
    source: str

    @property
    def n_cpus(self) -> int | None:
        """Return the number of processors of all nodes, None if it is unknown."""
        return None if self.cpus is None else sum(self.cpus)


def find_allocation(environ: Mapping[str, str] = os.environ) -> Allocation | None:
    """Return the allocation of this job, None outside of a job.

    Parameters
    ----------
    environ : mapping of str to str
        Environment variables, by default those of this process.

    Raises
    ------
    LaunchError
        If a variable is set and malformed, if the file that it names cannot be read, or if the
        job has several nodes that no variable names.

    Examples
    --------
    >>> job = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x2)"}
    >>> found = find_allocation(job)
    >>> found.nodes, found.tasks
    (('n1', 'n2'), (4, 4))
    """
    n_parts = environ.get("SLURM_HET_SIZE", "1")
    # A step, in contrast to the job, has one list of nodes.
    if n_parts != "1" and "SLURM_STEP_NODELIST" not in environ:
        problem = f"the job has {n_parts} components, and ranks are started in one only"
        raise _unreadable("SLURM_HET_SIZE", f"{problem}; submit a job of one component")
    for name, read in _READERS.items():
        if environ.get(name):
            return read(name, environ)
    for name, (scheduler, size) in _NAMELESS.items():
        if environ.get(name) and environ.get(size) != "1":
            problem = f"this is a job of {scheduler}, which names its nodes in no variable"
            raise _unreadable(name, problem)
    return None


def expand_counts(text: str) -> tuple[int, ...]:
    """Return the numbers in Slurm's compressed list of numbers.

    Raises
    ------
    ValueError
        If the text is not such a list, or the list is too long.

    Examples
    --------
    >>> expand_counts("4(x2),3")
    (4, 4, 3)
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _REPEATED.fullmatch(part.strip())
        times = int(match[2] or 1) if match else 0
        if match is None or times + len(counts) > MOST_NODES:
            raise ValueError(f"{show_value(part)} is no number of tasks")
        counts += [int(match[1])] * times
    return tuple(counts)


def _read_slurm(name: str, environ: Mapping[str, str]) -> Allocation:
    try:
        nodes = expand_hosts(environ[name])
    except ValueError as error:
        raise _unreadable(
            name, f"{show_value(environ[name])} is not a list of nodes ({error})"
        ) from None

    def counts(variable: str) -> tuple[int, ...] | None:
        text = environ.get(variable)
        if not text:
            return None
        try:
            found = expand_counts(text)
        except ValueError as error:
            raise _unreadable(
                variable, f"{show_value(text)} is not a list of numbers ({error})"
            ) from None
        # A step inside a job has its own numbers, which may be for fewer nodes.
        return found if len(found) == len(nodes) else None

    order = "cyclic" if environ.get("SLURM_DISTRIBUTION", "").startswith("cyclic") else "block"
    tasks, cpus = counts("SLURM_TASKS_PER_NODE"), counts("SLURM_JOB_CPUS_PER_NODE")
    return Allocation("Slurm", nodes, tasks, cpus, order, name)


def _read_pbs(name: str, environ: Mapping[str, str]) -> Allocation:
    """Return the allocation of a file with one line per rank.

    If the job did not request ranks, there is one line per processor.
    """
    hosts = [line.split()[0] for line in _lines(name, environ)]
    return _of_ranks("PBS", hosts, None, name)


def _read_lsf(name: str, environ: Mapping[str, str]) -> Allocation:
    words = environ[name].split()
    hosts, numbers = words[::2], words[1::2]
    if len(hosts) != len(numbers) or not all(map(str.isdecimal, numbers)):
        raise _unreadable(
            name, f"{show_value(environ[name])} is not a list of hosts with their slots"
        )
    slots = [int(number) for number in numbers]
    if "CSM_ALLOCATION_ID" in environ and slots[:1] == [1] and len(slots) > 1:
        # The first host only launches: IBM's Cluster System Manager starts ranks on the others.
        del hosts[0], slots[0]
    return _of_slots("LSF", hosts, slots, name)


def _read_lsf_hosts(name: str, environ: Mapping[str, str]) -> Allocation:
    """Return the allocation of a list with a host per slot, which LSF gives to small jobs only."""
    hosts = environ[name].split()
    return _of_slots("LSF", hosts, [1] * len(hosts), name)


def _read_cobalt(name: str, environ: Mapping[str, str]) -> Allocation:
    """Return the allocation of a file with one line per node."""
    hosts = tuple(dict.fromkeys(line.split()[0] for line in _lines(name, environ)))
    if not hosts:
        raise _unreadable(name, "it names no host")
    return Allocation("Cobalt", hosts, None, None, "block", name)


def _read_grid_engine(name: str, environ: Mapping[str, str]) -> Allocation:
    rows = [line.split() for line in _lines(name, environ)]
    if not all(len(row) > 1 and row[1].isdecimal() for row in rows):
        raise _unreadable(name, f"{environ[name]} has lines without a host and its slots")
    return _of_slots("Grid Engine", [row[0] for row in rows], [int(row[1]) for row in rows], name)


def _of_slots(scheduler: str, hosts: list[str], slots: list[int], source: str) -> Allocation:
    ranks = [host for host, n in zip(hosts, slots, strict=True) for _ in range(n)]
    cpus = tuple(Counter(ranks).values())
    return _of_ranks(scheduler, ranks, cpus, source)


def _of_ranks(
    scheduler: str, hosts: list[str], cpus: tuple[int, ...] | None, source: str
) -> Allocation:
    nodes = tuple(dict.fromkeys(hosts))
    if not nodes:
        raise _unreadable(source, "it names no host")
    numbers = {host: number for number, host in enumerate(nodes)}
    order = tuple(numbers[host] for host in hosts)
    used = Counter(order)
    tasks = tuple(used[number] for number in range(len(nodes)))
    return Allocation(scheduler, nodes, tasks, cpus, order, source)


def _lines(name: str, environ: Mapping[str, str]) -> Iterable[str]:
    path = Path(environ[name])
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _unreadable(name, f"{path} cannot be read: {error.strerror}") from None
    return [line for line in text.splitlines() if line.strip()]


def _unreadable(name: str, problem: str) -> LaunchError:
    return LaunchError(f"{name}: {problem}; unset it to work without the batch system's nodes")


_READERS: Final = {
    "SLURM_JOB_NODELIST": _read_slurm,
    "SLURM_NODELIST": _read_slurm,
    "PBS_NODEFILE": _read_pbs,
    "LSB_MCPU_HOSTS": _read_lsf,
    "LSB_HOSTS": _read_lsf_hosts,
    "PE_HOSTFILE": _read_grid_engine,
    "COBALT_NODEFILE": _read_cobalt,
}
_NAMELESS: Final = {
    "COBALT_JOBID": ("Cobalt", "COBALT_JOBSIZE"),
    "FLUX_URI": ("Flux", "FLUX_JOB_NNODES"),
    "FLUX_JOB_ID": ("Flux", "FLUX_JOB_NNODES"),
    "LSB_JOBID": ("LSF", "LSB_MAX_NUM_PROCESSORS"),
}
"""Batch systems whose nodes are unknown, with the number of nodes, by variables of their jobs."""
