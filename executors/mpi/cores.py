"""How many ranks of a communicator share a core, so that idle ones should sleep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mpi4py import MPI

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_cached_on_comm: list[int] = []


def ranks_per_core(comm: MPI.Intracomm) -> float:
    """Return how many ranks share a core on the fullest host of `comm`; at most 1 if none do.

    Collective on the first call for a communicator; the answer is kept on it.
    """
    known = comm.Get_attr(_keyval())
    if known is None:
        known = _count(comm)
        comm.Set_attr(_keyval(), known)
    return float(known)


def share_cores_as(comm: MPI.Intracomm, whole: MPI.Intracomm) -> None:
    """Let ranks of `comm` wait as all those of `whole` do, of which they are a part."""
    comm.Set_attr(_keyval(), ranks_per_core(whole))


def _keyval() -> int:
    if not _cached_on_comm:
        _cached_on_comm.append(MPI.Comm.Create_keyval())
    return _cached_on_comm[0]


def _count(comm: MPI.Intracomm) -> float:
    ranks: dict[str, int] = {}
    cores: dict[str, set[int]] = {}
    seen: list[tuple[str, Any]] = comm.allgather((host(), sorted(affinity())))
    for name, own in seen:
        ranks[name] = ranks.get(name, 0) + 1
        cores.setdefault(name, set()).update(own)
    return max(ranks[name] / len(cores[name]) for name in ranks)


def host() -> str:
    """Name the kernel we run on: nodes emulated in namespaces share its cores."""
    if _BOOT_ID.exists():
        return _BOOT_ID.read_text().strip()
    return MPI.Get_processor_name()


def affinity() -> set[int]:
    """Return the processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))
