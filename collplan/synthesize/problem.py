"""Problems for the search: chunks, the ranks that have them, and those that need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MessageRow = tuple[int, int, tuple[int, ...]]
"""Sender, receiver, and chunks of a message."""
Rounds = tuple[tuple[MessageRow, ...], ...]
"""Messages of every round."""

BACKWARDS: Final = {"reduce": "bcast", "gather": "scatter", "reduce_scatter_block": "allgather"}
"""Collectives whose schedules are reversed schedules of others, with the other collective."""
KINDS: Final = (
    "allgather", "allreduce", "alltoall", "bcast", "gather", "reduce", "reduce_scatter_block",
    "scatter",
)  # fmt: skip
"""Collectives for which a search is possible."""
ROOTED: Final = ("bcast", "gather", "reduce", "scatter")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the data that moves as a whole.

    Parameters
    ----------
    name : int
        Number of the chunk in schedules.
    start : int
        Rank that has the chunk at the start.
    wanted_by : frozenset of int
        Ranks that need the chunk, without `start`.
    """

    name: int
    start: int
    wanted_by: frozenset[int]


@dataclass(frozen=True, slots=True)
class Problem:
    """Chunks to move; the collectives of `BACKWARDS` are stated as their reversed collective.

    Parameters
    ----------
    kind : str
        Kind of the collective.
    n_ranks, n_parts : int
        Number of ranks, and number of parts into which each block or vector is cut.
    root : int
        Root of a rooted collective.
    chunks : tuple of Chunk
        All chunks that move.
    """

    kind: str
    n_ranks: int
    n_parts: int
    root: int
    chunks: tuple[Chunk, ...]

    @property
    def is_backwards(self) -> bool:
        """Return whether the schedule of `kind` is the reversed schedule of the chunks."""
        return self.kind in BACKWARDS

    @property
    def rotates(self) -> bool:
        """Return whether the chunks stay the same if every rank becomes the next one."""
        return BACKWARDS.get(self.kind, self.kind) in ("allgather", "alltoall")

    def turn(self, chunk: Chunk, by: int) -> Chunk:
        """Return the chunk that replaces `chunk` if all rank numbers are shifted by `by`."""
        if by == 0:
            return chunk
        n = self.n_ranks
        start = (chunk.start + by) % n
        if BACKWARDS.get(self.kind, self.kind) == "alltoall":
            (dest,) = chunk.wanted_by
            name = start * n + (dest + by) % n
        else:
            name = chunk.name // n * n + start
        return Chunk(name, start, frozenset((rank + by) % n for rank in chunk.wanted_by))


def state_problem(kind: str, n_ranks: int, n_parts: int, root: int) -> Problem:
    """Return the problem of a collective; an allreduce has the chunks of an allgather.

    Part i of the block of rank r is chunk ``i * n_ranks + r``. In an alltoall, the block of
    rank a for rank b is chunk ``a * n_ranks + b``. Part i of a vector is chunk i.

    Examples
    --------
    >>> problem = state_problem("scatter", 3, 1, 0)
    >>> [(chunk.name, chunk.start, sorted(chunk.wanted_by)) for chunk in problem.chunks]
    [(1, 0, [1]), (2, 0, [2])]
    """
    moved = BACKWARDS.get(kind, kind)
    everyone = frozenset(range(n_ranks))
    ranks, parts = range(n_ranks), range(n_parts)
    if moved == "bcast":
        chunks = [Chunk(part, root, everyone - {root}) for part in parts]
    elif moved == "scatter":
        others = [(part, rank) for part in parts for rank in ranks if rank != root]
        chunks = [Chunk(part * n_ranks + rank, root, frozenset({rank})) for part, rank in others]
    elif moved == "alltoall":
        pairs = [(a, b) for a in ranks for b in ranks if a != b]
        chunks = [Chunk(a * n_ranks + b, a, frozenset({b})) for a, b in pairs]
    else:
        blocks = [(part, rank) for part in parts for rank in ranks]
        chunks = [Chunk(part * n_ranks + rank, rank, everyone - {rank}) for part, rank in blocks]
    return Problem(kind, n_ranks, n_parts, root, tuple(chunks))


def turned_around(rounds: Rounds) -> Rounds:
    """Return the reversed schedule, in which every message goes from its receiver to its sender."""
    return tuple(
        tuple(sorted((dest, source, chunks) for source, dest, chunks in messages))
        for messages in reversed(rounds)
    )
