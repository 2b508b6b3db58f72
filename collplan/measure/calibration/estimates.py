"""Robust estimates of link and local costs from measured times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, TypeVar

import numpy as np

from collplan.measure.calibration.measurements import (
    SMALL,
    WORKS,
    Burst,
    Layout,
    LinkClass,
    Measurements,
    Transfer,
    Work,
)

Entry = TypeVar("Entry", Burst, Transfer)
Draw = Callable[[Sequence[float]], float]
Found = dict[str, tuple[float | bool | None, str]]
"""Value of each parameter, and a description of how it was found."""

_NS: Final = 1e9
_VISIBLE: Final = 1.25
"""Ratio of the interval between messages to the core's time per message above which a gap shows."""
_ENOUGH: Final = 3
_STEP: Final = 1.2
"""Smallest ratio of costs that shows the end of a cache, or a memory that ranks share."""
_LONG: Final = 1 << 16
_IDLE: Final = 0.5
"""Share of G below which the receiver's processor time per byte shows that its core is free."""


def theil_sen(
    x: Sequence[float], y: Sequence[float], *, is_relative: bool = False
) -> tuple[float, float]:
    """Return intercept and slope of a line: the slope is the weighted median over all pairs.

    Parameters
    ----------
    x, y : sequence of float, shape (n,)
        Coordinates of the points. The weight of a pair is its distance in x.
    is_relative : bool
        Whether errors grow with y, which must then be positive, as errors of times do.
        The weight of a pair is then its distance in x divided by the sum of its y.

    References
    ----------
    .. [1] P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, 1968.

    Examples
    --------
    >>> theil_sen([0, 1, 2, 3, 4], [1, 3, 5, 70, 9])
    (1.0, 2.0)
    """
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    i, j = np.triu_indices(len(across), k=1)
    distance = np.abs(across[j] - across[i])
    apart = distance > 0
    if not apart.any():
        return float(np.median(up)), 0.0
    i, j, distance = i[apart], j[apart], distance[apart]
    slopes = (up[j] - up[i]) / (across[j] - across[i])
    weights = distance / (up[i] + up[j]) if is_relative else distance
    # The weighted median: slopes below it have half of the weight.
    slope = float(np.quantile(slopes, 0.5, weights=weights, method="inverted_cdf"))
    return float(np.median(up - slope * across)), slope


def step(levels: Sequence[float]) -> int:
    """Return the number of values before the step that fits a sequence best.

    The step divides the values into two parts. It minimizes the sum of the absolute
    deviations of the values from the median of their part.

    Parameters
    ----------
    levels : sequence of float, shape (n,)
        Values of the sequence, at least 2.

    Examples
    --------
    >>> step([1.0, 1.1, 1.0, 2.0, 2.1])
    3
    """
    values = np.asarray(levels, dtype=np.float64)

    def deviation(cut: int) -> float:
        parts = (values[:cut], values[cut:])
        return float(sum(np.abs(part - np.median(part)).sum() for part in parts))

    return min(range(1, len(values)), key=deviation)


def fit_link(measurements: Measurements, link: LinkClass, draw: Draw) -> Found:
    """Return the parameters of one class of links: L, o, g, G, O, offload and handshake.

    Parameters
    ----------
    measurements : Measurements
        All measurements of the machine.
    link : str
        Class of the links. There must be ping-pongs, bursts and transfers over it.
    draw : callable
        Function that reduces repeated times to one, such as the median.

    Returns
    -------
    dict
        Value and method of each field of `collplan.specs.Link`, and of ``handshake``.
    """
    bracket = eager_bracket(measurements, link)
    limit = None if bracket is None else bracket[0]
    times = _half_round_trips(measurements, link, draw)
    short = median(time for size in times if size <= SMALL for time in times[size])
    some, in_burst, interval = _each_message(measurements, link, draw)
    per_byte, arriving = _each_byte(measurements, link, draw)
    # The two overheads of a single message cannot exceed its half round trip.
    overhead = min(in_burst, short / 2)
    latency = max(0.0, short - 2 * overhead)
    gap_per_byte, begins = _line(times, limit)
    asks = limit is not None and begins - short > overhead + latency
    sleeps = measurements.place.ranks_per_core > 1
    is_seen = not sleeps and interval > _VISIBLE * in_burst
    gap = interval if is_seen else 0.0
    method = "messages that leave back to back" if is_seen else "not seen behind o"
    how = f"ping-pong of up to {SMALL} B, less 2 o", "processor time of a message in a burst"
    if (rounds := measurements.rounds) is not None:
        # A ping-pong of two ranks finds both awake, with warm caches and free cores. In a round
        # all ranks send and receive, so that all ranks of a core keep it busy.
        overhead, busy = some, 2 * some * measurements.place.ranks_per_core
        latency = max(0.0, draw(rounds.seconds) / rounds.rounds - busy)
        how = (
            "a round of all ranks, less all their o",
            "processor time of a few messages, from sleep",
        )
    return {
        "L_ns": (_NS * latency, how[0]),
        "o_ns": (_NS * overhead, how[1]),
        "g_ns": (_NS * gap, method),
        "G_ns_per_byte": (_NS * gap_per_byte, "ping-pong over sizes"),
        "O_ns_per_byte": (_NS * per_byte, "processor time of long messages"),
        "offload": (arriving < _IDLE * gap_per_byte, "processor time against G"),
        "handshake": (asks, "ping-pong below and above the eager limit"),
    }


