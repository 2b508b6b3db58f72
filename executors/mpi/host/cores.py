"""Ranks on their hosts: sharing of cores, affinity of threads, and ended processes."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.host.processes import affinity, stat_of
from collplan.specs.errors import CollplanError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Crowding:
    """Use of the cores of hosts by several ranks.

    Parameters
    ----------
    ranks_per_core : float
        Number of ranks per core on the fullest host; at most 1 if no ranks share cores.
    yields_help : bool
        Whether a yielded core is given to another rank of the host. Linux gives it to processes of
        the same scheduling group. Some launchers start every rank in a separate session, and thus
        in a separate automatic group.
    """

    ranks_per_core: float
    yields_help: bool


def ranks_per_core(comm: MPI.Intracomm) -> float:
    """Return the number of ranks per core on the fullest host; collective like `crowding`."""
    return crowding(comm).ranks_per_core


def share_cores_as(comm: MPI.Intracomm, whole: MPI.Intracomm) -> None:
    """Store for `comm` the sharing of cores that is known for `whole`, of which it is a part."""
    comm.Set_attr(_keyval(), crowding(whole))


def crowding(comm: MPI.Intracomm) -> Crowding:
    """Return the sharing of cores by ranks.

    Collective on the first call for a communicator. The result is stored with it and with its
    duplicates.
    """
    known: Any = comm.Get_attr(_keyval())
    found: Crowding = known or _find_crowding(comm)
    if known is None:
        comm.Set_attr(_keyval(), found)
    return found


@cache
def _keyval() -> int:
    # A duplicate has the attributes of its original.
    return MPI.Comm.Create_keyval(lambda comm, keyval, known: known)


def _find_crowding(comm: MPI.Intracomm) -> Crowding:
    return crowding_of(comm.allgather((host(), sorted(affinity()), scheduling_group())))


def crowding_of(places: Iterable[tuple[Hashable, Iterable[int], Hashable]]) -> Crowding:
    """Return the sharing of cores, given the host, processors and scheduling group of each rank."""
    ranks: Counter[Hashable] = Counter()
    cores: defaultdict[Hashable, set[int]] = defaultdict(set)
    groups: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
    for name, usable, group in places:
        ranks[name] += 1
        cores[name].update(usable)
        groups[name].add(group)
    return Crowding(
        max(ranks[name] / len(cores[name]) for name in ranks),
        all(len(group) == 1 for group in groups.values()),
    )


def scheduling_group(proc: Path = Path("/proc"), process: str = "self") -> str:
    """Return the name of the scheduling group of a process; empty for the root group."""
    try:
        return _cpu_cgroup(proc / process) or _automatic_group(proc, process)
    except OSError:
        return ""


def _automatic_group(proc: Path, process: str) -> str:
    """Return the name of a process's automatic group; empty if it has none."""
    if not int((proc / "sys/kernel/sched_autogroup_enabled").read_text()):
        return ""
    return (proc / process / "autogroup").read_text().partition(" ")[0].strip()


def _cpu_cgroup(process: Path) -> str:
    """Return a process's path in the control groups of processors; empty for the root."""
    unified = ""
    for line in (process / "cgroup").read_text().splitlines():
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
    """Return an identifier of the host, which nodes emulated in namespaces have in common."""
    if _BOOT_ID.exists():
        return _BOOT_ID.read_text().strip()
    return MPI.Get_processor_name()


def usable_processors(comm: MPI.Intracomm) -> list[int]:
    """Return the processors that any rank of a node may use, ascending; collective."""
    return sorted(set().union(*comm.allgather(affinity())))


def pin_thread(processor: int) -> None:
    """Bind the calling thread, and threads that it starts later, to one processor.

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


class Peers:
    """Processes of a communicator's ranks, with a test whether those on this machine are alive.

    Construction is collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    wait : callable
        Function that waits for all ranks.
    """

    def __init__(self, comm: MPI.Intracomm, wait: Callable[[MPI.Request], object]) -> None:
        self._place = _place()
        mine = np.array([self._place, os.getpid(), stat_of(os.getpid())[1]], dtype=np.uint64)
        self._all: npt.NDArray[np.uint64] = np.empty((comm.size, 3), dtype=np.uint64)
        wait(comm.Iallgather(mine, self._all))

    def pid(self, rank: int) -> int:
        """Return a rank's process id."""
        return int(self._all[rank, 1])

    def ended(self, ranks: Iterable[int] | None = None) -> list[int]:
        """Return the ranks, out of some or all, whose processes on this machine have ended."""
        every = range(len(self._all))
        return [rank for rank in (every if ranks is None else ranks) if self._has_ended(rank)]

    def _has_ended(self, rank: int) -> bool:
        place, pid, beginning = (int(value) for value in self._all[rank])
        # On other machines, process ids denote other processes.
        return place == self._place and stat_of(pid)[1] != beginning


def _place() -> int:
    """Return a number that processes have in common if they are in one process namespace."""
    try:
        numbering = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbering = str(os.getpid())
    digest = blake2b(f"{host()} {numbering}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")
