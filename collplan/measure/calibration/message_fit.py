"""Fit the parameters of a class of links to ping-pongs, bursts and late receives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from collplan.measure.calibration.measurements import SMALL, LinkClass, Measurements, Rounds
from collplan.measure.calibration.robust import theil_sen

Draw = Callable[[Sequence[float]], float]
Found = dict[str, tuple[float | bool, str]]

_NS: Final = 1e9
_VISIBLE: Final = 1.25
"""A gap is seen where messages leave so much slower than the core could send them."""
_ENOUGH: Final = 3
_LONG: Final = 1 << 16
_IDLE: Final = 0.5
"""A receiving core busy for less than this share of a message's bytes is not what moves them."""


def fit_link(measurements: Measurements, link: LinkClass, draw: Draw) -> Found:
    """Return L, o, g, G, O, whether the core is free meanwhile, and whether long sends ask first.

    Parameters
    ----------
    measurements : Measurements
        All of them.
    link : str
        The class; there are ping-pongs and bursts over it.
    draw : callable
        Makes one time of several.

    Returns
    -------
    dict
        Values by field of `collplan.specs.Link`, and ``handshake``; with how each was found.
    """
    bracket = eager_bracket(measurements, link)
    limit = None if bracket is None else bracket[0]
    times = _half_round_trips(measurements, link, draw)
    short = median(time for size in times if size <= SMALL for time in times[size])
    some, in_burst, interval = _each_message(measurements, link, draw)
    per_byte, arriving = _each_byte(measurements, link, draw)
    overhead, latency = _each_alone(short, in_burst)
    gap_per_byte, begins = _line(times, limit)
    asks = limit is not None and begins - short > overhead + latency
    sleeps = measurements.place.ranks_per_core > 1
    is_seen = not sleeps and interval > _VISIBLE * in_burst
    gap = interval if is_seen else 0.0
    method = "messages that leave back to back" if is_seen else "not seen behind o"
    how = f"ping-pong of up to {SMALL} B, less 2 o", "processor time of a message in a burst"
    if measurements.rounds is not None:
        overhead, latency = _each_of_all(measurements, measurements.rounds, some, draw)
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


def _each_alone(short: float, in_burst: float) -> tuple[float, float]:
    """Return o and L of two ranks that have a core each, in s."""
    # Alone, a message cannot have kept cores longer than it took.
    overhead = min(in_burst, short / 2)
    return overhead, max(0.0, short - 2 * overhead)


def _each_of_all(
    measurements: Measurements, rounds: Rounds, overhead: float, draw: Draw
) -> tuple[float, float]:
    """Return o and L of ranks that share cores, in s, by what a round of all of them takes.

    Two ranks alone find each other awake, caches warm and the cores free. In a
    round all send and receive, so that a core is kept by all its ranks.
    """
    busy = 2 * overhead * measurements.place.ranks_per_core
    return overhead, max(0.0, draw(rounds.seconds) / rounds.rounds - busy)


def eager_bracket(measurements: Measurements, link: LinkClass) -> tuple[float, float] | None:
    """Return the longest message that was sent eagerly and the shortest that was not.

    None where no late receives were measured. All were eager: twice the longest.
    """
    own = [entry for entry in measurements.late_receives if entry.link == link]
    if not own:
        return None
    waited = [entry.bytes for entry in own if median(entry.seconds) >= entry.delay_s / 2]
    shortest = min(waited, default=None)
    eager = [
        entry.bytes
        for entry in own
        if median(entry.seconds) < entry.delay_s / 2 and (not waited or entry.bytes < min(waited))
    ]
    longest = max(eager, default=0)
    return float(longest), float(2 * longest if shortest is None else shortest)


