"""Sentences that name the best algorithm on a machine, and explain why it is the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from collplan.planner.draw.style import format_count
from collplan.reports.output import format_bytes, format_seconds
from collplan.reports.words import KINDS, losers
from collplan.select.compared import Comparison


def answer(comparison: Comparison, size: int, costs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the sentences of the answer for one size.

    Parameters
    ----------
    comparison : Comparison
        Comparison that has the candidates.
    size : int
        Size in bytes, one of the comparison's.
    costs : mapping of str to mapping
        Cost reports of candidates that were simulated again at this size, by name.
    """
    if size not in comparison.leading:
        return [f"Nothing was simulated at {format_bytes(size)}."]
    name = comparison.leading[size]
    time = comparison.makespans[name, size]
    is_sure = size in comparison.best
    verb = "wins" if is_sure else "is the best of those simulated"
    lines = [f"{name} {verb} at {format_bytes(size)}: {format_seconds(time)}."]
    lines += _references(comparison, size, name, time)
    bound = comparison.bounds[size]
    if bound.time_s > 0:
        lines.append(
            f"That is {time / bound.time_s:.3g} times the lower bound: on this machine, "
            f"{bound.what} take {format_seconds(bound.time_s)} in any plan."
        )
    else:
        lines.append("No lower bound on the time is known here.")
    if not is_sure:
        rival = comparison.rivals[size][0].candidate
        lines.append(f"{rival} may be better, but was not simulated.")
    if name in costs:
        lines += _why(costs[name])
    lines += losers(comparison, size, costs)
    return lines


def _references(comparison: Comparison, size: int, name: str, time: float) -> Iterator[str]:
    for other in comparison.references:
        if other == name:
            yield f"It is {_role(comparison, other)}."
        elif (other, size) in comparison.makespans and time > 0:
            theirs = comparison.makespans[other, size]
            who = f"{_role(comparison, other)} ({other})"
            yield f"It is {theirs / time:.2f} times as fast as {who}, {format_seconds(theirs)}."
        else:
            yield _unknown(comparison, size, other)
    beside, theirs_s = comparison.baseline, comparison.baseline_s.get(size)
    if beside != comparison.call and theirs_s is not None and time > 0:
        yield (
            f"It is {theirs_s / time:.2f} times as fast as the blocking call of {beside}, "
            f"{format_seconds(theirs_s)}."
        )


def _unknown(comparison: Comparison, size: int, name: str) -> str:
    """Return a sentence on a candidate that was not simulated."""
    who = f"{_role(comparison, name)} ({name})"
    for one in comparison.pruned:
        if (one.candidate, one.bytes) == (name, size) and one.is_estimated:
            return (
                f"Not simulated at this size: {who}, about {format_seconds(one.price_s)} by its "
                f"closed form; more --seconds may simulate its {one.n_tasks:,} tasks."
            )
    why = comparison.refused.get(name)
    return f"Not simulated at this size: {who}{f', because {why}' if why else ''}."


def _role(comparison: Comparison, name: str) -> str:
    if name == comparison.call:
        return "MPI's own non-blocking call"
    return "the spec's own choice" if name == comparison.own else "a spec given besides"


def _why(cost: Mapping[str, Any]) -> Iterator[str]:
    """Generate sentences on the parts of the time, and on the busiest lane and core."""
    total = cost["makespan_ns"]
    if not total:
        return
    parts = sorted(cost["breakdown"].items(), key=lambda part: -part[1])
    words = [f"{KINDS[kind]} ({ns / total:.0%})" for kind, ns in parts if ns / total >= 0.05]
    yield f"The time of its critical path goes to {', '.join(words[:4])}."
    lanes = [lane for lane in cost["lanes"] if lane["utilisation"] > 0]
    if lanes:
        busiest = max(lanes, key=lambda lane: lane["utilisation"])
        numbers = {lane["lane"] for lane in lanes}
        yield (
            f"{format_count(len(numbers), 'lane')} per node {'is' if len(numbers) == 1 else 'are'} "
            f"used; the busiest, lane {busiest['lane']} of node {busiest['node']}, is busy "
            f"{busiest['utilisation']:.0%} of the time."
        )
    cores = [core["utilisation"] for core in cost["cores"]]
    if cores:
        yield f"The busiest core is busy {max(cores):.0%} of the time."
