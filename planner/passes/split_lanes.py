"""Division of a hierarchical decomposition among several leaders per node."""

from __future__ import annotations

from typing import Annotated

from pydantic import SkipValidation

from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import is_number, register_pass
from collplan.specs.errors import show_value


@register_pass(
    "split_lanes",
    level="blueprint",
    locality="global",
    needs="a number of leaders other than that of the decomposition",
)
def split_lanes(blueprint: Blueprint, leaders: Annotated[int, SkipValidation] = 2) -> Blueprint:
    """Let `leaders` ranks of every node talk across nodes at once, each on its own lane.

    The number of leaders ranges from one per node (hierarchical) to all ranks (full_lane). Each
    leader carries its share of a vector, or the blocks of the ranks that it serves.

    Parameters
    ----------
    blueprint : Blueprint
        Blueprint of a hierarchical or multi-leader decomposition.
    leaders : int
        Number of leaders per node, at most that of ranks on the largest node.

    Raises
    ------
    AlgorithmError
        If the decomposition has no leaders, or no node has that many ranks.
    """
    decomposition, machine = blueprint.decomposition, blueprint.spec.machine
    if decomposition.name not in ("hierarchical", "multi_leader"):
        raise AlgorithmError(
            f"passes.split_lanes: {decomposition} has no leaders to split; "
            "use it with decomposition: hierarchical"
        )
    fullest = max(machine.node_to_n_ranks)
    if not is_number(leaders, 1) or leaders > fullest:
        raise AlgorithmError(
            f"passes.split_lanes.leaders: {show_value(leaders)} leaders, "
            f"no node has more than {fullest} ranks; use 1 to {fullest}"
        )
    wanted = decomposition.replace(name="multi_leader", leaders=leaders)
    return draft(blueprint.spec, wanted) if wanted != decomposition else blueprint
