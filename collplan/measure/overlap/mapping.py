"""Put the cores of a plan on the processors there are."""

from __future__ import annotations

from collections.abc import Sequence


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
