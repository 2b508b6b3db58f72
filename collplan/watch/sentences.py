"""Sentences about calls that do not complete, for the user of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from collplan.executors.mpi.errors import name_ranks
from collplan.watch.area import INSIDE, UNKNOWN, WORLD, SeenCall, SeenComm, SeenWait, WatchedRank
from collplan.watch.diagnosis import Hang, Inside, Mismatch

ROOTED: Final = frozenset({"bcast", "reduce", "gather", "scatter", "gatherv", "scatterv"})
"""Collectives with a root."""
LARGE: Final = "_c"
"""End of the names of forms with large counts, which mpi4py calls."""
_CUT: Final = {"dist_graph_create_adj": "Dist_graph_create_adjacent"}
"""Names that do not fit into a record."""
SiteOf = Callable[[int, int], str]
"""Function from a process and a return address to the text of a call site."""


class Reporter:
    """Writer of reports.

    Parameters
    ----------
    site_of : callable
        Function from a process and a return address to the text of a call site.
    """

    def __init__(self, site_of: SiteOf) -> None:
        self._site_of = site_of
        self._now: Mapping[int, str] = {}

    def report(
        self,
        hang: Hang,
        seconds: float,
        doing: Mapping[int, str],
        idle_s: Mapping[int, float],
        now: Mapping[int, str],
    ) -> str:
        """Return the lines of a report.

        Parameters
        ----------
        hang : Hang
        seconds : float
            Time in seconds for which ranks have waited.
        doing : mapping of int to str
            Description of what each process does that is not inside the call.
        idle_s : mapping of int to float
            Time in seconds since each rank has entered or left a call.
        now : mapping of int to str
            Places in Python programs where processes are, as far as they are known.
        """
        self._now = now
        have = "has" if len(hang.inside) == 1 else "have"
        lines = [
            f"{len(hang.inside)} of the {hang.comm.size} ranks of {self.name_of(hang)} {have} "
            f"waited {seconds:.0f} s in call {hang.order} of this communicator:"
        ]
        lines += self._inside_lines(hang.inside)
        for ranks, verb in ((hang.missing, "not called"), (hang.passed, "left")):
            states = _grouped((self._state(one, doing, idle_s), one) for one in ranks)
            lines += [
                f"{ranks_text(alike)} {_has(alike)} {verb} it: each {state}"
                if len(alike) > 1
                else f"{ranks_text(alike)} {_has(alike)} {verb} it: it {state}"
                for state, alike in states.items()
            ]
        if hang.n_elsewhere:
            lines.append(f"{hang.n_elsewhere} of its ranks are not known on this node")
        if hang.difference is not None:
            lines.append(self.mismatch(hang.difference, hang.comm))
        lines += self._order_lines(hang)
        return "".join(
            f"collplan: {'' if number == 0 else '  '}{line}\n" for number, line in enumerate(lines)
        )

    def _order_lines(self, hang: Hang) -> list[str]:
        comms = {comm.key: self._comm_text(late, comm) for _, late, comm in hang.crossed}
        lines = []
        for key, name in comms.items():
            pairs = [(one, late) for one, late, comm in hang.crossed if comm.key == key]
            one, late = (ranks_text({rank.rank: rank for rank in side}.values())
                         for side in zip(*pairs, strict=True))  # fmt: skip
            lines.append(
                f"mismatch of the order: on this communicator, {one} must wait for {late}; on "
                f"{name}, {late} must wait for {one}"
            )
        return lines

    def mismatch(self, difference: Mismatch, comm: SeenComm) -> str:
        """Return a sentence about calls that differ in a property."""
        texts = _grouped(
            (self._property(difference.what, rank, call), rank) for rank, call in difference.calls
        )
        parts = [f"{text} on {ranks_text(ranks)}" for text, ranks in texts.items()]
        place = "MPI_COMM_WORLD" if comm.key == WORLD else "this communicator"
        return (
            f"mismatch of the {difference.what} in call {difference.order} of {place}: "
            f"{', '.join(parts)}"
        )

    def name_of(self, hang: Hang) -> str:
        """Return the name of the communicator of a call."""
        return self._comm_text(hang.inside[0].rank, hang.comm)

    def _comm_text(self, rank: WatchedRank, comm: SeenComm) -> str:
        own = rank.member(comm.key) or comm
        if own.key == WORLD:
            return "MPI_COMM_WORLD"
        if not own.made_by:
            return "a communicator whose creation was not seen"
        is_known = own.site and not rank.can_tell
        site = f" in {self._site_of(rank.pid, own.site)}" if is_known else ""
        return f"the communicator that {call_name(own.made_by)} made{site}"

    def _inside_lines(self, inside: Sequence[Inside]) -> list[str]:
        texts = _grouped((self._waiting_text(one), one.rank) for one in inside)
        return [
            f"{ranks_text(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {text}"
            for text, ranks in texts.items()
        ]

    def _waiting_text(self, one: Inside) -> str:
        text = self._call_text(one.rank, one.call)
        return text if one.wait is None else f"{self._wait_text(one.rank, one.wait)} after {text}"

    def _call_text(self, rank: WatchedRank, call: SeenCall) -> str:
        size = "" if call.n_bytes == UNKNOWN else f" of {call.n_bytes} bytes"
        is_rooted = call.name.removeprefix("I") in ROOTED
        root = f" from root {call.root}" if is_rooted and call.root != UNKNOWN else ""
        place = self._place(rank, call)
        return f"{call_name(call.name)}{size}{root}" + (f", called in {place}" if place else "")

    def _place(self, rank: WatchedRank, call: SeenCall) -> str:
        """Return the call site; empty if it is unknown."""
        is_inside = call.state == INSIDE and call.number == rank.calls[-1].number
        place = call.place or (self._now.get(rank.pid, "") if is_inside else "")
        return place or ("" if rank.can_tell else self._site_of(rank.pid, call.site))

    def _wait_text(self, rank: WatchedRank, wait: SeenWait) -> str:
        peer = f" with rank {wait.peer} of its communicator" if wait.peer >= 0 else ""
        tag = f", tag {wait.tag}" if wait.peer >= 0 and wait.tag >= 0 else ""
        site = self._now.get(rank.pid, "") if rank.can_tell else self._site_of(rank.pid, wait.site)
        return f"MPI_{wait.name.removesuffix(LARGE)}{peer}{tag}" + (
            f", called in {site}," if site else ""
        )

    def _state(
        self, rank: WatchedRank, doing: Mapping[int, str], idle_s: Mapping[int, float]
    ) -> str:
        seconds = idle_s.get(rank.pid, 0.0)
        found = doing.get(rank.pid, "")
        if found and rank.pid in self._now:
            found += f", at {self._now[rank.pid]}"
        since = f"{seconds:.0f} s"
        if rank.is_finalized:
            return f"has called MPI_Finalize, at least {since} ago"
        last = rank.calls[-1] if rank.calls else None
        has_ended = "ended" in found or "killed" in found
        if rank.inside and not has_ended:
            call = rank.inside[-1]
            comm = rank.comm_of(call)
            where = "" if comm is None else f", on {self._comm_text(rank, comm)}"
            return f"has waited {since} in {self._call_text(rank, call)}{where}"
        if rank.wait.is_inside and not has_ended:
            return f"has waited {since} in {self._wait_text(rank, rank.wait).rstrip(',')}"
        if last is None:
            return f"{found}; it has called no collective in {since}"
        within = "it was inside" if rank.inside else "its last collective was"
        return f"{found}; {within} {self._call_text(rank, last)}, {since} ago"

    def _property(self, what: str, rank: WatchedRank, call: SeenCall) -> str:
        texts = {
            "function": call_name(call.name),
            "root": f"root {call.root}",
            "size": f"{call.n_bytes} bytes",
            "datatype": call.element,
            "operation": call.op,
        }
        place = self._place(rank, call)
        return texts[what] + (f" in {place}" if place else "")


def _grouped(pairs: Iterable[tuple[str, WatchedRank]]) -> dict[str, list[WatchedRank]]:
    """Return the ranks of each text."""
    found: dict[str, list[WatchedRank]] = {}
    for text, rank in pairs:
        found.setdefault(text, []).append(rank)
    return found


def _has(ranks: Sequence[WatchedRank]) -> str:
    return "has" if len(ranks) == 1 else "have"


def call_name(name: str) -> str:
    """Return MPI's name of a function."""
    name = _CUT.get(name, name)
    return f"MPI_{name[0].upper()}{name[1:]}"


def ranks_text(ranks: Iterable[WatchedRank]) -> str:
    """Return ranks as text, such as ``ranks 0 to 3 and 5``."""
    numbers = [one.rank for one in ranks]
    return name_ranks(numbers, most=len(numbers))
