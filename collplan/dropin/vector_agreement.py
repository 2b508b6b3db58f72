"""Agreement of all ranks on the counts of vector collectives, by digests of the counts."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from mpi4py import MPI

from collplan.dropin.agreement import combine
from collplan.dropin.calls import VectorCall
from collplan.dropin.routes import Route
from collplan.dropin.vector_arguments import VectorArguments
from collplan.specs import COLLECTIVES

CHANGING: Final = "counts change from call to call"
DIFFERENT: Final = "ranks name different operations"
ELSEWHERE: Final = "another rank has an operation, a datatype or buffers that plans do not take"
OVERLAP: Final = "send and receive buffers overlap"
_WORDS: Final = Struct("16sQQQ")
"""Format of the words that are summed over all ranks.

The words are a digest, a number of bytes, the number of ranks that cannot run a plan, and the
number of ranks whose operation is commutative.
"""
FREE: Final = 8
"""Number of consecutive meetings in vain after which ranks no longer meet in every call."""
MOST_LEFT: Final = 256
"""Largest number of calls without a meeting between two pairs of meetings."""


@dataclass(slots=True)
class Backoff:
    """Exponential backoff of the meetings for calls of one kind, with equal state on all ranks.

    A meeting is in vain if it leads to a native call, for example because counts change with
    every call, or because the table chooses native. After `FREE` consecutive meetings in vain,
    ranks meet only in pairs of calls, as the second call may have the counts of the first. Between
    pairs, 2 calls run without a meeting, then 4, and so on up to `MOST_LEFT`. A meeting that finds
    a plan or the counts of an earlier call resets the backoff.

    Parameters
    ----------
    has_met : bool
        Whether ranks have met before.
    n_in_vain : int
        Number of consecutive meetings in vain.
    n_left : int
        Number of calls until the next meeting.
    why : str
        Reason why the last meeting was in vain, as shown to users.
    """

    has_met: bool = False
    n_in_vain: int = 0
    n_left: int = 0
    why: str = ""

    def why_not_now(self) -> str | None:
        """Return the reason why a call runs without a meeting; None if ranks must meet."""
        if not self.n_left:
            return None
        self.n_left -= 1
        return self.why

    def note(self, route: Route, *, is_new: bool) -> None:
        """Record the route that a meeting has found, and whether the counts were new."""
        if route.native is not None and (is_new or route.wanted is None):
            # The first meeting is not in vain, as later calls may repeat its counts.
            if self.has_met or route.wanted is None:
                self.note_in_vain(route.row.why)
        else:
            self.n_in_vain = 0
        self.has_met = True

    def note_in_vain(self, why: str) -> None:
        """Record a meeting in vain, and the reason why its call is native."""
        self.has_met, self.why = True, why
        self.n_in_vain += 1
        n_pairs, is_first = divmod(self.n_in_vain - FREE, 2)
        if n_pairs > 0 and not is_first:
            self.n_left = min(2**n_pairs, MOST_LEFT)


def agree_on_counts(
    comm: MPI.Intracomm, arguments: VectorArguments, kind: str, root: int, op: str | None
) -> VectorCall | str:
    """Return the signature of a call whose counts differ per rank; collective.

    The digests of the counts that each rank knows are summed over all ranks. If no rank's counts
    have changed since an earlier call, the sum is equal to that of the earlier call.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator for the reduction.
    arguments : VectorArguments
        Arguments of this rank.
    kind : str
        Kind of the collective.
    root : int
        Root; 0 if the collective has none.
    op : str or None
        Name of the operation; None if the call has no operation, or plans do not support it.

    Returns
    -------
    VectorCall or str
        Signature of the call, or the reason why it is native, which may differ between ranks.
    """
    traits = COLLECTIVES[kind]
    element = arguments.element
    own_call = VectorCall(kind, 0, root, op, element)
    reason = own_call.why_not_reduced() if traits.has_op else None
    if reason is None and arguments.overlap:
        reason = OVERLAP
    words = bytearray(_WORDS.size)
    if reason is not None:
        _WORDS.pack_into(words, 0, bytes(16), 0, 1, 0)
    else:
        digest = arguments.counts.digest(f"{comm.rank} {op} {element}")
        _WORDS.pack_into(words, 0, digest, arguments.n_bytes, 0, bool(own_call.commutes))
    combine(comm, [words, MPI.UINT64_T])
    digest, n_bytes, n_unable, n_commuting = _WORDS.unpack(words)
    if n_unable:
        return reason or ELSEWHERE
    if n_commuting not in (0, comm.size):
        return DIFFERENT
    n_blocks = comm.size**2 if traits.is_pairwise else comm.size
    return VectorCall(kind, -(-n_bytes // n_blocks), root, op, element, digest, arguments.counts)