def eager_bracket(measurements: Measurements, link: LinkClass) -> tuple[float, float] | None:
    """Return the sizes in bytes of the longest eager message and the shortest that waited.

    If all messages were eager, the second size is twice the first. Return None if no late
    receives were measured over the link.
    """
    own = [entry for entry in measurements.late_receives if entry.link == link]
    if not own:
        return None
    waited = [entry.bytes for entry in own if median(entry.seconds) >= entry.delay_s / 2]
    eager = [entry.bytes for entry in own if entry.bytes < min(waited, default=math.inf)]
    longest = max(eager, default=0)
    return float(longest), float(min(waited, default=2 * longest))


def fit_burst(measurements: Measurements, gap_ns_per_byte: float, draw: Draw) -> float | None:
    """Return the bytes that an idle lane lets pass at once; None without long messages.

    Lanes are idle between the messages of a ping-pong. A long message therefore takes less
    time than the lane's G predicts, and the time saved, divided by G, is the burst in bytes.
    The shortest long message is used, because an error of G grows with the size.
    """
    times = _half_round_trips(measurements, "network", draw)
    size = min((size for size in times if size >= _LONG), default=None)
    if size is None or gap_ns_per_byte <= 0:
        return None
    per_byte = gap_ns_per_byte / _NS
    short = median(time for s in times if s <= SMALL for time in times[s])
    return max(0.0, (short + size * per_byte - median(times[size])) / per_byte)


def fit_speed_up(measurements: Measurements, draw: Draw) -> float | None:
    """Return the largest ratio of the bandwidth of several ranks of a node to that of one.

    Return None if there are no such measurements, as on a single node.
    """
    points: dict[int, tuple[list[int], list[float]]] = {}
    for entry in measurements.lanes_at_once:
        sizes, times = points.setdefault(entry.ranks, ([], []))
        sizes.append(entry.bytes)
        times.append(draw(entry.seconds))
    # Seconds per byte of each sender, by the number of senders, without the constant part.
    slopes = {k: theil_sen(*of_ranks)[1] for k, of_ranks in points.items()}
    if slopes.get(1, 0.0) <= 0:
        return None
    return max(k * slopes[1] / slope for k, slope in slopes.items() if slope > 0)


