"""Counts of a vector collective that each rank knows, and the table of all ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.specs import COLLECTIVES, CollplanError

Ints = npt.NDArray[np.integer[Any]]

_ALIKE: Final = "; both must be equal"


@dataclass(frozen=True, slots=True, eq=False)
class RankCounts:
    """Counts that one rank passes to a collective, in a unit that all ranks share.

    Parameters
    ----------
    kind : str
        Kind of the collective, whose counts differ per rank.
    counts : ndarray of int64 or None
        Counts of all blocks: for gatherv and scatterv at the root only, for allgatherv and
        reduce_scatter on every rank. For alltoallv what this rank sends to each rank; None if it
        is in place.
    own : int or None
        Count of this rank's block, if the call has it in addition to the counts.
    received : ndarray of int64 or None
        For alltoallv, what this rank receives from each rank.
    root : int
        The root; 0 if there is none.
    """

    kind: str
    counts: Ints | None = None
    own: int | None = None
    received: Ints | None = None
    root: int = 0

    def digest(self, label: str = "") -> bytes:
        """Return 16 bytes that differ if the counts or the labels differ."""
        parts = [b"" if part is None else part.tobytes() for part in (self.counts, self.received)]
        words = f"{self.kind} {self.root} {self.own} {label} {len(parts[0])} "
        return hashlib.blake2b(words.encode() + b"".join(parts), digest_size=16).digest()


def counts_of_all(ranks: Sequence[RankCounts], unit: str = "elements") -> Ints:
    """Return the counts of a collective; for alltoallv with a row for every sender.

    Parameters
    ----------
    ranks : sequence of RankCounts
        Counts that all ranks passed.
    unit : str
        The noun for the unit in errors.

    Raises
    ------
    CollplanError
        If the counts of ranks do not fit; the message names the first two such ranks.

    Examples
    --------
    >>> here = np.array([3, 5])
    >>> counts_of_all([RankCounts("gatherv", here, own=3), RankCounts("gatherv", own=5)]).tolist()
    [3, 5]
    """
    for name in ("kind", "root"):
        told = [getattr(one, name) for one in ranks]
        for rank, value in enumerate(told):
            if value != told[0]:
                raise CollplanError(
                    f"{name}: rank 0 calls with {told[0]}, rank {rank} with {value}{_ALIKE}"
                )
    for rank, one in enumerate(ranks):
        for part in (one.counts, one.received):
            if part is not None and len(part) != len(ranks):
                raise CollplanError(
                    f"counts: rank {rank} has {len(part)}, there are {len(ranks)} ranks; "
                    "give one for every rank"
                )
    is_pairwise = COLLECTIVES[ranks[0].kind].is_pairwise
    return _rows(ranks, unit) if is_pairwise else _blocks(ranks, unit)


def _rows(ranks: Sequence[RankCounts], unit: str) -> Ints:
    received = np.array([_known(one.received) for one in ranks])
    # In place, a rank sends as much as it receives.
    sent = np.array([_known(one.received if one.counts is None else one.counts) for one in ranks])
    wrong = np.argwhere(sent != received.T)
    if len(wrong):
        sender, receiver = wrong[0].tolist()
        raise CollplanError(
            f"counts: rank {sender} sends {sent[sender, receiver]} {unit} to rank {receiver}, "
            f"which receives {received[receiver, sender]} from it{_ALIKE}"
        )
    return sent


def _known(counts: Ints | None) -> Ints:
    if counts is None:
        raise CollplanError("counts: alltoallv needs what each rank receives; give it")
    return counts


def _blocks(ranks: Sequence[RankCounts], unit: str) -> Ints:
    kind = ranks[0].kind
    traits = COLLECTIVES[kind]
    candidates = [ranks[0].root] if traits.is_rooted else range(len(ranks))
    knowing = [(rank, ranks[rank].counts) for rank in candidates if ranks[rank].counts is not None]
    if not knowing:
        if traits.is_rooted or any(one.own is None for one in ranks):
            raise CollplanError(f"counts: no rank has those of all blocks; {kind} needs them")
        return np.array([one.own for one in ranks], np.int64)
    first, counts = knowing[0]
    assert counts is not None
    for rank, others in knowing[1:]:
        assert others is not None
        wrong = np.flatnonzero(counts != others)
        if len(wrong):
            block = int(wrong[0])
            raise CollplanError(
                f"counts: rank {first} has {counts[block]} {unit} for the block of rank {block}, "
                f"rank {rank} has {others[block]}{_ALIKE}"
            )
    verb = "receives" if traits.sends_blocks else "sends"
    for rank, one in enumerate(ranks):
        if one.own is not None and one.own != counts[rank]:
            raise CollplanError(
                f"counts: rank {rank} {verb} {one.own} {unit}, rank {first} has "
                f"{counts[rank]} for its block{_ALIKE}"
            )
    return counts
