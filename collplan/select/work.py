"""Work of the phases of a plan: times for which they hold cores, lanes, ports and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.plan.assembly import RankPlaces
from collplan.select.cuts import Cut
from collplan.specs import Machine

NOT_HIDDEN: Final = 0.5
"""Share of a segmented phase's time that does not overlap with other phases."""
WINDOW: Final = 0.75
"""Number of latencies for which each further segment waits, since few requests are in flight."""


@dataclass(frozen=True, eq=False)
class HeldResources:
    """Numbers of the places that messages and steps hold, of all kinds together.

    A place is a core, a port or a lane at either end, or a node's memory. If only some ranks
    are considered, all places of other ranks of a kind have one number, of which no time is known.

    Parameters
    ----------
    core, out_port, in_port : ndarray of int64, shape (n_ranks,)
        Numbers of the places of every rank.
    out_lane, in_lane : ndarray of int64, shape (n_nodes * n_lanes,)
        Numbers of the lanes of every node.
    memory : ndarray of int64, shape (n_nodes,)
        Number of the memory of every node.
    is_core, is_port, is_lane, is_known : ndarray of bool, shape (n_places,)
        Masks of cores, of ports, of lanes, and of places of the ranks that are considered.
    """

    core: Ints
    out_port: Ints
    in_port: Ints
    out_lane: Ints
    in_lane: Ints
    memory: Ints
    is_core: Bools
    is_port: Bools
    is_lane: Bools
    is_known: Bools

    @classmethod
    def of(cls, machine: Machine, ranks: Sequence[int] | None) -> HeldResources:
        """Return the places of some ranks; of all ranks if None."""
        placement = RankPlaces.of(machine)
        chosen = np.arange(machine.n_ranks) if ranks is None else np.array(ranks)
        rank, node = np.zeros(machine.n_ranks, np.bool_), np.zeros(machine.nodes, np.bool_)
        rank[chosen] = node[placement.node[chosen]] = True
        lane = np.repeat(node, machine.n_lanes)
        kinds = rank, rank, rank, lane, lane, node
        n_kept = [int(kept.sum()) for kept in kinds]
        begin = csr.running_total([n + 1 for n in n_kept])
        core, out_port, in_port, out_lane, in_lane, memory = (
            first + np.where(kept, np.cumsum(kept) - 1, n)
            for first, kept, n in zip(begin[:-1], kinds, n_kept, strict=True)
        )
        place = np.arange(begin[-1])
        is_known = np.ones(len(place), np.bool_)
        is_known[begin[1:] - 1] = False
        is_core = place < begin[1]
        is_port = (place >= begin[1]) & (place < begin[3])
        is_lane = (place >= begin[3]) & (place < begin[5])
        return cls(
            core, out_port, in_port, out_lane, in_lane, memory, is_core, is_port, is_lane, is_known
        )

    @property
    def n(self) -> int:
        """Return the number of places."""
        return len(self.is_known)

    def spared_ns(self, gap_ns: Floats | float, burst_ns: float) -> Floats:
        """Return the time in ns by which places may be held shorter than their work, at most.

        The gap after the last message may exceed the makespan, and bytes may pass as a burst.
        """
        gaps_ns = np.multiply.outer(gap_ns, self.is_port | self.is_lane)
        return np.asarray(gaps_ns + burst_ns * self.is_lane)


@dataclass(frozen=True, eq=False)
class Held:
    """Times in ns for which work holds resources.

    Parameters
    ----------
    places : HeldResources
    ns : ndarray of float64, shape (n_places,)
        Time of every place.
    gap_ns, burst_ns : float
        See `HeldResources.spared_ns`.
    links_ns : float
        Time of the busiest link of a topology.
    processors_ns : float
        Mean time of shared processors.
    """

    places: HeldResources
    ns: Floats
    gap_ns: float
    burst_ns: float
    links_ns: float
    processors_ns: float

    @staticmethod
    def busiest_ns(some: Sequence[Held]) -> float:
        """Return the time for which the busiest resource is held by all work together."""
        if not some:
            return 0.0
        first = some[0]
        gap_ns = max(one.gap_ns for one in some)
        held = sum(one.ns for one in some) - first.places.spared_ns(gap_ns, first.burst_ns)
        busiest_ns = float(held[first.places.is_known].max(initial=0.0))
        links_ns = sum(one.links_ns for one in some)
        return max(busiest_ns, links_ns, sum(one.processors_ns for one in some))


@dataclass(frozen=True, eq=False)
class Work:
    """Work of some phases whose messages are cut in one way. Times are in nanoseconds.

    Parameters
    ----------
    n_tasks : float
        Approximate number of tasks.
    whole_ns : float
        Time if phases follow each other.
    busy_ns : float
        Sum over phases of the time of the busiest resource.
    through_ns : float
        Time of the longest messages of all rounds, one after another.
    n_pieces : int
        Largest number of pieces of a message.
    latency_ns : float
        Longest latency of a message.
    held, surely_held : Held
        Approximate times, and lower bounds of the times for which resources are held.
    """

    n_tasks: float
    whole_ns: float
    busy_ns: float
    through_ns: float
    n_pieces: int
    latency_ns: float
    held: Held
    surely_held: Held


def n_tasks_of(works: Sequence[Work]) -> int:
    """Return the approximate number of tasks of all phases of a plan."""
    return int(sum(work.n_tasks for work in works))


def bound_ns(works: Sequence[Work]) -> float:
    """Return a lower bound of the time of all phases of a plan."""
    return Held.busiest_ns([work.surely_held for work in works])


def estimate_ns(works: Sequence[Work], cut: Cut) -> float:
    """Estimate the time of all phases of a plan with cut messages.

    Whole messages: phases follow each other. A phase takes the time of its busiest lane, core
    or memory plus L + o per round, or, if that is more, the time of the longest messages of
    its rounds, one after another, with the reductions that follow them. Segments or slices:
    phases overlap, one segment per round fills the pipeline, and each further one waits for
    `WINDOW` latencies.
    """
    if cut is None:
        return sum(work.whole_ns for work in works)
    busy_ns = sum(work.busy_ns for work in works)
    together_ns = NOT_HIDDEN * busy_ns + (1 - NOT_HIDDEN) * bound_ns(works)
    # Work of one core or lane in several phases does not overlap.
    together_ns = max(together_ns, Held.busiest_ns([work.held for work in works]))
    together_ns += sum(work.through_ns for work in works)
    n_more = max((work.n_pieces for work in works), default=1) - 1
    latency_ns = max((work.latency_ns for work in works), default=0.0)
    return together_ns + n_more * WINDOW * latency_ns
