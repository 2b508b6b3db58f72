"""Layers of a trace: slices of time on tracks, and messages between them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.executors.cost.layout import places_of
from collplan.executors.cost.link_use import LinkUse
from collplan.executors.cost.simulator import Timeline
from collplan.executors.cost.task_durations import Holds, holds_of
from collplan.planner.arrays import Floats, Ints
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import Network

MOST_LINKS: Final = 32
"""Links between nodes that a trace shows: the busiest ones."""
_ROUNDS: Final = 64
"""Maximum length of a chain of messages whose arrivals are derived from each other."""


@dataclass(frozen=True, eq=False, slots=True)
class Spans:
    """Intervals from `begin` on in which tasks hold their core, and their lane: ns, by task."""

    begin: Floats
    core_end: Floats
    lane_end: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Link:
    """A link between nodes: its name, and when each of its messages begins and ends to flow."""

    name: str
    begin_ns: Floats
    end_ns: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Layer:
    """One timeline of a plan.

    Parameters
    ----------
    label : str
        What it is: ``simulated``, ``measured``.
    plan : Plan
        Whose tasks run.
    start_ns, end_ns : ndarray of float64, shape (n_tasks,)
        When they start and end, from 0 or later.
    spans : Spans or None
        When they hold cores and lanes. Without, tasks are shown from start to
        end, those of a core that overlap on tracks of their own.
    links : tuple of Link
        The busiest links between nodes, over a topology.
    """

    label: str
    plan: Plan
    start_ns: Floats
    end_ns: Floats
    spans: Spans | None = None
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Tracks:
    """The slices of a layer, sorted by track and time; on a track none overlap.

    Parameters
    ----------
    node, names, is_lane : list
        Of every track: its node, its name, whether it is a lane.
    track, row : ndarray of int64, shape (n_slices,)
        Where each slice is, and its task.
    begin, end : ndarray of int64, shape (n_slices,)
        When, in whole ns.
    sends, recvs : ndarray of int64, shape (n_messages,)
        The slices, on cores, that each message leaves and reaches.
    leaves, reaches : ndarray of int64, shape (n_messages,)
        When, in ns, within those slices.
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


def simulated_layer(timeline: Timeline, network: Network, label: str = "simulated") -> Layer:
    """Return a simulation as a layer of a trace."""
    plan = timeline.plan
    holds = holds_of(timeline.places, network)
    begin = np.where(plan.op == Op.RECV, _arrivals(timeline, holds), timeline.start_ns)
    spans = Spans(
        begin=begin,
        core_end=np.where(plan.op <= Op.RECV, begin + holds.core_ns, timeline.end_ns),
        lane_end=begin + holds.lane_ns,
    )
    return Layer(label, plan, timeline.start_ns, timeline.end_ns, spans, _links(timeline))


def _links(timeline: Timeline) -> tuple[Link, ...]:
    """Return the busiest links between nodes."""
    if timeline.routes is None or timeline.flows_ns is None:
        return ()
    use, (begin, end) = LinkUse(timeline.routes), timeline.flows_ns
    found = [(link, use.messages_over(link)) for link in use.busiest(MOST_LINKS)]
    name = use.routes.fabric.link_name
    return tuple(Link(name(link), begin[rows], end[rows]) for link, rows in found)


def _arrivals(timeline: Timeline, holds: Holds) -> Floats:
    """Return when every receive's message is taken in, NaN for what is no receive.

    A receive that completes with its message tells. One that was posted after
    it does not: its message came when its flight was over, or when what it
    waited for let go.
    """
    plan, start, end = timeline.plan, timeline.start_ns, timeline.end_ns
    recvs = np.flatnonzero(plan.op == Op.RECV)
    complete = np.maximum(holds.core_ns, holds.overhead_ns + holds.wire_ns)
    arrival = np.full(plan.n_tasks, np.nan)
    tells = end[recvs] > start[recvs]
    flight = holds.overhead_ns + holds.latency_ns
    if timeline.alone_ns is not None and timeline.delays_ns is not None:
        # Bytes that share links end later than the lane lets them.
        tells &= timeline.alone_ns[recvs] == 0
        flight = flight + timeline.delays_ns
    arrival[recvs] = np.where(tells, (end - complete)[recvs], np.nan)
    send = timeline.partner.astype(np.int64)
    core, lane = timeline.places.core, timeline.places.lane
    open_rows = recvs[np.isnan(arrival[recvs])]
    for _ in range(_ROUNDS):
        if not len(open_rows):
            break
        cause = timeline.arrival_cause[send[open_rows]].astype(np.int64)
        held = np.where(cause < -1, -2 - cause, np.maximum(cause, 0))
        # Its own send, too, holds the core of ranks that share one.
        lasts = np.maximum(
            np.where(core[held] == core[open_rows], holds.core_ns[held], 0.0),
            np.where(lane[held] == lane[open_rows], holds.lane_ns[held], 0.0),
        )
        began = np.where(plan.op[held] == Op.RECV, arrival[held], start[held])
        lets_go = np.where(cause < -1, end[held], began + lasts)
        earliest = start[send[open_rows]] + flight[open_rows]
        found = np.maximum(lets_go, earliest)
        arrival[open_rows] = found
        open_rows = open_rows[np.isnan(found)]
    arrival[open_rows] = start[send[open_rows]] + flight[open_rows]
    return arrival


def tracks_of(layer: Layer) -> Tracks:
    """Lay out a layer: a track for each core, and for each lane and direction."""
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
        # A lane's two directions are tracks side by side.
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
    # What the formulas of a task alone give too long ends where the next begins.
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
    """Return a track for every task so that none overlap, and name the tracks."""
    track = np.empty(len(core), dtype=np.int64)
    free: list[tuple[int, int]] = []
    of, n_on_core = -1, 0
    for i in np.lexsort((end, begin, core)).tolist():
        if core[i] != of:
            of, n_on_core, free = int(core[i]), 0, []
        if free and free[0][0] <= begin[i]:
            _, chosen = heapq.heappop(free)
        else:
            chosen, n_on_core = len(names), n_on_core + 1
            node.append(of // n_cores)
            more = f" ({n_on_core})" if n_on_core > 1 else ""
            names.append(f"core {of % n_cores}{more}")
        track[i] = chosen
        heapq.heappush(free, (int(end[i]), chosen))
    return track
