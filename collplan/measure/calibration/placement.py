"""Where the ranks of a communicator are: nodes, NUMA domains, processors, lanes."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

from mpi4py import MPI

from collplan.executors.mpi.host.cores import host, ranks_per_core
from collplan.executors.mpi.host.processes import affinity
from collplan.measure.calibration.measurements import Place
from collplan.measure.lanes import node_of_ranks

_DOMAINS: Final = Path("/sys/devices/system/node")


def find_place(comm: MPI.Intracomm, lanes: int | None) -> Place:
    """Return where the ranks are; collective, the same on all.

    Ranks that can share memory share a node. Nodes of one kernel, as emulated
    ones are, share its processors.

    Parameters
    ----------
    comm : MPI.Intracomm
        The ranks.
    lanes : int or None
        Lanes a node, if known.
    """
    lowest = node_of_ranks(comm)
    nodes = list(dict.fromkeys(lowest))
    rank_to_node = [nodes.index(rank) for rank in lowest]
    seen: list[tuple[str, set[int], int | None]] = comm.allgather((host(), affinity(), _domain()))
    hosts = {name for name, _, _ in seen}
    processors = len(set().union(*(own for _, own, _ in seen)))
    shared = len(hosts) == 1 and (len(nodes) > 1 or comm.size > processors)
    domains = [domain for _, _, domain in seen]
    numa_domains, rank_to_numa = _arrange(rank_to_node, domains)
    return Place(
        rank_to_node=tuple(rank_to_node),
        rank_to_numa=rank_to_numa,
        numa_domains=numa_domains,
        lanes=lanes,
        processors=processors if shared else None,
        ranks_per_core=ranks_per_core(comm),
    )


def host_name() -> str:
    """Return how this machine calls itself, and what it is."""
    return f"{platform.node()} ({platform.machine()}, {os.cpu_count()} processors)"


def _domain() -> int | None:
    """Return the NUMA domain all of this rank's processors are in, None where there is none."""
    found = []
    for entry in sorted(_DOMAINS.glob("node[0-9]*")):
        try:
            here = _parse_list((entry / "cpulist").read_text())
        except OSError:
            continue
        if affinity() & here:
            found.append(int(entry.name[4:]))
    return found[0] if len(found) == 1 else None


def _parse_list(text: str) -> set[int]:
    """Return the processors of a kernel's list.

    Examples
    --------
    >>> sorted(_parse_list("0-2,8"))
    [0, 1, 2, 8]
    """
    numbers: set[int] = set()
    for part in text.strip().split(","):
        if part:
            low, _, high = part.partition("-")
            numbers |= set(range(int(low), int(high or low) + 1))
    return numbers


def _arrange(rank_to_node: list[int], domains: list[int | None]) -> tuple[int, tuple[int, ...]]:
    """Return NUMA domains a node, and every rank's: contiguous blocks of ranks fill them.

    A machine's ranks are on cores in order, and its domains are blocks of
    cores. Ranks that are bound otherwise, or not at all, count as in one domain.
    """
    one = (1, (0,) * len(domains))
    by_node: dict[int, list[int]] = {}
    for node, domain in zip(rank_to_node, domains, strict=True):
        if domain is None:
            return one
        by_node.setdefault(node, []).append(domain)
    fullest = max(by_node.values(), key=len)
    n_domains, cores = len(set(fullest)), len(fullest)
    locals_seen = [0] * len(by_node)
    rank_to_numa = []
    for node, domain in zip(rank_to_node, domains, strict=True):
        numa = locals_seen[node] * n_domains // cores
        locals_seen[node] += 1
        names = list(dict.fromkeys(by_node[node]))
        if numa >= len(names) or names[numa] != domain:
            return one
        rank_to_numa.append(numa)
    return n_domains, tuple(rank_to_numa)