def lane_ns_per_byte(measurements: Measurements, lanes: int, draw: Draw) -> float | None:
    """Return ns per byte of a lane, fitted to the fullest lane's bytes; None if not measured."""
    loads, times = [], []
    for entry in measurements.lanes_at_once:
        loads.append(-(-entry.ranks // lanes) * entry.bytes)
        times.append(draw(entry.seconds))
    return _NS * max(0.0, theil_sen(loads, times)[1]) if loads else None


def _each_message(
    measurements: Measurements, link: LinkClass, draw: Draw
) -> tuple[float, float, float]:
    """Return two processor times of a message, and the interval between messages that leave.

    All are in seconds per message, and medians over pairs of ranks. Processor times are the
    mean of both sides: the first is that of the shortest burst and includes its constant
    part; the second is the slope over bursts of different lengths.
    """
    some, works, leaves = [], [], []
    for bursts in _by_pair([one for one in measurements.bursts if one.bytes <= SMALL], link):
        numbers = [entry.messages for entry in bursts]
        both = [(draw(entry.send_cpu_s) + draw(entry.recv_cpu_s)) / 2 for entry in bursts]
        some.append(min(zip(numbers, both, strict=True))[1] / min(numbers))
        works.append(_each(numbers, both))
        leaves.append(_each(numbers, [draw(entry.send_s) for entry in bursts]))
    return median(some), median(works), median(leaves)


def _each(numbers: Sequence[int], times: Sequence[float]) -> float:
    slope = theil_sen(numbers, times)[1]
    return slope if slope > 0 else median(time / n for n, time in zip(numbers, times, strict=True))


def _each_byte(measurements: Measurements, link: LinkClass, draw: Draw) -> tuple[float, float]:
    """Return the processor time per byte in s, as mean of both sides and of the receiver alone."""
    both, received = [], []
    for transfers in _by_pair(measurements.transfers, link):
        sizes = [entry.bytes for entry in transfers]
        arriving = [draw(entry.recv_cpu_s) for entry in transfers]
        leaving = [draw(entry.send_cpu_s) for entry in transfers]
        sums = [s + r for s, r in zip(leaving, arriving, strict=True)]
        both.append(theil_sen(sizes, sums)[1] / 2)
        received.append(theil_sen(sizes, arriving)[1])
    return max(0.0, median(both)), max(0.0, median(received))


def _by_pair(entries: Sequence[Entry], link: LinkClass) -> list[list[Entry]]:
    """Return the entries of a link, one list for each pair of ranks and turn."""
    found: dict[tuple[tuple[int, int], int], list[Entry]] = {}
    for entry in entries:
        if entry.link == link:
            found.setdefault(entry.unit, []).append(entry)
    return list(found.values())


def _half_round_trips(
    measurements: Measurements, link: LinkClass, draw: Draw
) -> dict[int, list[float]]:
    """Return the half round trips in s by message size, one time for each pair of ranks."""
    found: dict[int, list[float]] = {}
    for entry in measurements.ping_pongs:
        if entry.link == link:
            found.setdefault(entry.bytes, []).append(draw(entry.seconds))
    return found


def _line(times: dict[int, list[float]], limit: float | None) -> tuple[float, float]:
    """Return the slope, in s per byte, and the intercept, in s, of the line through the times.

    The line is fitted to messages above the eager limit if at least three sizes are, and to
    all messages otherwise.
    """
    above = [size for size in times if limit is not None and size > limit]
    sizes = above if len(above) >= _ENOUGH else list(times)
    points = [(size, time) for size in sizes for time in times[size]]
    slope = max(0.0, theil_sen(*zip(*points, strict=True), is_relative=True)[1])
    return slope, median(time - slope * size for size, time in points)


def fit_local(measurements: Measurements, draw: Draw) -> Found:
    """Return the value and method of each cost of local work, by field of `collplan.specs.Network`.

    Parameters
    ----------
    measurements : Measurements
        All measurements of the machine.
    draw : callable
        Function that reduces repeated times to one, such as the median.
    """
    levels = {work: _levels(measurements, work, "contiguous", draw) for work in WORKS}
    cache = _cache_bytes(levels)
    cost, rises = {}, []
    for work, costs in levels.items():
        held = {size for size in costs if cache is None or size <= cache}
        cost[work] = median(costs[size] for size in held)
        rises += [costs[size] - cost[work] for size in costs.keys() - held]
    pieces = [
        value - levels[work][size]
        for work in WORKS
        for size, value in _levels(measurements, work, "strided", draw).items()
        if size in levels[work]
    ]
    memory = _memory(measurements, levels["copy"], draw)
    found: Found = {
        "copy_ns_per_byte": (_NS * cost["copy"], "copies of segments"),
        "reduce_ns_per_byte": (_NS * cost["reduce"], "sums of segments"),
    }
    if pieces:
        strided = _NS * max(0.0, median(pieces))
        found["strided_ns_per_byte"] = (strided, "rows of 256 B, less the same in one piece")
    found["cache_bytes"] = (cache, "working set from which on costs rise")
    uncached = _NS * max(0.0, median(rises or [0.0]))
    found["uncached_ns_per_byte"] = (uncached, "larger working sets, less cached")
    if memory is not None:
        found["memory_ns_per_byte"] = (_NS * memory, "copies by ranks of a node at once")
    return found


def _levels(measurements: Measurements, work: Work, layout: Layout, draw: Draw) -> dict[int, float]:
    """Return seconds per byte of one rank alone, by ascending working set in bytes."""
    return {
        entry.working_set_bytes: draw(entry.seconds) / entry.bytes
        for entry in sorted(measurements.local_work, key=lambda entry: entry.working_set_bytes)
        if (entry.work, entry.layout, entry.ranks) == (work, layout, 1)
    }


def _cache_bytes(levels: dict[Work, dict[int, float]]) -> int | None:
    """Return the largest working set in bytes that costs no more than small ones; None if all."""
    sizes = sorted(set(levels["copy"]) & set(levels["reduce"]))
    if len(sizes) < 2:
        return None
    # Divide each work's costs by their median, so that both have the same weight.
    middles = {work: median(levels[work][size] for size in sizes) for work in WORKS}
    both = [sum(levels[work][size] / middles[work] for work in WORKS) for size in sizes]
    cut = step(both)
    if median(both[cut:]) < _STEP * median(both[:cut]):
        return None
    return sizes[cut - 1]


def _memory(measurements: Measurements, alone: dict[int, float], draw: Draw) -> float | None:
    """Return seconds per byte of the node's memory; 0 if ranks together are as fast as one.

    Return None if no ranks were timed together.
    """
    crowds = [entry for entry in measurements.local_work if entry.ranks > 1]
    if not crowds:
        return None
    crowd = max(crowds, key=lambda entry: entry.ranks)
    each = draw(crowd.seconds) / crowd.bytes
    if each < _STEP * alone.get(crowd.working_set_bytes, each):
        return 0.0
    return each / crowd.ranks
