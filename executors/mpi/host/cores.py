"""The cores of a host: how many ranks share one, and how a thread stays on one."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mpi4py import MPI

from collplan.executors.mpi.host.processes import affinity
from collplan.specs.errors import CollplanError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")


@dataclass(frozen=True, slots=True)
class _Crowding:
    ranks_per_core: float
    yields_help: bool


def ranks_per_core(comm: MPI.Intracomm) -> float:
    """Return how many ranks share a core on the fullest host of `comm`; at most 1 if none do.

    Collective on the first call for a communicator; the answer is kept on it
    and on its duplicates.
    """
    return _crowding(comm).ranks_per_core


def yields_help(comm: MPI.Intracomm) -> bool:
    """Return whether a core that a rank gives away goes to another rank of its host.

    Linux gives it to processes of the same scheduling group. Some launchers put
    every rank into a session, and so into an automatic group, of its own.
    Collective as `ranks_per_core` is.
    """
    return _crowding(comm).yields_help


def share_cores_as(comm: MPI.Intracomm, whole: MPI.Intracomm) -> None:
    """Let ranks of `comm` wait as all those of `whole` do, of which they are a part."""
    comm.Set_attr(_keyval(), _crowding(whole))


def _crowding(comm: MPI.Intracomm) -> _Crowding:
    known: Any = comm.Get_attr(_keyval())
    if isinstance(known, _Crowding):
        return known
    found = _find_crowding(comm)
    comm.Set_attr(_keyval(), found)
    return found


@cache
def _keyval() -> int:
    # A duplicate has what its original knows.
    return MPI.Comm.Create_keyval(lambda comm, keyval, known: known)


def _find_crowding(comm: MPI.Intracomm) -> _Crowding:
    ranks: Counter[str] = Counter()
    cores: defaultdict[str, set[int]] = defaultdict(set)
    groups: defaultdict[str, set[str]] = defaultdict(set)
    own = host(), sorted(affinity()), scheduling_group()
    for name, usable, group in comm.allgather(own):
        ranks[name] += 1
        cores[name].update(usable)
        groups[name].add(group)
    return _Crowding(
        max(ranks[name] / len(cores[name]) for name in ranks),
        all(len(group) == 1 for group in groups.values()),
    )


def scheduling_group() -> str:
    """Name the group of processes that the system schedules as one; empty if all are."""
    try:
        if not int(_AUTOGROUPS.read_text()):
            return _cpu_cgroup()
        # Automatic groups divide the root group only.
        return _cpu_cgroup() or Path("/proc/self/autogroup").read_text().split()[0]
    except OSError:
        return ""


def _cpu_cgroup() -> str:
    """Return this process's path among control groups of processors, empty for the root."""
    unified = ""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path.strip("/")
        if not controllers:
            unified = path.strip("/")
    # A group without a weight of its own is scheduled as a part of the one above.
    while unified and not Path("/sys/fs/cgroup", unified, "cpu.weight").exists():
        unified = unified.rpartition("/")[0]
    return unified


def host() -> str:
    """Name the kernel we run on: nodes emulated in namespaces share its cores."""
    if _BOOT_ID.exists():
        return _BOOT_ID.read_text().strip()
    return MPI.Get_processor_name()


def usable_processors(comm: MPI.Intracomm) -> list[int]:
    """Return the processors that any rank of a node may use, ascending; collective."""
    return sorted(set().union(*comm.allgather(affinity())))


def pin_thread(processor: int) -> None:
    """Let the calling thread, and those it starts from now on, use one processor only.

    Raises
    ------
    CollplanError
        If the system does not allow it.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise CollplanError("threads cannot be kept on a processor on this system; Linux does that")
    try:
        os.sched_setaffinity(0, {processor})
    except OSError as error:
        raise CollplanError(
            f"processor {processor}: the thread cannot be kept there: {error.strerror}; "
            f"start the ranks without limits on their processors"
        ) from None
