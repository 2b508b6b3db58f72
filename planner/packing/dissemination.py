"""Dissemination: schedules in which every member of a group needs every chunk of the group.

The search simulates time. Whenever all links of a hop are free, the hop carries a chunk that its
source has and its target neither has nor expects. Hops to members that lack the most, relative to
the rate at which they receive, choose first. A hop chooses the chunk that the fewest neighbors of
its target have, and among these the chunk that the fewest members have.

A slow hop must not carry a chunk that faster hops can bring. The search therefore knows how far
each member is from the nearest one that has or expects a chunk. It refuses a hop for a chunk if the
hop takes more than `patience` times as long as a message over free links from that member.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Floats, Ints
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.packing.heap import pop, push

LACKS, EXPECTS, HAS = 0, 1, 2
"""States of a chunk at a member."""
IDLE, WAITS = 0, 1
"""States of a hop: no chunk to carry, or an event that tries it again."""
_SIZE, _TURNS, _SENT, _ARRIVED, _RANDOM = range(5)
_SAME: Final = 1 + 1e-12
"""Ratio of times up to which events are simultaneous in spite of rounding errors."""
MOST_LOOKED_AT: Final = 32
"""Number of chunks among which a hop chooses."""


class Hops(NamedTuple):
    """Hops between members of groups, and the links that they use.

    Parameters
    ----------
    source, target : ndarray of int64, shape (n_hops,)
        Members at the ends, sources ascending.
    out_begin : ndarray of int64, shape (n_members + 1,)
        Offsets of the hops from every member.
    route_begin : ndarray of int64, shape (n_hops + 1,)
        Offsets of the routes in `route`.
    route : ndarray of int64
        Links of every hop.
    busy_ns : ndarray of float64, shape (n_links,)
        Time for which a chunk occupies each link, in ns.
    flight_ns : ndarray of float64, shape (n_hops,)
        Time from the start of a message until its target has the chunk, in ns.
    cycle_ns : ndarray of float64, shape (n_hops,)
        Time from the start of a message until the next one of the hop may start, in ns.
    """

    source: Ints
    target: Ints
    out_begin: Ints
    route_begin: Ints
    route: Ints
    busy_ns: Floats
    flight_ns: Floats
    cycle_ns: Floats


class TimedMessages(NamedTuple):
    """Messages of a schedule in the order of their starts.

    Parameters
    ----------
    hop, chunk : ndarray of int64, shape (n_messages,)
        Hop and chunk of every message.
    start_ns : ndarray of float64, shape (n_messages,)
        Time at which every message starts, in ns.
    """

    hop: Ints
    chunk: Ints
    start_ns: Floats


class Progress(NamedTuple):
    """State of a search: what members have, and what their neighbors have.

    Parameters
    ----------
    group_of : ndarray of int64, shape (n_members,)
        Group of every member.
    state : ndarray of int8, shape (n_members, n_chunks)
        State of every chunk at every member.
    near : ndarray of int16, shape (n_members, n_chunks)
        Number of neighbors of a member that have a chunk.
    n_holders : ndarray of int64, shape (n_groups, n_chunks)
        Number of members that have or expect a chunk.
    left : ndarray of int64, shape (n_members,)
        Number of chunks that a member lacks.
    need : ndarray of float64, shape (n_members,)
        Time per chunk at the rate at which a member can receive.
    distance_ns : ndarray of float64, shape (n_members, n_members)
        Time from member to member over free links; of shape (0, 0) if hops do not differ.
    nearest : ndarray of float64, shape (n_members, n_chunks)
        Time from the nearest member that has or expects a chunk; of shape (0, 0) likewise.
    """

    group_of: Ints
    state: Ints
    near: Ints
    n_holders: Ints
    left: Ints
    need: Floats
    distance_ns: Floats
    nearest: Floats


class _Events(NamedTuple):
    """Events of a search, and hops that choose at one time.

    Parameters
    ----------
    times, items : ndarray
        Heap of events: hops that are tried again, and after those messages that arrive.
    keys, turns : ndarray
        Heap of hops that choose next.
    free : ndarray of float64, shape (n_links,)
        Time from which every link is free.
    status : ndarray of int8, shape (n_hops,)
    counters : ndarray of int64, shape (5,)
        Sizes of both heaps, numbers of messages sent and arrived, and a random number.
    """

    times: Floats
    items: Ints
    keys: Floats
    turns: Ints
    free: Floats
    status: Ints
    counters: Ints


def disseminate(
    hops: Hops,
    group_of: Ints,
    state: Ints,
    distance_ns: Floats,
    need: Floats,
    patience: float,
    seed: int,
) -> tuple[TimedMessages, float]:
    """Return messages after which every member has every chunk of its group.

    Parameters
    ----------
    hops : Hops
    group_of : ndarray of int64, shape (n_members,)
        Group of every member, ascending.
    state : ndarray of int8, shape (n_members, n_chunks)
        `HAS` for chunks that a member has at the beginning, `LACKS` for those that it needs, and
        `EXPECTS` for chunks that its group does not have.
    distance_ns : ndarray of float64, shape (n_members, n_members)
        Time that a chunk takes from member to member over free links, or an empty array if all
        hops take the same time.
    need : ndarray of float64, shape (n_members,)
        Time per chunk at the rate at which a member can receive.
    patience : float
        Greatest ratio between the duration of a hop and the time from the nearest holder.
    seed : int
        Seed of the choices between equals.

    Returns
    -------
    messages : TimedMessages
    float
        Time at which the last message arrives, in ns; infinite if chunks cannot reach a member.
    """
    left = (state == LACKS).sum(axis=1)
    n_groups, n_hops, total = int(group_of.max(initial=-1)) + 1, len(hops.source), int(left.sum())
    progress = Progress(
        group_of,
        state.copy(),
        np.zeros(state.shape, dtype=np.int16),
        np.zeros((n_groups, state.shape[1]), dtype=np.int64),
        left,
        need,
        distance_ns,
        np.full(state.shape if distance_ns.size else (0, 0), np.inf),
    )
    most = total + 2 * n_hops + 1
    events = _Events(
        *(np.zeros(most), np.zeros(most, dtype=np.int64)),
        *(np.zeros(n_hops), np.zeros(n_hops, dtype=np.int64)),
        np.zeros(len(hops.busy_ns)),
        np.full(n_hops, WAITS, dtype=np.int8),
        np.array([0, 0, 0, 0, seed % 2147483646 + 1]),
    )
    messages = TimedMessages(
        np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64), np.zeros(total)
    )
    return messages, float(_run(hops, progress, events, messages, patience))


@compiled
def _run(
    hops: Hops, progress: Progress, events: _Events, messages: TimedMessages, patience: float
) -> float:
    """Write the messages, and return the time at which the last one arrives."""
    for member in range(len(progress.group_of)):
        for chunk in range(progress.state.shape[1]):
            if progress.state[member, chunk] == HAS:
                progress.n_holders[progress.group_of[member], chunk] += 1
                _tell_neighbors(hops, progress, member, chunk)
                _approach(progress, member, chunk)
    counters, now = events.counters, 0.0
    for hop in range(len(hops.source)):
        counters[_SIZE] = push(events.times, events.items, counters[_SIZE], 0.0, hop)
    while counters[_ARRIVED] < len(messages.hop) and counters[_SIZE] > 0:
        now = events.times[0]
        _take_events(hops, progress, events, messages, now)
        while counters[_TURNS] > 0:
            hop = events.turns[0]
            counters[_TURNS] = pop(events.keys, events.turns, counters[_TURNS])
            _try_hop(hops, progress, events, messages, hop, now, patience)
    return now if counters[_ARRIVED] == len(messages.hop) else np.inf


@inner
def _take_events(
    hops: Hops, progress: Progress, events: _Events, messages: TimedMessages, now: float
) -> None:
    """Receive the messages that arrive now, and line up the hops that choose now."""
    counters, n_hops = events.counters, len(hops.source)
    while counters[_SIZE] > 0 and events.times[0] <= now * _SAME:
        item = events.items[0]
        counters[_SIZE] = pop(events.times, events.items, counters[_SIZE])
        if item < n_hops:
            member = hops.target[item]
            key = (_random(counters) / 2147483647 - progress.left[member]) * progress.need[member]
            counters[_TURNS] = push(events.keys, events.turns, counters[_TURNS], key, item)
            continue
        counters[_ARRIVED] += 1
        member, chunk = hops.target[messages.hop[item - n_hops]], messages.chunk[item - n_hops]
        progress.state[member, chunk] = HAS
        _tell_neighbors(hops, progress, member, chunk)
        for out in range(hops.out_begin[member], hops.out_begin[member + 1]):
            if events.status[out] == IDLE:
                events.status[out] = WAITS
                counters[_SIZE] = push(events.times, events.items, counters[_SIZE], now, out)


@inner
def _try_hop(
    hops: Hops,
    progress: Progress,
    events: _Events,
    messages: TimedMessages,
    hop: int,
    now: float,
    patience: float,
) -> None:
    """Send a chunk over a hop if all of its links are free and it has one, or try it later."""
    counters, begin = events.counters, now
    for i in range(hops.route_begin[hop], hops.route_begin[hop + 1]):
        begin = max(begin, events.free[hops.route[i]])
    if begin > now * _SAME:
        counters[_SIZE] = push(events.times, events.items, counters[_SIZE], begin, hop)
        return
    chunk = _choose(hops, progress, hop, patience, _random(counters))
    if chunk < 0:
        events.status[hop] = IDLE
        return
    number = counters[_SENT]
    counters[_SENT] = number + 1
    messages.hop[number] = hop
    messages.chunk[number] = chunk
    messages.start_ns[number] = now
    arrival, item = now + hops.flight_ns[hop], len(hops.source) + number
    counters[_SIZE] = push(events.times, events.items, counters[_SIZE], arrival, item)
    target = hops.target[hop]
    progress.state[target, chunk] = EXPECTS
    progress.left[target] -= 1
    progress.n_holders[progress.group_of[target], chunk] += 1
    _approach(progress, target, chunk)
    for i in range(hops.route_begin[hop], hops.route_begin[hop + 1]):
        events.free[hops.route[i]] = now + hops.busy_ns[hops.route[i]]
    if progress.left[target] > 0:
        again = now + hops.cycle_ns[hop]
        counters[_SIZE] = push(events.times, events.items, counters[_SIZE], again, hop)


@inner
def _random(counters: Ints) -> int:
    """Return a number from 1 to 2³¹ - 2, by a linear congruential generator."""
    counters[_RANDOM] = counters[_RANDOM] * 16807 % 2147483647
    return int(counters[_RANDOM])


@inner
def _choose(hops: Hops, progress: Progress, hop: int, patience: float, random: int) -> int:
    """Return the chunk that a hop carries, or -1 if there is none."""
    source, target = hops.source[hop], hops.target[hop]
    n_chunks, group = progress.state.shape[1], progress.group_of[source]
    least = hops.flight_ns[hop] / patience * (1 - 1e-9)
    has_times = progress.nearest.shape[0] > 0
    best, best_near, best_holders, n_seen = -1, 0, 0, 0
    first = random % n_chunks
    for i in range(n_chunks):
        chunk = first + i
        if chunk >= n_chunks:
            chunk -= n_chunks
        if progress.state[source, chunk] != HAS or progress.state[target, chunk] != LACKS:
            continue
        if has_times and progress.nearest[target, chunk] < least:
            continue
        near, holders = progress.near[target, chunk], progress.n_holders[group, chunk]
        if best < 0 or near < best_near or (near == best_near and holders < best_holders):
            best, best_near, best_holders = chunk, near, holders
        n_seen += 1
        if n_seen == MOST_LOOKED_AT:
            break
    return best


@inner
def _tell_neighbors(hops: Hops, progress: Progress, member: int, chunk: int) -> None:
    """Count a member that has a chunk at all targets of its hops."""
    for hop in range(hops.out_begin[member], hops.out_begin[member + 1]):
        progress.near[hops.target[hop], chunk] += 1


@inner
def _approach(progress: Progress, member: int, chunk: int) -> None:
    """Note for all members of a group that a member has or expects a chunk."""
    if progress.nearest.shape[0] == 0:
        return
    for other in range(len(progress.group_of)):
        if progress.group_of[other] == progress.group_of[member]:
            distance = progress.distance_ns[member, other]
            if distance < progress.nearest[other, chunk]:
                progress.nearest[other, chunk] = distance
