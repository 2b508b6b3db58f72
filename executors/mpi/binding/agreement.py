"""Check, within a time limit, that all ranks bind the same plan."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.errors import BindError, name_ranks
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.planner.plan.plan import Plan
from collplan.specs.errors import printable

DOING: Final = "bind the plan"
_SAYINGS: Final = {
    "dtype": ("binds buffers of", "buffers"),
    "operation": ("reduces by", "operations"),
}
_NOTHING: Final = 2**63 - 1
"""Value that a rank without a value of its own contributes to a minimum.

It is the largest signed number, because MPICH 4.0 and Open MPI 4.1 compare unsigned numbers as
if they were signed, https://github.com/pmodels/mpich/issues/6083 and
https://github.com/open-mpi/ompi/issues/10648.
"""

ASPECTS: Final = "plan", "whole plan", "dtype", "operation"
"""Names of the values that must be equal on all ranks.

The values are a digest of the properties that the programs of all ranks have in common, a digest of
the plan of all ranks, the dtype of the buffers, and the operation of reductions.
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """Values that one rank contributes to an agreement.

    Parameters
    ----------
    limit_s : float or None
        Time limit for the arrival of other ranks in seconds; None for no limit.
    error : Exception or None
        Reason why this rank cannot bind the plan; None if it can. If there is an error, the
        fields below are not used.
    brought : sequence of int, str or None
        Values that must be equal on all ranks, in the order of `ASPECTS`; None for a value that
        this rank does not have.
    is_loaded : bool
        Whether compiled code is loaded already.
    shares_memory : bool
        Whether ranks of a node share memory, according to the plan or program of this rank.
    has_background : bool
        Whether this rank may have, or requires, a progress thread.
    """

    limit_s: float | None
    error: Exception | None = None
    brought: Sequence[int | str | None] = (None,) * len(ASPECTS)
    is_loaded: bool = True
    shares_memory: bool = False
    has_background: bool = False


@dataclass(frozen=True, slots=True)
class Agreement:
    """Result of an agreement of ranks that have the same plan.

    Parameters
    ----------
    is_loaded : bool
        Whether compiled code is loaded on all ranks.
    shares_memory, has_background : bool
        Whether the fields of `Claim` with these names are True on any rank.
    limit_s : float or None
        Time limit of this rank in seconds; infinity if only other ranks have a limit, None if no
        rank has one. If one rank has a limit, all ranks must take part in its checks.
    """

    is_loaded: bool
    shares_memory: bool
    has_background: bool
    limit_s: float | None


def agree(plan: Plan, comm: MPI.Intracomm, claim: Claim) -> Agreement:
    """Check that all ranks have the same plan; collective.

    Raises
    ------
    BindError
        On all ranks, if a rank cannot bind the plan, or if values of ranks differ.
    StallError
        If a rank does not arrive within the time limit. The job is then being aborted.
    """
    aspects = [_number(value) for value in claim.brought]
    culprit = comm.size if claim.error is None else comm.rank
    words = [culprit, claim.is_loaded, not claim.shares_memory, claim.limit_s is None]
    words.append(not claim.has_background)
    for value in aspects:
        words += [_NOTHING] * 2 if value is None else [value, _NOTHING - value]
    mine = np.array(words, dtype=np.int64)
    lowest = np.empty_like(mine)
    # This communicator is for messages of the program, so ranks do not listen on it.
    RollCall(comm, claim.limit_s, DOING, listens=False).wait(comm.Iallreduce(mine, lowest, MPI.MIN))
    culprit, is_loaded, is_unshared, is_unwatched, is_alone = (int(value) for value in lowest[:5])
    limit_s = None if is_unwatched else claim.limit_s or math.inf
    call = RollCall(comm, limit_s, DOING, listens=False)
    if culprit < comm.size:
        call.raise_first(culprit, claim.error)
    # The minimum of the differences to the largest number gives the maximum of the values.
    least, most = lowest[5::2], _NOTHING - lowest[6::2]
    differs = (least != most) & (least != _NOTHING)
    if differs.any():
        which = int(np.argmax(differs))
        brought = aspects[which], claim.brought[which]
        raise BindError(_dispute(plan, call, ASPECTS[which], *brought))
    return Agreement(bool(is_loaded), not is_unshared, not is_alone, limit_s)


def _number(value: int | str | None) -> int | None:
    if isinstance(value, str):
        value = int.from_bytes(blake2b(value.encode(), digest_size=7).digest(), "little")
    return None if value is None else value & _NOTHING


def _dispute(
    plan: Plan, call: RollCall, which: str, mine: int | None, words: int | str | None
) -> str:
    """Return a message that names a rank that differs from the majority; collective.

    The message is the same on all ranks.
    """
    spec = plan.origin.to_json() if plan.origin is not None else None
    brought: list[tuple[int | None, Any, str | None]] = call.gather((mine, words, spec))
    counts = Counter(value for value, _, _ in brought if value is not None)
    # Of equally frequent values, the value of the lowest rank is used, as it was counted first.
    usual = counts.most_common(1)[0][0]
    most = [rank for rank, (value, _, _) in enumerate(brought) if value == usual]
    odd = [rank for rank, (value, _, _) in enumerate(brought) if value not in (None, usual)]
    one, other = brought[odd[0]], brought[most[0]]
    if which in _SAYINGS:
        verb, noun = _SAYINGS[which]
        return (
            f"rank {odd[0]} {verb} {one[1]}, {name_ranks(most)} {other[1]}; "
            f"{noun} must be the same on all ranks"
        )
    difference = _first_difference(one[2], other[2])
    return (
        f"rank {odd[0]} binds a plan of digest {one[0]:016x}, {name_ranks(most)} one of "
        f"{other[0]:016x}{f' ({difference})' if difference else ''}; "
        "compile the same spec on all ranks"
    )


def _first_difference(one: str | None, other: str | None) -> str:
    """Return a description of the first field in which two specs differ."""
    if one is None or other is None:
        return "" if one == other else "one was imported, the other compiled from a spec"
    here, there = (dict(_fields(json.loads(text))) for text in (one, other))
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            return printable(f"{name} is {here.get(name)}, theirs {there.get(name)}")
    return ""


def _fields(value: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner in value.items():
        yield from _fields(inner, f"{name}.{key}" if name else str(key))
