"""Fit what a byte costs to copy and reduce: in pieces, out of the cache, by all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from collplan.measure.calibration.measurements import Layout, Measurements, Work
from collplan.measure.calibration.robust import step

Draw = Callable[[Sequence[float]], float]
Found = dict[str, tuple[float | int | None, str]]

_NS: Final = 1e9
_STEP: Final = 1.2
"""Below this ratio a step in cost is no cache's end, and a memory not shared."""
_WORKS: Final[tuple[Work, ...]] = ("copy", "reduce")


def fit_local(measurements: Measurements, draw: Draw) -> Found:
    """Return the costs of local work by field of `collplan.specs.Network`, with how each was found.

    Parameters
    ----------
    measurements : Measurements
        All of them.
    draw : callable
        Makes one time of several.
    """
    levels = {work: _levels(measurements, work, "contiguous", draw) for work in _WORKS}
    cache = _cache_bytes(levels)
    cost = {}
    for work in _WORKS:
        cached = [value for size, value in levels[work].items() if cache is None or size <= cache]
        cost[work] = median(cached)
    uncached = 0.0
    if cache is not None:
        rises = [
            value - cost[work]
            for work in _WORKS
            for size, value in levels[work].items()
            if size > cache
        ]
        uncached = max(0.0, median(rises))
    pieces = [
        value - levels[work][size]
        for work in _WORKS
        for size, value in _levels(measurements, work, "strided", draw).items()
        if size in levels[work]
    ]
    memory = _memory(measurements, levels["copy"], draw)
    found: Found = {
        "copy_ns_per_byte": (_NS * cost["copy"], "copies of segments"),
        "reduce_ns_per_byte": (_NS * cost["reduce"], "sums of segments"),
    }
    if pieces:
        found["strided_ns_per_byte"] = (
            _NS * max(0.0, median(pieces)),
            "rows of 256 B, less the same in one piece",
        )
    found["cache_bytes"] = (cache, "working set from which on costs rise")
    found["uncached_ns_per_byte"] = (_NS * uncached, "larger working sets, less cached")
    if memory is not None:
        found["memory_ns_per_byte"] = (_NS * memory, "copies by ranks of a node at once")
    return found


def _levels(measurements: Measurements, work: Work, layout: Layout, draw: Draw) -> dict[int, float]:
    """Return seconds a byte by working set, ascending, of one rank alone."""
    own = [
        entry
        for entry in measurements.local_work
        if (entry.work, entry.layout, entry.ranks) == (work, layout, 1)
    ]
    own.sort(key=lambda entry: entry.working_set_bytes)
    return {entry.working_set_bytes: draw(entry.seconds) / entry.bytes for entry in own}


def _cache_bytes(levels: dict[Work, dict[int, float]]) -> int | None:
    """Return the largest working set that costs as little as small ones; None where all do."""
    sizes = sorted(set(levels["copy"]) & set(levels["reduce"]))
    if len(sizes) < 2:
        return None
    # Each in units of its own middle, so that both say as much.
    middles = {work: median(levels[work][size] for size in sizes) for work in _WORKS}
    both = [sum(levels[work][size] / middles[work] for work in _WORKS) for size in sizes]
    cut = step(both)
    if median(both[cut:]) < _STEP * median(both[:cut]):
        return None
    return sizes[cut - 1]


def _memory(measurements: Measurements, alone: dict[int, float], draw: Draw) -> float | None:
    """Return seconds a byte of the node's memory; 0 where ranks at once are as fast as one."""
    crowds = [entry for entry in measurements.local_work if entry.ranks > 1]
    if not crowds:
        return None
    crowd = max(crowds, key=lambda entry: entry.ranks)
    each = draw(crowd.seconds) / crowd.bytes
    if each < _STEP * alone.get(crowd.working_set_bytes, each):
        return 0.0
    return each / crowd.ranks
