"""Winners of a comparison in sentences: which, from where to where, why and by how much."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from collplan.planner.plan.phases import NATIVE
from collplan.reports.output import format_bytes, format_seconds
from collplan.select.compared import Comparison
from collplan.specs import PlanSpec
from collplan.specs.request import AUTO, MESSAGES

AS_FAST: Final = 1.005
"""Factor below which two times are called the same."""
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


def explain(name: str, spec: PlanSpec) -> str:
    """Return a candidate's name in words."""
    if name == NATIVE:
        return "what MPICH chooses by default, as the model of the MPI library's own collective"
    words = [DECOMPOSITIONS.get(spec.decomposition.name, spec.decomposition.name)]
    if spec.algorithms != AUTO:
        words.append(f"algorithms: {spec.algorithms}")
    if spec.transport != MESSAGES:
        words.append("ranks of a node use shared memory")
    if spec.passes:
        words.append("passes: " + ", ".join(map(str, spec.passes)))
    return "; ".join(words)


def winners(comparison: Comparison) -> Iterator[str]:
    """Generate a sentence for each run of sizes that one candidate leads.

    It says the sizes, how far ahead the candidate is of the next best one and of native, how near
    the bound, and what the candidate does.
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


def _distances(comparison: Comparison, name: str, size: int) -> Iterator[str]:
    """Generate by how much a candidate is ahead of the next best, of native, and of the bound."""
    time = comparison.makespans[name, size]
    if time <= 0:
        return
    others = _others(comparison, name, size)
    if others:
        second = min(others, key=lambda other: others[other])
        yield _ahead(others[second] / time, second)
        if NATIVE in others and second != NATIVE:
            yield _ahead(others[NATIVE] / time, NATIVE)
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
    """Return whether another candidate takes the same time."""
    time = comparison.makespans[name, size]
    return any(other < AS_FAST * time for other in _others(comparison, name, size).values())


def _ahead(factor: float, other: str) -> str:
    if factor < AS_FAST:
        return f"as fast as {other}"
    return f"{factor:.2f} times as fast as {other}"
