"""Layers of a trace: slices of time on tracks, and messages between them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.executors.cost.layout import places_of
from collplan.executors.cost.link_use import LinkUse
from collplan.executors.cost.simulator import Timeline
from collplan.executors.cost.task_durations import durations_of
from collplan.planner.arrays import Floats, Ints
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import Network

MOST_LINKS: Final = 32
"""Largest number of links between nodes that a trace shows, the busiest ones."""


@dataclass(frozen=True, eq=False, slots=True)
class Spans:
    """Start and end of the time for which each task holds its core and its lane, in ns.

    Both are held from `begin` on. All arrays have the shape (n_tasks,).
    """

    begin: Floats
    core_end: Floats
    lane_end: Floats


@dataclass(frozen=True, eq=False, slots=True)
class LinkTrace:
    """A link between nodes, and the start and end of each message that flows over it, in ns."""

    name: str
    begin_ns: Floats
    end_ns: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Layer:
    """One timeline of a plan.

    Parameters
    ----------
    label : str
        Name in the trace, such as ``simulated`` or ``measured``.
    plan : Plan
        Plan whose tasks run.
    start_ns, end_ns : ndarray of float64, shape (n_tasks,)
        Start and end of each task, at least 0.
    spans : Spans or None
        Times for which tasks hold cores and lanes. If None, tasks are shown from start to end,
        and overlapping tasks of a core are shown on separate tracks.
    links : tuple of LinkTrace
        The busiest links between nodes, if there is a topology.
    """

    label: str
    plan: Plan
    start_ns: Floats
    end_ns: Floats
    spans: Spans | None = None
    links: tuple[LinkTrace, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Tracks:
    """The slices of a layer, sorted by track and time. Slices of a track do not overlap.

    Parameters
    ----------
    node, names, is_lane : list
        Node and name of every track, and whether the track shows a lane.
    track, row : ndarray of int64, shape (n_slices,)
        Track and task of each slice.
    begin, end : ndarray of int64, shape (n_slices,)
        Start and end of each slice in whole ns.
    sends, recvs : ndarray of int64, shape (n_messages,)
        Slices on cores in which each message is sent and received.
    leaves, reaches : ndarray of int64, shape (n_messages,)
        Times in ns, within those slices, at which each message leaves and arrives.
    """

    node: list[int]
    names: list[str]
    is_lane: list[bool]
    track: Ints
    row: Ints
    begin: Ints
    end: Ints
    sends: Ints
    recvs: Ints
    leaves: Ints
    reaches: Ints


def simulated_layer(timeline: Timeline, network: Network) -> Layer:
    """Return a simulation as a layer of a trace.

    Parameters
    ----------
    timeline : Timeline
    network : Network
        Network of the simulation.

    Returns
    -------
    Layer
    """
    plan = timeline.plan
    durations = durations_of(timeline.places, network)
    begin = np.where(plan.op == Op.RECV, timeline.arrival_ns, timeline.start_ns)
    spans = Spans(
        begin=begin,
        core_end=np.where(plan.op <= Op.RECV, begin + durations.core_ns, timeline.end_ns),
        lane_end=begin + durations.lane_ns,
    )
    return Layer("simulated", plan, timeline.start_ns, timeline.end_ns, spans, _links(timeline))


def _links(timeline: Timeline) -> tuple[LinkTrace, ...]:
    """Return the busiest links between nodes."""
    if timeline.routes is None or timeline.flows_ns is None:
        return ()
    use, (begin, end) = LinkUse(timeline.routes), timeline.flows_ns
    found = [(link, use.messages_over(link)) for link in use.busiest(MOST_LINKS)]
    name = use.routes.fabric.link_name
    return tuple(LinkTrace(name(link), begin[rows], end[rows]) for link, rows in found)


def tracks_of(layer: Layer) -> Tracks:
    """Return the slices of a layer, on one track per core and per lane and direction."""
    plan = layer.plan
    places = places_of(plan)
    clocks, core, lane = places.clocks, places.core, places.lane
    rows = np.arange(plan.n_tasks)
    node: list[int] = []
    names: list[str] = []
    if layer.spans is None:
        begin, end = _whole(layer.start_ns), _whole(layer.end_ns)
        track = _spread(core, begin, end, clocks.n_cores, node, names)
        row = rows
        n_core_tracks = len(names)
    else:
        n_core_tracks = clocks.lane_out
        # The two directions of a lane are neighboring tracks.
        n_lanes = clocks.lane_in - clocks.lane_out
        ways = [clocks.lane_out + i for lane in range(n_lanes) for i in (lane, n_lanes + lane)]
        shown = [clocks.resource(clock) for clock in (*range(n_core_tracks), *ways)]
        node = [resource.place for resource in shown]
        names = [f"{one.kind} {one.index} {one.direction}".rstrip() for one in shown]
        on_lane = np.flatnonzero((lane >= clocks.lane_out) & (lane < clocks.port_out))
        side, number = np.divmod(lane[on_lane] - clocks.lane_out, n_lanes)
        track = np.concatenate((core, n_core_tracks + 2 * number + side))
        row = np.concatenate((rows, on_lane))
        spans = layer.spans
        begin = _whole(np.concatenate((spans.begin, spans.begin[on_lane])))
        end = _whole(np.concatenate((spans.core_end, spans.lane_end[on_lane])))
    order = np.lexsort((end, begin, track))
    track, row, begin, end = track[order], row[order], begin[order], end[order]
    is_followed = track[:-1] == track[1:]
    # The formulas of a single task may give too long a duration, so the next slice truncates it.
    end[:-1] = np.where(is_followed, np.minimum(end[:-1], begin[1:]), end[:-1])
    slice_of = np.empty(plan.n_tasks, dtype=np.int64)
    on_core = np.flatnonzero(track < n_core_tracks)
    slice_of[row[on_core]] = on_core
    send_rows = np.flatnonzero(plan.op == Op.SEND)
    sends, recvs = slice_of[send_rows], slice_of[places.tasks["partner"][send_rows]]
    last = np.maximum(begin[recvs], end[recvs] - 1)
    return Tracks(
        node=node,
        names=names,
        is_lane=[i >= n_core_tracks for i in range(len(names))],
        track=track,
        row=row,
        begin=begin,
        end=end,
        sends=sends,
        recvs=recvs,
        leaves=begin[sends],
        reaches=np.clip(begin[sends], begin[recvs], last),
    )


def _whole(ns: Floats) -> Ints:
    return np.rint(ns).astype(np.int64)


def _spread(
    core: Ints, begin: Ints, end: Ints, n_cores: int, node: list[int], names: list[str]
) -> Ints:
    """Return a track for every task such that no tasks overlap.

    The nodes and names of the tracks are appended to `node` and `names`.
    """
    track = np.empty(len(core), dtype=np.int64)
    free: list[tuple[int, int]] = []
    current, n_on_core = -1, 0
    for i in np.lexsort((end, begin, core)).tolist():
        if core[i] != current:
            current, n_on_core, free = int(core[i]), 0, []
        if free and free[0][0] <= begin[i]:
            _, chosen = heapq.heappop(free)
        else:
            chosen, n_on_core = len(names), n_on_core + 1
            node.append(current // n_cores)
            suffix = f" ({n_on_core})" if n_on_core > 1 else ""
            names.append(f"core {current % n_cores}{suffix}")
        track[i] = chosen
        heapq.heappush(free, (int(end[i]), chosen))
    return track
