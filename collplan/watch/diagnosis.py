"""Findings about calls that do not complete: who is inside, who is missing, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from collplan.watch.area import STARTED, UNKNOWN, SeenCall, SeenComm, SeenWait, WatchedRank

COMPARED: Final[dict[str, Callable[[SeenCall], object]]] = {
    "function": lambda call: call.name,
    "root": lambda call: call.root,
    "size": lambda call: call.n_bytes,
    "datatype": lambda call: call.element,
    "operation": lambda call: call.op,
}
"""Properties in which the calls of all ranks must agree, in the order in which they are named."""
_UNKNOWN_VALUES: Final = ("", UNKNOWN)


@dataclass(frozen=True, slots=True)
class Inside:
    """A rank inside a call.

    Parameters
    ----------
    rank : WatchedRank
    call : SeenCall
        The collective; if it does not block, the rank waits for its request.
    wait : SeenWait or None
        The call that waits for a request; None in a blocking collective.
    """

    rank: WatchedRank
    call: SeenCall
    wait: SeenWait | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A property in which ranks differ in one call.

    Parameters
    ----------
    what : str
        Name of the property, a key of `COMPARED`.
    order : int
        Number of the call on the communicator.
    calls : tuple of (WatchedRank, SeenCall)
        Calls of the ranks.
    """

    what: str
    order: int
    calls: tuple[tuple[WatchedRank, SeenCall], ...]


@dataclass(frozen=True, slots=True)
class Hang:
    """A call on a communicator that does not complete.

    Parameters
    ----------
    comm : SeenComm
    order : int
        Number of the call on the communicator.
    members : tuple of WatchedRank
        Ranks of the communicator that are known.
    inside : tuple of Inside
    missing : tuple of WatchedRank
        Ranks that have not called it.
    passed : tuple of WatchedRank
        Ranks that have left it, or are not inside it any more.
    difference : Mismatch or None
        First property in which the ranks differ in this call, or in an earlier one.
    crossed : tuple of (WatchedRank, WatchedRank, SeenComm)
        Pairs of a rank inside this call and a missing rank, if the latter waits for the former in
        a call on another communicator.
    """

    comm: SeenComm
    order: int
    members: tuple[WatchedRank, ...]
    inside: tuple[Inside, ...]
    missing: tuple[WatchedRank, ...]
    passed: tuple[WatchedRank, ...]
    difference: Mismatch | None
    crossed: tuple[tuple[WatchedRank, WatchedRank, SeenComm], ...] = field(default=())

    @property
    def n_elsewhere(self) -> int:
        """Number of ranks of the communicator of which nothing is known, as on other nodes."""
        return self.comm.size - len(self.members)


def hangs_of(ranks: Sequence[WatchedRank], stuck: Iterable[WatchedRank]) -> list[Hang]:
    """Return the calls that do not complete, the first one of each communicator.

    Parameters
    ----------
    ranks : sequence of WatchedRank
        All ranks of the node.
    stuck : iterable of WatchedRank
        Those that have neither entered nor left a call for a long time.
    """
    found: dict[int, list[tuple[SeenComm, Inside]]] = {}
    for one in stuck:
        for comm, inside in _inside(one, ranks):
            found.setdefault(comm.key, []).append((comm, inside))
    return [_hang(ranks, entries) for _, entries in sorted(found.items())]


def difference_at(ranks: Iterable[WatchedRank], key: int, order: int) -> Mismatch | None:
    """Return the first property in which ranks differ in a call; None if they are the same.

    Parameters
    ----------
    ranks : iterable of WatchedRank
    key, order : int
        Key of the communicator, and the number of the call on it.
    """
    pairs = [(rank, rank.call_at(key, order)) for rank in ranks]
    calls = tuple((rank, call) for rank, call in pairs if call is not None)
    for what, value in COMPARED.items():
        known = tuple(pair for pair in calls if value(pair[1]) not in _UNKNOWN_VALUES)
        if len({value(call) for _, call in known}) > 1:
            return Mismatch(what, order, known)
    return None


def first_difference(
    ranks: Sequence[WatchedRank], key: int, up_to: int | None = None
) -> Mismatch | None:
    """Return the earliest difference on a communicator that the records of the ranks have.

    Parameters
    ----------
    ranks : sequence of WatchedRank
    key : int
        Key of the communicator.
    up_to : int, optional
        Number of the last call to compare.
    """
    orders = {
        call.order
        for rank in ranks
        for call in rank.calls
        if (comm := rank.comm_of(call)) is not None and comm.key == key
    }
    for order in sorted(orders):
        if up_to is None or order <= up_to:
            found = difference_at(ranks, key, order)
            if found is not None:
                return found
    return None


def _inside(rank: WatchedRank, ranks: Sequence[WatchedRank]) -> Iterator[tuple[SeenComm, Inside]]:
    """Yield the collectives in which a rank waits, with their communicators."""
    for call in rank.inside:
        comm = rank.comm_of(call)
        if comm is not None:
            yield comm, Inside(rank, call)
    if not rank.wait.is_inside:
        return
    # It may wait for any request. It waits for a collective if other ranks have not called it.
    for call in rank.calls:
        comm = rank.comm_of(call)
        if call.state == STARTED and comm is not None:
            others = [member for one in ranks if (member := one.member(comm.key)) is not None]
            is_late = any(member.n_calls < call.order for member in others)
            if is_late or difference_at(ranks, comm.key, call.order) is not None:
                yield comm, Inside(rank, call, rank.wait)
                return


def _hang(ranks: Sequence[WatchedRank], entries: list[tuple[SeenComm, Inside]]) -> Hang:
    order = min(one.call.order for _, one in entries)
    comm = entries[0][0]
    inside = [one for _, one in entries if one.call.order == order]
    known = {one.rank.rank for one in inside}
    # Ranks that have come later wait in the same call.
    inside += [
        one
        for rank in ranks
        if rank.rank not in known
        for at, one in _inside(rank, ranks)
        if (at.key, one.call.order) == (comm.key, order)
    ]
    inside.sort(key=lambda one: one.rank.rank)
    within = {one.rank.rank for one in inside}
    pairs = [(rank, rank.member(comm.key)) for rank in ranks]
    members = tuple(rank for rank, member in pairs if member is not None)
    missing = tuple(rank for rank, member in pairs if member and member.n_calls < order)
    passed = tuple(
        rank
        for rank, member in pairs
        if member and member.n_calls >= order and rank.rank not in within
    )
    difference = first_difference(members, comm.key, order)
    crossed = tuple(_crossed(ranks, inside, missing))
    return Hang(comm, order, members, tuple(inside), missing, passed, difference, crossed)


def _crossed(
    ranks: Sequence[WatchedRank], inside: Sequence[Inside], missing: Sequence[WatchedRank]
) -> Iterator[tuple[WatchedRank, WatchedRank, SeenComm]]:
    """Yield missing ranks that wait for a rank inside the call, on another communicator."""
    for late in missing:
        for comm, other in _inside(late, ranks):
            for one in inside:
                member = one.rank.member(comm.key)
                if member is not None and member.n_calls < other.call.order:
                    yield one.rank, late, comm
