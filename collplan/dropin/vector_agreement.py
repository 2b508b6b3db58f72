"""Agreement on counts that differ per rank: by a digest, in each call that may run by a plan."""

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
UNREADABLE: Final = "a rank's arguments are not such as plans know"
DIFFERENT: Final = "ranks name different operations"
ELSEWHERE: Final = "the operation or datatype of another rank is not one that plans know"
_WORDS: Final = Struct("16sQQQ")
"""Words that ranks add up: digest, bytes, whether one is unable, whether the operation commutes."""
FREE: Final = 8
"""Meetings in a row that may be in vain before ranks meet in fewer calls."""
MOST_LEFT: Final = 256
"""Most calls that run natively between two meetings."""


@dataclass(slots=True)
class Backoff:
    """Meetings about calls of one kind, and whether they were worth it; the same on all ranks.

    Where counts change with every call, or the table says native, ranks would meet in vain.
    After `FREE` such meetings in a row, they meet in two calls in a row, of which the second
    may have the counts of the first, then run 2 calls without a meeting; then 4, and so on. A
    meeting that finds a plan, or counts of an earlier call, starts anew.
    """

    has_met: bool = False
    n_in_vain: int = 0
    n_left: int = 0
    why: str = ""

    def why_not_now(self) -> str | None:
        """Return why a call runs natively without a meeting; None if ranks are to meet."""
        if not self.n_left:
            return None
        self.n_left -= 1
        return self.why

    def note(self, route: Route, *, is_new: bool) -> None:
        """Note what a meeting has led to, and whether the counts were new."""
        if route.native is not None and (is_new or route.wanted is None):
            # The first counts of all may come again.
            if self.has_met or route.wanted is None:
                self.note_in_vain(route.row.why)
        else:
            self.n_in_vain = 0
        self.has_met = True

    def note_in_vain(self, why: str) -> None:
        """Note that a meeting has led to a native call, for a reason in words."""
        self.has_met, self.why = True, why
        self.n_in_vain += 1
        n_pairs, is_first = divmod(self.n_in_vain - FREE, 2)
        if n_pairs > 0 and not is_first:
            self.n_left = min(2**n_pairs, MOST_LEFT)


def agree_on_counts(
    comm: MPI.Intracomm, arguments: VectorArguments | None, kind: str, root: int, op: str | None
) -> VectorCall | str:
    """Return the call as all ranks see it; collective.

    Ranks add up digests of what each knows. The sum tells all of them whether these are the
    counts of an earlier call, on every rank.

    Parameters
    ----------
    comm : MPI.Intracomm
        For the ranks' meetings.
    arguments : VectorArguments or None
        This rank's; None if they cannot be read.
    kind, root, op : object
        The call's.

    Returns
    -------
    VectorCall or str
        Why the call is native, in words, which may differ from rank to rank.
    """
    traits = COLLECTIVES[kind]
    element = None if arguments is None else arguments.element
    mine = VectorCall(kind, 0, root, op, element)
    reason = UNREADABLE if arguments is None else None
    if reason is None and traits.has_op:
        reason = mine.why_not_reduced()
    words = bytearray(_WORDS.size)
    if arguments is None or reason is not None:
        _WORDS.pack_into(words, 0, bytes(16), 0, 1, 0)
    else:
        digest = arguments.counts.digest(f"{comm.rank} {op} {element}")
        _WORDS.pack_into(words, 0, digest, arguments.n_bytes, 0, bool(mine.commutes))
    combine(comm, [words, MPI.UINT64_T])
    digest, n_bytes, n_unable, n_commuting = _WORDS.unpack(words)
    if n_unable or arguments is None:
        return reason or ELSEWHERE
    if n_commuting not in (0, comm.size):
        return DIFFERENT
    n_blocks = comm.size**2 if traits.is_pairwise else comm.size
    return VectorCall(kind, -(-n_bytes // n_blocks), root, op, element, digest, arguments.counts)