def fit_burst(measurements: Measurements, gap_ns_per_byte: float, draw: Draw) -> float | None:
    """Return the bytes that an idle lane lets pass at once; None without long messages.

    They are what a long message of a ping-pong, between which lanes are idle,
    saves against the lane's G. The shortest of those tells: an error of G is the
    greater the longer they are.
    """
    times = _half_round_trips(measurements, "network", draw)
    size = min((size for size in times if size >= _LONG), default=None)
    if size is None or gap_ns_per_byte <= 0:
        return None
    per_byte = gap_ns_per_byte / _NS
    short = median(time for s in times if s <= SMALL for time in times[s])
    return max(0.0, (short + size * per_byte - median(times[size])) / per_byte)


def fit_speed_up(measurements: Measurements, draw: Draw) -> float | None:
    """Return how much more ranks of a node send at once than one; None without two nodes."""
    slopes = _slopes(measurements, draw)
    if 1 not in slopes:
        return None
    return max(k * slopes[1] / slope for k, slope in slopes.items() if slope > 0)


def lane_ns_per_byte(measurements: Measurements, lanes: int, draw: Draw) -> float | None:
    """Return what a byte takes on a lane, by the bytes of the fullest; None where none were."""
    loads, times = [], []
    for entry in measurements.lanes_at_once:
        loads.append(-(-entry.ranks // lanes) * entry.bytes)
        times.append(draw(entry.seconds))
    return _NS * max(0.0, theil_sen(loads, times)[1]) if loads else None


def _slopes(measurements: Measurements, draw: Draw) -> dict[int, float]:
    """Return seconds a byte of each sender by how many send, without what comes before."""
    points: dict[int, list[tuple[int, float]]] = {}
    for entry in measurements.lanes_at_once:
        points.setdefault(entry.ranks, []).append((entry.bytes, draw(entry.seconds)))
    found = {}
    for k, own in points.items():
        slope = theil_sen([size for size, _ in own], [time for _, time in own])[1]
        if slope > 0:
            found[k] = slope
    return found


def _each_message(
    measurements: Measurements, link: LinkClass, draw: Draw
) -> tuple[float, float, float]:
    """Return a message's processor time, averaged over both sides, and how long it took to leave.

    The time first with, then without what comes with the shortest burst as a
    whole. All are medians over pairs.
    """
    own = [entry for entry in measurements.bursts if entry.link == link and entry.bytes <= SMALL]
    some, works, leaves = [], [], []
    for pair in dict.fromkeys(entry.pair for entry in own):
        bursts = [entry for entry in own if entry.pair == pair]
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
    """Return a byte's processor time, averaged over both sides, and at the receiver alone."""
    own = [entry for entry in measurements.transfers if entry.link == link]
    both, received = [], []
    for pair in dict.fromkeys(entry.pair for entry in own):
        transfers = [entry for entry in own if entry.pair == pair]
        sizes = [entry.bytes for entry in transfers]
        arriving = [draw(entry.recv_cpu_s) for entry in transfers]
        leaving = [draw(entry.send_cpu_s) for entry in transfers]
        sums = [s + r for s, r in zip(leaving, arriving, strict=True)]
        both.append(theil_sen(sizes, sums)[1] / 2)
        received.append(theil_sen(sizes, arriving)[1])
    return max(0.0, median(both)), max(0.0, median(received))


def _half_round_trips(
    measurements: Measurements, link: LinkClass, draw: Draw
) -> dict[int, list[float]]:
    """Return each pair's time by size."""
    found: dict[int, list[float]] = {}
    for entry in measurements.ping_pongs:
        if entry.link == link:
            found.setdefault(entry.bytes, []).append(draw(entry.seconds))
    return found


def _line(times: dict[int, list[float]], limit: float | None) -> tuple[float, float]:
    """Return the slope of the times, in s a byte, and where the line of long messages begins.

    It is the line through messages above the eager limit, where three sizes or more are.
    """
    above = [size for size in times if limit is not None and size > limit]
    sizes = above if len(above) >= _ENOUGH else list(times)
    points = [(size, time) for size in sizes for time in times[size]]
    x, y = [size for size, _ in points], [time for _, time in points]
    slope = max(0.0, theil_sen(x, y, is_relative=True)[1])
    return slope, median(time - slope * size for size, time in points)
