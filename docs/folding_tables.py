"""The table of algorithms whose flat plans fold to one node.

Packed algorithms need a topology, on which no plan folds; they are not in it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from collplan.planner.algorithms import registry
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import AlgorithmError, AsymmetricError
from collplan.specs import PlanSpec
from collplan.specs.collectives.collective import traits_of

POWERS: Final = 4, 4
EVEN: Final = 6, 2
ODD: Final = 3, 3
"""Nodes and ranks per node: powers of two, even numbers of ranks per node, and odd ones."""
NO_PLAN: Final = "-"
"""Reason of algorithms that do not support the number of ranks."""


def folding() -> str:
    """Return the table of algorithms that fold in a group that moves."""
    rows = ["| collective | algorithms that fold in a group that moves |", "|---|---|"]
    for kind in sorted(registry.kinds()):
        by_need: dict[str, list[str]] = {}
        for name in _names(kind):
            if "" in _reasons(kind, name):
                by_need.setdefault(_need(kind, name), []).append(f"`{name}`")
        texts = [", ".join(found) + need for need, found in sorted(by_need.items())]
        rows += [f"| {kind} | {'; '.join(texts)} |"] if texts else []
    return "\n".join(rows)


def why_not(kind: str, name: str, nodes: int, per_node: int) -> str:
    """Return why a flat plan does not fold; nothing if it does."""
    # Integers, which all algorithms combine.
    count = 4 * nodes * per_node
    data: dict[str, object] = {} if kind == "barrier" else {"count": count, "datatype": "int64"}
    if traits_of(kind).has_edges:
        data["graph"] = {"grid": [nodes * per_node], "periodic": True}
    spec = PlanSpec.model_validate(
        {
            "machine": {"nodes": nodes, "ranks_per_node": per_node},
            "collective": {"kind": kind, **data},
            "algorithms": name,
        }
    )
    try:
        compile_folded(spec)
    except AsymmetricError as error:
        return str(error).rpartition(": ")[2].replace(name, "the algorithm")
    except AlgorithmError:
        return NO_PLAN
    return ""


def _names(kind: str) -> list[str]:
    return sorted(one.name for one in registry.of(kind) if not one.is_packed)


@cache
def _reasons(kind: str, name: str) -> tuple[str, str, str]:
    """Return the reasons of `why_not` on the three machines."""
    powers, even, odd = (why_not(kind, name, *machine) for machine in (POWERS, EVEN, ODD))
    return powers, even, odd


def _need(kind: str, name: str) -> str:
    """Return in which cases a plan folds, as a text in parentheses; empty if in all."""
    _, even, odd = _reasons(kind, name)
    if even:
        return " (powers of two)"
    return " (an even number of ranks per node)" if odd else ""
