"""Causes of the time that a program spends in blocking collectives, from the times of its calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from collplan.watch.sentences import call_name
from collplan.watch.trace import ProgramTrace, TracedCall

if TYPE_CHECKING:
    from collplan.deciding.gains import Gain

SMALL_BYTES: Final = 4096
"""Largest size of a call in bytes that is said to be small, and of several that are fused."""
SHORTEST_RUN: Final = 8
"""Smallest number of calls that follow each other and are said to be many."""
WHOLE: Final = "the whole program"
LATE_SHARE: Final = 0.75
"""Smallest share of a call site's waiting for which one rank must be the latest."""
_FROM_ROOT: Final = frozenset({"bcast", "scatter", "scatterv"})
"""Collectives in which ranks wait for the root only."""


@dataclass(frozen=True)
class Meeting:
    """One collective, with the calls of all ranks of its communicator.

    Parameters
    ----------
    calls : tuple of TracedCall
        Calls in the order of the ranks in the communicator.
    """

    calls: tuple[TracedCall, ...]

    @property
    def first(self) -> TracedCall:
        """The call of the first rank, for what all ranks have in common."""
        return self.calls[0]

    @cached_property
    def latest(self) -> TracedCall:
        """The call for which the other ranks wait: the root's, or the one that came last."""
        if self.first.name in _FROM_ROOT:
            for call in self.calls:
                if call.member == self.first.root:
                    return call
        return max(self.calls, key=lambda call: call.enter_s)

    def waiting_of(self, call: TracedCall) -> float:
        """Return the time for which a rank has waited for the latest one, in seconds."""
        has_waited = call.leave_s > self.latest.enter_s > call.enter_s
        return self.latest.enter_s - call.enter_s if has_waited else 0.0

    @cached_property
    def waiting_s(self) -> float:
        """Mean over the ranks of the time for which they have waited, in seconds."""
        return fmean(self.waiting_of(call) for call in self.calls)

    @cached_property
    def seconds(self) -> float:
        """Mean over the ranks of the time in the call, in seconds."""
        return fmean(call.seconds for call in self.calls)

    @property
    def transfer_s(self) -> float:
        """Mean over the ranks of the time in the call without waiting, in seconds."""
        return self.seconds - self.waiting_s

    @property
    def lead_s(self) -> float:
        """Time by which the latest rank came after the last of the others, in seconds."""
        others = [call.enter_s for call in self.calls if call is not self.latest]
        return max(0.0, self.latest.enter_s - max(others, default=self.latest.enter_s))


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of time in collectives.

    Parameters
    ----------
    kind : str
        ``late_rank``, ``many_small``, ``serialized``, ``placement`` or ``algorithm``.
    site : str
        Call site; `WHOLE` if it is the whole program.
    seconds : float
        Time that is due to the cause, as a mean over the ranks that it holds up, in seconds.
    remedy : str
        Change that would help.
    gain_s : float
        Time that it would save, in seconds.
    """

    kind: str
    site: str
    seconds: float
    remedy: str
    gain_s: float


def meetings_of(trace: ProgramTrace) -> list[Meeting]:
    """Return the collectives of which all ranks have a call, in the order of their ends."""
    found: dict[tuple[int, int], list[TracedCall]] = defaultdict(list)
    for calls in trace.ranks:
        for call in calls:
            found[call.key, call.order].append(call)
    meetings = [
        Meeting(tuple(sorted(calls, key=lambda call: call.member)))
        for calls in found.values()
        if len({call.member for call in calls}) == calls[0].size == len(calls)
    ]
    return sorted(meetings, key=lambda one: max(call.leave_s for call in one.calls))


def causes_of(meetings: Sequence[Meeting]) -> list[Cause]:
    """Return the causes that the times of calls show, costliest first.

    Parameters
    ----------
    meetings : sequence of Meeting
        All collectives of a program, see `meetings_of`.
    """
    small = [run for run in _runs(meetings, _may_fuse) if len(run) >= SHORTEST_RUN]
    taken = {id(one) for run in small for one in run}
    left = [one for one in meetings if id(one) not in taken]
    serial = [run for run in _runs(left, _may_overlap) if len(run) > 1]
    taken = {id(one) for run in serial for one in run}
    left = [one for one in left if id(one) not in taken]
    found = [*_many_small(small), *_serialized(serial), *_late(left)]
    return sorted(found, key=lambda cause: -cause.seconds)


def _runs(meetings: Sequence[Meeting], fits: Any) -> list[list[Meeting]]:
    """Return runs of collectives that follow each other at once and fit to each other."""
    runs: list[list[Meeting]] = []
    for one in meetings:
        if runs and fits(runs[-1][-1], one) and _is_next(runs[-1][-1], one):
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _is_next(before: Meeting, after: Meeting) -> bool:
    """Return whether each rank does less between two collectives than ranks do in them."""
    left = {call.rank: call.leave_s for call in before.calls}
    gaps = [call.enter_s - left[call.rank] for call in after.calls if call.rank in left]
    return bool(gaps) and 0 <= max(gaps) <= max(before.seconds, after.seconds)


def _may_fuse(before: Meeting, after: Meeting) -> bool:
    one, other = before.first, after.first
    return (
        (one.key, one.name, one.root) == (other.key, other.name, other.root)
        and 0 <= one.n_bytes <= SMALL_BYTES
        and 0 <= other.n_bytes <= SMALL_BYTES
        and one.name != "barrier"
    )


def _may_overlap(before: Meeting, after: Meeting) -> bool:
    one, other = before.first, after.first
    return one.name == other.name == "bcast" and (one.key, one.root) != (other.key, other.root)


def _by_site(runs: Iterable[list[Meeting]]) -> dict[str, list[list[Meeting]]]:
    found: dict[str, list[list[Meeting]]] = defaultdict(list)
    for run in runs:
        found[run[0].first.site].append(run)
    return found


def _many_small(runs: Iterable[list[Meeting]]) -> Iterable[Cause]:
    for site, alike in _by_site(runs).items():
        seconds = gain_s = 0.0
        for run in alike:
            spent_s = sum(one.seconds for one in run)
            n_fused = max(1, ceil(sum(one.first.n_bytes for one in run) / SMALL_BYTES))
            seconds += spent_s
            gain_s += spent_s * max(0.0, 1 - n_fused / len(run))
        n_calls, one = sum(map(len, alike)), alike[0][0].first
        remedy = (
            f"{n_calls} calls of {call_name(one.name)} of at most {SMALL_BYTES} bytes follow each "
            "other at once: fuse those that do not depend on each other into calls with more "
            "elements"
        )
        yield Cause("many_small", site, seconds, remedy, gain_s)


def _serialized(runs: Iterable[list[Meeting]]) -> Iterable[Cause]:
    for site, alike in _by_site(runs).items():
        seconds = sum(one.seconds for run in alike for one in run)
        # Ranks wait for roots that are still inside the call before.
        gain_s = sum(one.waiting_s for run in alike for one in run[1:])
        remedy = (
            f"{sum(map(len, alike))} broadcasts from different roots follow each other at once: if "
            "they do not depend on each other, start them by MPI_Ibcast and wait for all, or call "
            "MPI_Allgather"
        )
        yield Cause("serialized", site, seconds, remedy, gain_s)


def _late(meetings: Iterable[Meeting]) -> Iterable[Cause]:
    by_site: dict[str, list[Meeting]] = defaultdict(list)
    for one in meetings:
        by_site[one.first.site].append(one)
    for site, alike in by_site.items():
        waits: dict[int, list[Meeting]] = defaultdict(list)
        for one in alike:
            waits[one.latest.rank].append(one)
        total_s = sum(one.waiting_s for one in alike)
        rank, late = max(waits.items(), key=lambda item: sum(one.waiting_s for one in item[1]))
        seconds = sum(one.waiting_s for one in late)
        if total_s <= 0 or seconds < LATE_SHARE * total_s:
            continue
        remedy = (
            f"the other ranks wait for rank {rank}: give it less work before this call, or start "
            "the call by its non-blocking form and compute meanwhile"
        )
        # The late rank itself does not wait: this is the mean over the others.
        held_up_s = sum(one.waiting_s * len(one.calls) / (len(one.calls) - 1) for one in late)
        yield Cause("late_rank", site, held_up_s, remedy, sum(one.lead_s for one in late))


def placement_causes(
    meetings: Sequence[Meeting], trace: ProgramTrace, usable: Iterable[int]
) -> list[Cause]:
    """Return the cause that ranks share processors while others have no rank, if they do.

    Parameters
    ----------
    meetings : sequence of Meeting
        All collectives of the program.
    trace : ProgramTrace
        Trace with the processors of the ranks.
    usable : iterable of int
        Processors of the host that the program could use.
    """
    alike: dict[frozenset[int], list[int]] = defaultdict(list)
    for rank, processors in enumerate(trace.processors):
        alike[processors].append(rank)
    used, total = frozenset[int]().union(*alike), {*usable}
    crowded = {mask: len(ranks) / len(mask) for mask, ranks in alike.items() if mask}
    n_free = len(total - used)
    if not n_free or max(crowded.values(), default=0.0) <= 1:
        return []
    mask = max(crowded, key=lambda one: crowded[one])
    spread = max(1.0, len(trace.processors) / len(total | used))
    seconds = sum(one.seconds for one in meetings)
    ranks = ", ".join(map(str, alike[mask]))
    where = ", ".join(map(str, sorted(mask)))
    remedy = (
        f"ranks {ranks} share processors {where}, and {n_free} processors have no rank: bind each "
        "rank to a processor of its own, as by mpiexec -bind-to core (MPICH) or --bind-to core "
        "(Open MPI)"
    )
    return [Cause("placement", WHOLE, seconds, remedy, seconds * (1 - spread / crowded[mask]))]


def row_of(name: str, ranks: int, n_bytes: int) -> tuple[str, int, int]:
    """Return the key of calls whose sizes have equal numbers of bits, as statistics have rows."""
    return name, ranks, max(0, n_bytes).bit_length()


def waiting_by_row(meetings: Iterable[Meeting]) -> dict[tuple[str, int, int], float]:
    """Return the share of the time in calls in which ranks wait, by `row_of`."""
    seconds: dict[tuple[str, int, int], float] = defaultdict(float)
    waiting: dict[tuple[str, int, int], float] = defaultdict(float)
    for one in meetings:
        key = row_of(one.first.name, one.first.size, one.first.n_bytes)
        seconds[key] += one.seconds
        waiting[key] += one.waiting_s
    return {key: waiting[key] / spent_s for key, spent_s in seconds.items() if spent_s > 0}


def algorithm_causes(
    meetings: Sequence[Meeting], gains: Iterable[Gain], n_ranks: int
) -> list[Cause]:
    """Return the calls that a plan would make faster, by the model, as causes.

    Parameters
    ----------
    meetings : sequence of Meeting
        All collectives of a program.
    gains : iterable of Gain
        Speed-ups of plans for the rows of its statistics.
    n_ranks : int
        Number of ranks of the program.
    """
    found = []
    for gain in gains:
        key = row_of(gain.collective, gain.ranks, gain.most_bytes)
        alike = [
            one
            for one in meetings
            if row_of(one.first.name, one.first.size, one.first.n_bytes) == key
        ]
        if gain.plan is None or gain.factor is None or not alike:
            continue
        sites: dict[str, float] = defaultdict(float)
        for one in alike:
            sites[one.first.site] += one.transfer_s
        seconds = sum(sites.values())
        remedy = (
            f"by the model, the plan {gain.plan} is {gain.factor:.2f} times as fast as the MPI's "
            f"own algorithm: collplan tune -n {n_ranks} --collectives {gain.collective} -o "
            "table.yaml"
        )
        site = max(sites, key=lambda one: sites[one])
        found.append(Cause("algorithm", site, seconds, remedy, seconds * (1 - 1 / gain.factor)))
    return found
