"""Sentences on the winners and losers of a comparison: ranges of sizes, ratios and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from collplan.reports.output import format_bytes, format_seconds
from collplan.select.candidates import call_of
from collplan.select.compared import Comparison
from collplan.specs import PlanSpec
from collplan.specs.request import AUTO, MESSAGES

AS_FAST: Final = 1.005
"""Ratio below which two times count as equal."""
BUSY: Final = 0.8
"""Utilization from which a resource is said to limit a plan."""
MOST_LOSERS: Final = 5
"""Largest number of losing candidates to explain; those that lose by the least come first."""
KINDS: Final = {
    "latency": "latency of messages",
    "bandwidth": "bytes on links",
    "contention": "links that messages share",
    "overhead": "overheads of messages on cores",
    "copy": "copies",
    "reduce": "reductions",
    "compute": "computation",
    "waiting": "waiting for shared resources",
}
"""Descriptions of the kinds of time on a critical path."""
DECOMPOSITIONS: Final = {
    "flat": "one algorithm over all ranks, whatever node they are on",
    "hierarchical": "one leader per node talks to other nodes",
    "multi_leader": "several leaders per node talk to other nodes, each with a share",
    "full_lane": "every rank of a node talks to other nodes, each with a share of the vector, "
    "so that all lanes work at the same time",
    "mesh": "the collective runs dimension by dimension over a mesh of ranks",
    "guideline": "the collective is composed of others over all ranks",
    "auto": "the planner chooses the decomposition",
}


_ON_GRAPHS: Final = {
    "hierarchical": "one leader per node sends a message to each node that needs something",
    "multi_leader": "several leaders per node divide its messages to other nodes among them",
    "full_lane": "all ranks of a node divide its messages to other nodes among them",
}
"""Descriptions of decompositions of collectives on graphs, where others than above apply."""


def explain(name: str, spec: PlanSpec) -> str:
    """Return a description of a candidate in words."""
    if name == call_of(spec.collective.planned_kind):
        return "MPI's own non-blocking call, as MPICH makes it by default"
    known = DECOMPOSITIONS | (_ON_GRAPHS if spec.collective.has_edges else {})
    words = [known.get(spec.decomposition.name, spec.decomposition.name)]
    if spec.algorithms != AUTO:
        words.append(f"algorithms: {spec.algorithms}")
    if spec.transport != MESSAGES:
        words.append("ranks of a node use shared memory")
    if spec.passes:
        words.append("passes: " + ", ".join(map(str, spec.passes)))
    return "; ".join(words)


def winners(comparison: Comparison) -> Iterator[str]:
    """Generate a sentence for each range of sizes that one candidate leads.

    The sentence has the sizes, the candidate's lead over the next best one and over native, its
    distance from the bound, and a description of the candidate.
    """
    sizes = [size for size in comparison.sizes if size in comparison.leading]

    def verdict(size: int) -> tuple[str, str]:
        name = comparison.leading[size]
        if size not in comparison.best:
            return name, "is the best of those simulated"
        return name, "is one of the fastest" if _has_equal(comparison, name, size) else "wins"

    for (name, verb), run in groupby(sizes, key=verdict):
        own = list(run)
        last = own[-1]
        where = f"at {format_bytes(last)}"
        if len(own) > 1:
            where = f"from {format_bytes(own[0])} to {format_bytes(last)}"
        facts = [format_seconds(comparison.makespans[name, last])]
        if len(own) > 1:
            facts[0] += f" at {format_bytes(last)}"
        facts += _distances(comparison, name, last)
        what = explain(name, comparison.specs[name])
        yield f"{name} {verb} {where} ({', '.join(facts)}): {what}."


def losers(
    comparison: Comparison, size: int, costs: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Generate a sentence for each candidate that loses at a size, with the ratio and the reason.

    Parameters
    ----------
    comparison : Comparison
        Comparison that has the candidates.
    size : int
        Size in bytes, one of the comparison's.
    costs : mapping of str to mapping
        Cost reports of candidates at this size, by name.
    """
    name = comparison.leading[size]
    time = comparison.makespans[name, size]
    slower = {
        other: seconds
        for other, seconds in _others(comparison, name, size).items()
        if other in costs and time > 0 and seconds >= AS_FAST * time
    }
    for other in sorted(slower, key=lambda one: slower[one])[:MOST_LOSERS]:
        yield f"{other} takes {slower[other] / time:.2f} times as long: {limit(costs[other])}."


def limit(cost: Mapping[str, Any]) -> str:
    """Return the limit of a plan in words: its busiest resource, or the main part of its time."""
    links = cost.get("links", {}).get("busiest")
    found = [
        (one["utilisation"], f"lane {one['lane']} of node {one['node']}") for one in cost["lanes"]
    ]
    if links is not None:
        found.append((links["utilisation"], f"link {links['link']}"))
    found += [
        (one["utilisation"], f"core {one['core']} of node {one['node']}") for one in cost["cores"]
    ]
    share, what = max(found, key=lambda one: one[0], default=(0.0, ""))
    # A lane or link that is nearly as busy as a core is a better explanation than the core.
    share, what = next((one for one in found if one[0] >= 0.97 * share), (share, what))
    if share >= BUSY:
        text = f"it is limited by {what}, {share:.0%} busy"
    else:
        kind, ns = max(cost["breakdown"].items(), key=lambda part: part[1])
        part = ns / cost["makespan_ns"] if cost["makespan_ns"] else 0.0
        text = f"{part:.0%} of its critical path is {KINDS[kind]}, and nothing is busy all the time"
    numbers = {one["lane"] for one in cost["lanes"]}
    used = {one["lane"] for one in cost["lanes"] if one["utilisation"] > 0}
    if used and len(used) < len(numbers):
        text += f"; it uses {len(used)} of {len(numbers)} lanes"
    return text


def _distances(comparison: Comparison, name: str, size: int) -> Iterator[str]:
    """Generate phrases that compare a candidate's time with the next best, native and the bound."""
    time = comparison.makespans[name, size]
    if time <= 0:
        return
    others = _others(comparison, name, size)
    if others:
        second = min(others, key=lambda other: others[other])
        yield _ahead(others[second] / time, second)
        beside, theirs = comparison.baseline, comparison.baseline_s.get(size)
        if theirs is not None and beside not in (second, name):
            yield _ahead(theirs / time, beside)
    bound = comparison.bounds[size].time_s
    if bound > 0:
        yield f"{time / bound:.3g} times the bound"


def _others(comparison: Comparison, name: str, size: int) -> dict[str, float]:
    """Return the makespans of all other candidates of a size."""
    return {
        other: seconds
        for (other, at), seconds in comparison.makespans.items()
        if at == size and other != name
    }


def _has_equal(comparison: Comparison, name: str, size: int) -> bool:
    """Return whether another candidate takes less than `AS_FAST` times the candidate's time."""
    time = comparison.makespans[name, size]
    return any(other < AS_FAST * time for other in _others(comparison, name, size).values())


def _ahead(factor: float, other: str) -> str:
    if factor < AS_FAST:
        return f"as fast as {other}"
    return f"{factor:.2f} times as fast as {other}"
