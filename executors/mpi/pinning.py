"""Put a plan's cores on the processors there are, and this thread on one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mpi4py import MPI

from executors.mpi.cores import affinity
from specs.errors import CollplanError


def usable_processors(comm: MPI.Intracomm) -> list[int]:
    """Return the processors that any rank of a node may use, ascending; collective."""
    return sorted(set().union(*comm.allgather(affinity())))


def map_cores(n_cores: int, free: Sequence[int], processors: Sequence[int]) -> list[int]:
    """Return the processor of every core of a node.

    Where there are fewer processors than cores, cores share them. Communication
    cores then have their part of the processors, which application cores do not
    use, so that what is meant to overlap still can.

    Parameters
    ----------
    n_cores : int
        Cores of the node.
    free : sequence of int
        Those that hold no rank, for communication.
    processors : sequence of int
        At least one.

    Examples
    --------
    >>> map_cores(4, [3], [0, 1, 2, 3]), map_cores(4, [3], [0, 1]), map_cores(4, [1, 3], [5])
    ([0, 1, 2, 3], [0, 0, 0, 1], [5, 5, 5, 5])
    """
    if len(processors) >= n_cores:
        return list(processors[:n_cores])
    n_kept = max(1, len(processors) * len(free) // n_cores) if free else 0
    n_kept = min(n_kept, len(processors) - 1)
    for_ranks = processors[: len(processors) - n_kept]
    for_progress = processors[len(processors) - n_kept :] if n_kept else processors
    mapped, counts = [], [0, 0]
    for core in range(n_cores):
        is_free = core in free
        chosen = for_progress if is_free else for_ranks
        mapped.append(chosen[counts[is_free] % len(chosen)])
        counts[is_free] += 1
    return mapped


def pin_thread(processor: int) -> None:
    """Let the calling thread, and those it starts from now on, use one processor only.

    Raises
    ------
    CollplanError
        If the system does not allow it.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise CollplanError(
            "threads cannot be kept on a processor on this system; use --simulate, or Linux"
        )
    try:
        os.sched_setaffinity(0, {processor})
    except OSError as error:
        raise CollplanError(
            f"processor {processor}: the thread cannot be kept there: {error.strerror}; "
            f"start the ranks without limits on their processors"
        ) from None
